"""Requests whose URLs come from a message: where they may go, shown on a server of this machine."""

import socket
from pathlib import Path

import pytest
from tests.runners.http_servers import (
    CLAIM,
    OK,
    Served,
    answering,
    answering_tls,
    attempt,
    make_certificate,
    trusted,
)

from detent.errors import UsageError
from detent.messages.addresses import Reach
from detent.model import End, Outcome, Request
from detent.runners.http.addresses import connect_within
from detent.runners.http.connection import Address, TlsFailed, Watch, start_tls
from detent.runners.http.request import parse_url, send

HERE = "127.0.0.1"


def reached(url: str, reach: Reach) -> End:
    return send(Request(url), CLAIM, secrets=(), timeout_s=20, lifeline=trusted(), reach=reach)


def address(text: str, port: int) -> Address:
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    return (family, socket.SOCK_STREAM, 0, "", (text, port))


class Names:
    """A resolver of a test: what the system takes for a number it reads as the system does; every name has
    these addresses, one answer after the other, the last one for ever."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers, self.asked = list(answers), 0

    def __call__(self, host: str, port: int, watch: Watch) -> list[Address]:
        self.asked += 1
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:
            answer = self.answers[min(self.asked, len(self.answers)) - 1]
            return [address(text, port) for text in answer]
        return list(found)


def visits(served: Served) -> int:
    """How many connections the server has had, before this: they come in order, so one more brings to light
    those that it has not come to yet."""
    assert attempt(served.url).outcome == Outcome("succeeded")
    return served.connections - 1


def watch() -> Watch:
    return Watch(trusted(), 20)


def refused(url: str, reach: Reach, names: Names) -> str:
    """Why there is no connection for this URL; empty if there is one."""
    try:
        endpoint = parse_url(url)
        connect_within(reach, endpoint.host, endpoint.port, watch(), names).close()
    except UsageError as error:
        return str(error)
    return ""


# Spellings of this machine, of its networks and of what must never be asked.
SPELLINGS = r"""
    127.0.0.1 127.0.0.1. 127.1 127.0.1 127.000.000.001 0127.0.0.1 0177.0.0.1 0177.0.0.01 0177.1
    017700000001 00177.0.0.1 0x7f.0.0.1 0x7f.1 0x7f000001 0X7F000001 0x7F.0X00.0x0.0x01 0x0000007f.0.0.1
    2130706433 2130706433. 127.0.0.2 127.255.255.254 127.0.0.1.nip.io localtest.me 0 0.0.0.0 0x0 00 0.0
    000.000.000.000 １２７.0.0.1 127。0。0。1 127．0．0．1 127｡0｡0｡1 ①②⑦.⓪.⓪.① ⑯⑨.②⑤④.⑯⑨.②⑤④
    ２１３０７０６４３３ ０ｘ7f.1 𝟏𝟐𝟕.𝟎.𝟎.𝟏 %31%32%37.0.0.1 127%2e0%2e0%2e1 %6c%6f%63%61%6c%68%6f%73%74
    localhost LOCALHOST LocalHost. a.localhost localhost.localdomain ｌｏｃａｌｈｏｓｔ ⓛⓞⓒⓐⓛⓗⓞⓢⓣ
    loc\u00adalhost [::1] [0:0:0:0:0:0:0:1] [0000:0000:0000:0000:0000:0000:0000:0001] [::0001] [::]
    [0::0] [::127.0.0.1] [::7f00:1] [::ffff:127.0.0.1] [::FFFF:7f00:1] [0:0:0:0:0:ffff:127.0.0.1]
    [::ffff:0:127.0.0.1] [64:ff9b::127.0.0.1] [64:ff9b::7f00:1] [64:ff9b:1::7f00:1] [2002:7f00:1::]
    [2002:a9fe:a9fe::] [2001:0:4136:e378:8000:63bf:80ff:fffe] [::1%25lo] [fe80::1] [fe80::1%eth0]
    [fe80::1%25eth0] [fd00::1] [fc00::1] [fd00:ec2::254] [fec0::1] [ff02::1] [ff0e::1] [100::1]
    [2001:db8::1] [::ffff:169.254.169.254] 10.0.0.1 10.1 172.16.0.1 172.31.255.254 192.168.0.1 192.168.1
    0xc0a80001 3232235521 0300.0250.0.1 100.64.0.1 169.254.169.254 169.254.43518 0xa9fea9fe 2852039166
    0251.0376.0251.0376 169.254.169.254. 169.254.170.2 168.63.129.16 100.100.100.200 192.0.0.192 metadata
    metadata.google.internal METADATA.google.internal. metadata.goog instance-data
    instance-data.ec2.internal kubernetes.default.svc redis db.internal printer.local 192.0.2.1
    198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 192.88.99.1
    example.com@127.0.0.1 example.com:80@127.0.0.1 user:pass@127.1 example.com%40@127.0.0.1 @127.0.0.1
    example.com\@127.0.0.1 127.0.0.1\@example.com 127.0.0.1\.example.com a@b@127.0.0.1
    127.0.0.1%00.example.com 127.0.0.1%23.example.com [127.0.0.1] [::1].example.com 1.1.1.1&@127.0.0.1
    1.1.1.1%20@127.0.0.1 -127.0.0.1
