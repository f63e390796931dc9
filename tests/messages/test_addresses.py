"""Addresses: which are public, what a host may look like, and what a list of hosts allows."""

import socket
from ipaddress import IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.errors import UsageError
from detent.messages.addresses import (
    Host,
    Reach,
    check_address,
    check_host,
    check_reach,
    kind_of,
    parse_host,
)

KINDS = {
    "1.1.1.1": "public",
    "8.8.8.8": "public",
    "9.255.255.255": "public",
    "11.0.0.0": "public",
    "100.63.255.255": "public",
    "100.128.0.0": "public",
    "126.255.255.255": "public",
    "128.0.0.0": "public",
    "169.253.255.255": "public",
    "169.255.0.0": "public",
    "172.15.255.255": "public",
    "172.32.0.0": "public",
    "192.167.255.255": "public",
    "192.169.0.0": "public",
    "198.17.255.255": "public",
    "198.20.0.0": "public",
    "223.255.255.255": "public",
    "2606:4700:4700::1111": "public",
    "2a00:1450:4001:81b::200e": "public",
    "0.0.0.0": "unspecified",
    "0.1.2.3": "unspecified",
    "10.0.0.1": "private",
    "10.255.255.255": "private",
    "100.64.0.1": "shared",
    "100.100.100.200": "metadata",
    "127.0.0.1": "loopback",
    "127.255.255.255": "loopback",
    "168.63.129.16": "metadata",
    "169.254.0.1": "link-local",
    "169.254.169.254": "link-local",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.0.0.192": "reserved",
    "192.0.2.1": "reserved",
    "192.88.99.1": "6to4",
    "192.168.0.1": "private",
    "198.18.0.1": "reserved",
    "198.51.100.1": "reserved",
    "203.0.113.1": "reserved",
    "224.0.0.1": "multicast",
    "239.255.255.255": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.255": "reserved",
    "::": "unspecified",
    "::1": "loopback",
    "::ffff:127.0.0.1": "IPv4-mapped",
    "::ffff:8.8.8.8": "IPv4-mapped",
    "::127.0.0.1": "IPv4-compatible",
    "64:ff9b::7f00:1": "NAT64",
    "64:ff9b::808:808": "NAT64",
    "64:ff9b:1::1": "NAT64",
    "100::1": "reserved",
    "2001::1": "Teredo",
    "2001:2::1": "reserved",
    "2001:10::1": "reserved",
    "2001:db8::1": "reserved",
    "2002:7f00:1::": "6to4",
    "2002:808:808::": "6to4",
    "3fff::1": "reserved",
    "4000::1": "reserved",
    "5f00::1": "reserved",
    "fc00::1": "private",
    "fd00::1": "private",
    "fd00:ec2::254": "metadata",
    "fd20:ce::254": "metadata",
    "fe80::1": "link-local",
    "fe80::1%eth0": "link-local",
    "2606:4700::1%eth0": "link-local",
    "fec0::1": "private",
    "ff02::1": "multicast",
    "hello": "no address",
    "127.1": "no address",
    "": "no address",
}


@pytest.mark.parametrize(("address", "kind"), KINDS.items())
def test_kinds_of_addresses(address: str, kind: str) -> None:
    assert kind_of(address) == kind


@given(st.ip_addresses())
def test_no_address_that_python_calls_special_is_public(address: object) -> None:
    found = ip_address(str(address))
    special = found.is_private or found.is_loopback or found.is_link_local or found.is_multicast
    special = special or found.is_reserved or found.is_unspecified
    assert not (special and kind_of(str(found)) == "public")


@given(st.integers(0, 2**32 - 1))
def test_an_ipv4_address_inside_ipv6_is_never_public(number: int) -> None:
    inside = (number, 0xFFFF << 32 | number, 0x64_FF9B << 96 | number, 0x2002 << 112 | number << 80)
    assert "public" not in {kind_of(IPv6Address(one)) for one in inside}


def test_only_2000_slash_3_is_public_in_ipv6() -> None:
    given_out = ip_network("2000::/3")
    for first in range(0, 0x10000, 0x40):
        address = IPv6Address(first << 112 | 0x1234)
        assert kind_of(address) != "public" or address in given_out


