"""What the HTTP runner sends: the request, the headers of a fire, the signature."""

import socket
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runners.http_servers import CLAIM, DUE, FIRE, OK, answering, attempt, fields, trusted

from detent import clock
from detent.errors import UsageError
from detent.manifest.secret_refs import Secret
from detent.messages.signing import SignedRequest, verify
from detent.model import Claim, Outcome, Request
from detent.receive.fire import identity_of
from detent.rules.outcomes import no_secret
from detent.runners.http.request import fire_headers, job_name, parse_url, send

# What is sent.


def test_a_request_is_sent_as_given_with_a_valid_signature() -> None:
    with answering(OK) as served:
        request = Request(
            f"{served.url}/%7Ea//b?x=1&y=%20&z#part",
            method="PUT",
            headers=(("Content-Type", "text/plain"),),
            body="grün",
            secret_refs=("a", "b"),
        )
        secrets = [Secret("first"), Secret("second")]
        end = send(request, CLAIM, secrets=secrets, timeout_s=20, lifeline=trusted())
    assert end.outcome == Outcome("succeeded")
    head, _, body = served.requests[0].partition(b"\r\n\r\n")
    assert head.split(b"\r\n")[0] == b"PUT /tick/%7Ea//b?x=1&y=%20&z HTTP/1.1"
    assert body == "grün".encode()
    sent = dict(fields(head))
    assert sent["host"] == served.place
    assert sent["content-type"] == "text/plain"
    assert sent["idempotency-key"] == FIRE.key
    assert sent["x-cron-schedule-name"] == "tick"
    message = SignedRequest("PUT", "/tick/%7Ea//b?x=1&y=%20&z", body, identity_of(sent))
    assert verify(sent["x-cron-signature"], message, [Secret("other"), secrets[0]], clock.now()) == 1


def test_without_references_nothing_is_signed() -> None:
    with answering(OK) as served:
        attempt(served.url)
    assert "x-cron-signature" not in dict(fields(served.requests[0]))


def test_without_a_secret_nothing_is_sent_and_the_reason_names_no_literal() -> None:
    with answering(OK) as served:
        end = attempt(Request(served.url, secret_refs=("env:KEY", "raw:hidden")))
    assert end.outcome == no_secret("env:KEY, raw:…")
    assert served.connections == 0


def test_user_name_and_password_of_a_url_become_a_header_and_are_seen_nowhere_else() -> None:
    with answering(b"HTTP/1.1 500 Oops\r\n\r\n") as served:
        end = attempt(f"http://al%40ice:pa%3Ass@{served.place}/")
    sent = dict(fields(served.requests[0]))
    assert sent["authorization"] == "Basic YWxAaWNlOnBhOnNz"
    assert sent["host"] == served.place
    assert "pa" not in end.outcome.reason


def test_a_get_without_a_body_has_no_length_and_a_post_has() -> None:
    with answering(OK) as served:
        attempt(Request(served.url, method="GET"))
        attempt(Request(served.url, method="POST"))
    got, posted = (dict(fields(head)) for head in served.requests)
    assert "content-length" not in got
    assert posted["content-length"] == "0"


def test_an_environment_proxy_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(OK) as served, answering(OK) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("ALL_PROXY", proxy.url)
        attempt(served.url)
    assert (len(served.requests), proxy.connections) == (1, 0)


def test_a_name_is_resolved_and_its_addresses_are_tried_in_turn() -> None:
    with answering(OK) as served:
        end = attempt(f"http://localhost:{served.port}/")
    assert end.outcome == Outcome("succeeded")
    assert dict(fields(served.requests[0]))["host"] == f"localhost:{served.port}"


def test_an_ipv6_address_is_reached_and_named_in_brackets() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    with answering(OK, "::1") as served:
        end = attempt(f"http://[::1]:{served.port}/")
    assert end.outcome == Outcome("succeeded")
    assert dict(fields(served.requests[0]))["host"] == f"[::1]:{served.port}"


URLS = {
    "http://h": ("h", 80, "/", "h"),
    "http://h?": ("h", 80, "/?", "h"),
    "HTTPS://h/": ("h", 443, "/", "h"),
    "https://h:80/a": ("h", 80, "/a", "h:80"),
    "http://h:/a": ("h", 80, "/a", "h"),
    "http://h//a/../b;c?d=//@:#e?f": ("h", 80, "//a/../b;c?d=//@:", "h"),
    "http://h/a b\tü": ("h", 80, "/a%20b%09%C3%BC", "h"),
    "http://[::1]:8080/": ("::1", 8080, "/", "[::1]:8080"),
    "http://h.example./": ("h.example.", 80, "/", "h.example."),
    "http://u:p@w@h:1/": ("h", 1, "/", "h:1"),
    "http://bücher.example/": ("xn--bcher-kva.example", 80, "/", "xn--bcher-kva.example"),
}