"""


def test_a_hundred_spellings_of_private_addresses_are_refused() -> None:
    spellings = [one.replace("\\u00ad", "\u00ad") for one in SPELLINGS.split()]
    assert len(set(spellings)) >= 130
    with answering(OK) as served:
        passed = [
            one for one in spellings if not refused(f"http://{one}:{served.port}/", Reach(), Names([HERE]))
        ]
        assert passed == []
        assert visits(served) == 0


def test_without_the_check_many_of_these_spellings_reach_this_machine() -> None:
    """Proves that the test before this one tests something."""
    short = [
        one for one in SPELLINGS.split() if one.isascii() and one[0].isdigit() and not one.endswith(".io")
    ]
    with answering(OK) as served:
        ends = {one: attempt(f"http://{one}:{served.port}/", timeout_s=2) for one in short if _is_here(one)}
    assert len(ends) > 15
    assert [one for one, end in ends.items() if end.outcome != Outcome("succeeded")] == []


def _is_here(host: str) -> bool:
    try:
        return socket.inet_ntoa(socket.inet_aton(host)) in (HERE, "0.0.0.0")
    except OSError:
        return False


def test_a_refused_request_is_refused_before_a_byte_is_sent() -> None:
    with answering(OK) as served:
        end = reached(served.url, Reach())
        assert visits(served) == 0
    reason = 'host "127.0.0.1" is not a public address (loopback); list the host in `hosts` to allow it'
    assert end.outcome == Outcome("failed", reason)


def test_a_host_that_is_listed_is_reached_and_no_other() -> None:
    with answering(OK) as served:
        assert reached(served.url, Reach(hosts=(served.place,))).outcome == Outcome("succeeded")
        assert reached(served.url, Reach(hosts=(HERE,))).outcome == Outcome("succeeded")
        for hosts in (("example.com",), (f"{HERE}:1",), ("*.example.com",)):
            end = reached(served.url, Reach(hosts=hosts))
            assert "is not on the list for messages" in end.outcome.reason
        assert visits(served) == 2


# Names.


def connected(served: Served, names: Names, *hosts: str) -> str:
    return refused(f"http://api.example.com:{served.port}/", Reach(hosts), names)


def test_a_public_name_that_leads_here_is_refused_unless_it_is_listed_in_full() -> None:
    with answering(OK) as served:
        assert "resolves to 127.0.0.1, not a public address (loopback)" in connected(served, Names([HERE]))
        assert "resolves to 127.0.0.1" in connected(served, Names([HERE]), "*.example.com")
        assert connected(served, Names([HERE]), "api.example.com") == ""
        assert visits(served) == 1


def test_one_address_that_is_not_public_refuses_them_all() -> None:
    with answering(OK) as served:
        for answer in (
            ["8.8.8.8", HERE],
            [HERE, "8.8.8.8"],
            ["2606:4700::1", "::1"],
            ["8.8.8.8", "::ffff:7f00:1"],
        ):
            assert "not a public address" in connected(served, Names(answer))
        assert visits(served) == 0


def test_the_resolver_is_asked_only_once() -> None:
    """Rebinding: allowed when it is asked first, elsewhere when it is asked again."""
    there, back = Names([HERE], ["169.254.169.254"]), Names(["169.254.169.254"], [HERE])
    with answering(OK) as served:
        assert connected(served, there, "api.example.com") == ""
        assert "link-local" in connected(served, back, "api.example.com")
        assert visits(served) == 1
    assert (there.asked, back.asked) == (1, 1)


def test_a_connection_to_another_address_is_closed_unused() -> None:
    """The system connects 0.0.0.0 to 127.0.0.1: only the connected socket shows it."""
    with answering(OK) as served:
        why = refused(f"http://0.0.0.0:{served.port}/", Reach(("0.0.0.0",)), Names([]))
        assert why == "the connection led to 127.0.0.1, which is no address of 0.0.0.0"
        assert visits(served) == 1
    assert len(served.requests) == 1  # that of the visit which counted


def test_an_answer_that_is_no_address_is_refused() -> None:
    with answering(OK) as served:
        assert "is no address" in connected(served, Names(["127.1"]))
        assert "link-local" in connected(served, Names(["fe80::1%lo"]))
        assert visits(served) == 0


# TLS.


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls"), "DNS:api.example.com")


def test_tls_verifies_the_name_and_not_the_address(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    reach, names = Reach(("api.example.com", "other.example.com")), Names([HERE])
    with answering_tls(certificate, OK) as served:
        sock = connect_within(reach, "api.example.com", served.port, watch(), names)
        with start_tls(sock, "api.example.com") as secure:
            secure.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert secure.makefile("rb").read() == OK
        sock = connect_within(reach, "other.example.com", served.port, watch(), names)
        with pytest.raises(TlsFailed, match=r"other\.example\.com"):
            start_tls(sock, "other.example.com")
        end = reached(f"https://{served.place}/", Reach((HERE,)))
    assert "its certificate is refused" in end.outcome.reason and HERE in end.outcome.reason
    assert len(served.requests) == 1