# Hosts.


@pytest.mark.parametrize(
    ("text", "host"),
    {
        "example.com": "example.com",
        "EXAMPLE.Com": "example.com",
        "example.com.": "example.com",
        "a_b.example.com": "a_b.example.com",
        "1.example.com": "1.example.com",
        "0x7f.example.com": "0x7f.example.com",
        "bücher.example": "xn--bcher-kva.example",
        "ｅｘａｍｐｌｅ。com": "example.com",
        "127.0.0.1": "127.0.0.1",
        "127.0.0.1.": "127.0.0.1",
        "１２７．０．０．１": "127.0.0.1",
        "①②⑦.⓪.⓪.①": "127.0.0.1",
        "127。0。0。1": "127.0.0.1",
        "[::1]": "::1",
        "::1": "::1",
        "[0:0:0:0:0:FFFF:7F00:1]": "::ffff:7f00:1",
        "[::ffff:127.0.0.1]": "::ffff:7f00:1",
    }.items(),
)
def test_a_host_has_one_spelling(text: str, host: str) -> None:
    # However this Python writes addresses of IPv4 in IPv6: by what they mean.
    found = parse_host(text)
    assert found.address == ip_address(host) if found.address else found.text == host


AMBIGUOUS = """
    0x7f000001 0X7F000001 0x7f.0.0.1 0x7f.1 0x7F.0x0.0x0.0x1 0x 0x7f.0.0.0x 2130706433 017700000001
    0177.0.0.1 0177.1 127.1 127.0.1 127.0.0.1.1 127.0.0.256 127.0.0.01 127.00.0.1 0127.0.0.1 00000127.0.0.1
    127.0.0.1.. 0 1 00 4294967295 4294967297 3232235521 0xc0a80001 0xa9fea9fe 2852039166 169.254.43518
    169.16689662 0251.0376.0251.0376 08.8.8.8 8.8.2056 0x08080808 1.2.3 1.2 0x.0x.0x.0x 99999999999999999999
    127.0.0.0x1 example.0x7f a.1 a.0 １２７．１ ⑫⑦.1 127.０１.0.1 ０ｘ7f.1 [::1%25lo] [fe80::1%eth0] ::1%1
    [::1 ::1] [127.0.0.1 [:] [::g] 1::2::3 [1::2::3] [::ffff:0x7f.1] [::ffff:127.1] [::ffff:127.0.0.01] [::１]
"""
ILL_FORMED = """
    %31%32%37.0.0.1 127%2e0.0.1 localhost%00 exa%6dple.com ex$mple.com a..b .a -a.com a-.com a,b.com a@b.com
    a;b a/b a\\b a?b a#b *.example.com a|b a`b a'b a"b a(b) a=b a+b a!b ~a . .. \u3002
"""
BLANKS = ["", " ", "a b.com", "a\tb", "a\nb.com", "a\0.com"]
LONG = ["a" * 64 + ".com", "a." * 130 + "com"]


@pytest.mark.parametrize("text", [*AMBIGUOUS.split(), *ILL_FORMED.split(), *BLANKS, *LONG])
def test_an_invalid_or_ambiguous_host_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="bad host"):
        parse_host(text)


@given(st.text(max_size=20) | st.text("0123456789xX.abcdefABCDEF:[]%", max_size=20))
def test_parsing_a_parsed_host_changes_nothing(text: str) -> None:
    try:
        found = parse_host(text)
    except UsageError:
        return
    assert parse_host(found.text) == found
    assert found.text.isascii() and found.text == found.text.lower()


@given(st.text("0123456789xXabcdef.", min_size=1, max_size=16))
def test_an_address_is_read_as_the_system_reads_it_or_refused(text: str) -> None:
    try:
        packed = socket.inet_aton(text)
    except OSError:
        return
    try:
        found = parse_host(text)
    except UsageError:
        return
    assert found.address is not None and found.address.packed == packed


# Where requests may go.