@pytest.mark.parametrize(("url", "expected"), URLS.items())
def test_a_url_is_taken_apart(url: str, expected: tuple[str, int, str, str]) -> None:
    endpoint = parse_url(url)
    assert (endpoint.host, endpoint.port, endpoint.target, endpoint.authority) == expected


BAD_URLS = [
    "",
    "h",
    "ftp://h/",
    "http://",
    "http:///a",
    "http://u:hidden@/",
    "http://h:0/",
    "http://h:65536/",
]
BAD_URLS += ["http://h:a/", "http://h\\u:hidden@x/", "http://h\r\n/", "http://[::1/", "http://a:b:c/"]
BAD_URLS += ["http://" + "ü" * 70 + "/", "http://u:hidden@h:99999/"]
BAD_URLS += ["https://.example/", "https://a..example/", "http://" + "a" * 64 + ".example/"]


@pytest.mark.parametrize("url", BAD_URLS)
def test_a_bad_url_is_refused_without_showing_its_password(url: str) -> None:
    with pytest.raises(UsageError, match=r"^bad url ") as caught:
        parse_url(url)
    assert "hidden" not in str(caught.value)
    assert attempt(url).outcome == Outcome("failed", str(caught.value))


# The headers of a fire.


def test_the_headers_of_a_fire_are_those_of_the_contract() -> None:
    started_at = datetime(2026, 3, 1, 2, 0, 7, 900_000, tzinfo=UTC)
    claim = CLAIM._replace(previous_success_at=datetime(2026, 3, 1, 1, 0, tzinfo=UTC))
    assert fire_headers(
        Request("http://h", headers=(("A", "b"),)), claim, "tick", started_at, "t=1,v1=x"
    ) == [
        ("X-Cron-Signature", "t=1,v1=x"),
        ("X-Cron-Run-Id", "0195-id"),
        ("X-Cron-Schedule-Name", "tick"),
        ("X-Cron-Fire-Time", "1772330400"),
        ("X-Cron-Fire-Time-Actual", "1772330407"),
        ("X-Cron-Attempt", "2"),
        ("X-Cron-Previous-Success-Time", "1772326800"),
        ("X-Cron-Fence", "42"),
        ("Idempotency-Key", FIRE.key),
        ("A", "b"),
    ]


def headers_with(*given: tuple[str, str], claim: Claim = CLAIM) -> list[tuple[str, str]]:
    return fire_headers(Request("http://h", headers=given), claim, "tick", DUE, "")


def test_headers_without_a_value_are_left_out() -> None:
    names = [name for name, _ in headers_with()]
    assert "X-Cron-Previous-Success-Time" not in names
    assert "X-Cron-Signature" not in names


OURS = ["X-Cron-Fence", "x-cron-run-id", "X-CRON-SIGNATURE", "x-cron-Previous-Success-Time", "X_Cron_Run_Id"]
OURS += [
    "X-Cron-Else",
    "idempotency-key",
    "Idempotency_Key",
    "Content-Length",
    "transfer-encoding",
    "Connection",
]


@pytest.mark.parametrize("name", OURS)
def test_the_manifest_never_overrides_a_header_of_ours(name: str) -> None:
    assert headers_with((name, "forged")) == headers_with()


@given(st.text(), st.text())
def test_a_header_value_cannot_add_a_second_line(value: str, key: str) -> None:
    claim = CLAIM._replace(fire=FIRE._replace(key=key, run_id=value))
    for _, kept in headers_with(("A", value), claim=claim):
        assert not set(kept) & {"\r", "\n", "\0"}


@pytest.mark.parametrize("name", ["", "a b", "a:", "a\r\nb", "ü"])
def test_a_bad_header_name_is_refused_before_anything_is_sent(name: str) -> None:
    with answering(OK) as served:
        end = attempt(Request(served.url, headers=((name, "x"),)))
    assert end.outcome.kind == "failed"
    assert end.outcome.reason.startswith("bad header name ")
    assert served.requests == []


def test_host_and_user_agent_of_the_manifest_replace_the_usual_ones() -> None:
    with answering(OK) as served:
        attempt(Request(served.url, headers=(("HOST", "other"), ("user-agent", "mine"))))
    sent = fields(served.requests[0])
    assert [value for name, value in sent if name in ("host", "user-agent")] == ["other", "mine"]


@pytest.mark.parametrize(("full", "name"), [("shop.tick", "tick"), ("shop.tick/web-1.example", "tick")])
def test_the_name_of_a_job_has_no_app_and_no_host(full: str, name: str) -> None:
    assert job_name(full) == name