def allowed(host: str, reach: Reach = Reach(), port: int = 443, leads_to: str = "8.8.8.8") -> bool:  # noqa: B008
    named = parse_host(host)
    try:
        check_host(named, port, reach)
        check_address(named.address or ip_address(leads_to), named, port, reach)
    except UsageError as error:
        assert "hosts" in str(error) or "on the list" in str(error)
        return False
    return True


LOCAL_NAMES = """
    localhost LOCALHOST. a.localhost localhost.localdomain metadata metadata.google.internal
    Metadata.Google.Internal. metadata.goog instance-data instance-data.ec2.internal redis db printer.local
    kubernetes.default.svc kubernetes.default.svc.cluster.local router.lan x.home.arpa 1.0.0.127.in-addr.arpa
    x.onion x.test x.invalid x.intranet
"""


@pytest.mark.parametrize("host", LOCAL_NAMES.split())
def test_local_names_are_refused_wherever_they_resolve(host: str) -> None:
    assert not allowed(host)


def test_without_a_list_only_public_hosts_are_allowed() -> None:
    assert allowed("example.com") and allowed("8.8.8.8") and allowed("[2606:4700::1]")
    assert not allowed("127.0.0.1") and not allowed("[::1]") and not allowed("169.254.169.254")
    for address, kind in KINDS.items():
        if kind != "no address":
            assert allowed("example.com", leads_to=address) == (kind == "public"), address


def test_a_list_allows_only_its_entries() -> None:
    reach = Reach(hosts=("api.example.com", "*.example.org", "Other.example.net:8443"))
    assert allowed("api.example.com", reach) and allowed("API.example.com.", reach)
    assert allowed("a.example.org", reach) and allowed("a.b.example.org", reach)
    assert allowed("other.example.net", reach, port=8443)
    for host in (
        "example.com",
        "example.org",
        "aexample.org",
        "api.example.com.evil.net",
        "8.8.8.8",
        "localhost",
    ):
        assert not allowed(host, reach), host
    assert not allowed("other.example.net", reach, port=443)
    assert not allowed("evilapi.example.com", reach)


def test_a_name_listed_in_full_may_be_private_and_a_subdomain_may_not() -> None:
    reach = Reach(hosts=("db.example.com", "*.example.com", "localhost"))
    for private in ("10.0.0.1", "127.0.0.1", "fd00::1", "100.64.0.1", "::1"):
        assert allowed("db.example.com", reach, leads_to=private), private
        assert not allowed("x.example.com", reach, leads_to=private), private
    assert allowed("localhost", reach, leads_to="127.0.0.1")
    for never in (
        "169.254.169.254",
        "fd00:ec2::254",
        "168.63.129.16",
        "100.100.100.200",
        "fe80::1",
        "0.0.0.0",
    ):
        assert not allowed("db.example.com", reach, leads_to=never), never


def test_a_listed_address_may_be_of_any_kind() -> None:
    reach = Reach(hosts=("10.0.0.5:8080", "169.254.169.254", "[::1]:81", "fd00::2"))
    assert allowed("10.0.0.5", reach, port=8080) and not allowed("10.0.0.5", reach, port=80)
    assert allowed("169.254.169.254", reach) and not allowed("169.254.169.253", reach)
    assert allowed("[::1]", reach, port=81) and not allowed("[::1]", reach, port=80)
    assert allowed("[fd00:0::2]", reach) and not allowed("8.8.8.8", reach)


@pytest.mark.parametrize(
    "host", ["", "*", "*.", "a b", "a:0", "a:65536", "a:x", "*.10.0.0.1", "127.1", "http://a", "a/b"]
)
def test_a_list_with_an_invalid_entry_is_refused(host: str) -> None:
    with pytest.raises(UsageError, match="bad host"):
        check_reach(Reach(hosts=("example.com", host)))


def test_a_refusal_names_the_host_what_is_wrong_and_what_to_do() -> None:
    with pytest.raises(UsageError) as refused:
        check_address(ip_address("10.0.0.1"), Host("a.example.com"), 443, Reach())
    assert str(refused.value) == (
        'host "a.example.com" resolves to 10.0.0.1, not a public address (private);'
        " list the host in `hosts` to allow it"
    )
