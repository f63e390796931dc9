"""What the HTTP runner makes of answers, and of servers that give none."""

import socket
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runners.http_servers import DUE, OK, answering, attempt, serving, silent

from detent.model import Outcome, Request
from detent.runners.http.request import BODY_MAX, again_after_s, judge
from detent.runners.lifeline import TAIL_MAX

STATUSES = {
    200: Outcome("succeeded"),
    204: Outcome("succeeded"),
    299: Outcome("succeeded"),
    301: Outcome("failed", "HTTP 301: redirects are not followed"),
    304: Outcome("failed", "HTTP 304: redirects are not followed"),
    400: Outcome("rejected", "HTTP 400"),
    404: Outcome("rejected", "HTTP 404"),
    408: Outcome("rejected", "HTTP 408"),
    429: Outcome("rejected", "HTTP 429"),
    499: Outcome("rejected", "HTTP 499"),
    500: Outcome("failed", "HTTP 500"),
    503: Outcome("failed", "HTTP 503"),
    600: Outcome("failed", "HTTP 600"),
}


@pytest.mark.parametrize(("status", "outcome"), STATUSES.items())
def test_a_status_stands_for_an_outcome(status: int, outcome: Outcome) -> None:
    assert judge(status) == outcome


def test_the_end_has_status_body_and_the_wait_that_was_asked_for() -> None:
    with answering(b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 5\r\n\r\nlater") as served:
        end = attempt(served.url)
    assert end.outcome == Outcome("failed", "HTTP 503")
    assert (end.status, end.tail, end.again_after_s) == (503, b"later", 7.0)


def test_a_redirect_is_not_followed() -> None:
    with answering(OK) as other:
        location = f"HTTP/1.1 307 Go\r\nLocation: {other.url}\r\nContent-Length: 0\r\n\r\n".encode()
        with answering(location) as served:
            end = attempt(served.url)
    assert (end.outcome.kind, end.status, other.connections) == ("failed", 307, 0)


WAITS = {
    ("120", ""): 120.0,
    (" 0 ", ""): 0.0,
    ("Sun, 01 Mar 2026 02:01:00 GMT", ""): 60.0,
    ("Sun, 01 Mar 2026 02:01:00 GMT", "Sun, 01 Mar 2026 02:00:50 GMT"): 10.0,
    ("Sun, 01 Mar 2026 01:00:00 GMT", ""): 0.0,
    ("", ""): None,
    ("-5", ""): None,
    ("1.5", ""): None,
    ("9" * 30, ""): None,
    ("soon", ""): None,
    ("Sun, 99 Mar 2026 02:01:00 GMT", ""): None,
}


@pytest.mark.parametrize(("given_", "expected"), WAITS.items())
def test_retry_after_is_seconds_or_a_date(given_: tuple[str, str], expected: float | None) -> None:
    assert again_after_s(*given_, DUE) == expected


WHOLE = {
    "by length": OK,
    "in chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nfi\r\n2\r\nne\r\n0\r\n\r\n",
    "until the end": b"HTTP/1.0 200 OK\r\n\r\nfine",
    "after interim answers": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" + OK,
}


@pytest.mark.parametrize("answer", WHOLE.values(), ids=WHOLE.keys())
def test_an_answer_is_read_however_it_is_framed(answer: bytes) -> None:
    with answering(answer) as served:
        end = attempt(served.url)
    assert (end.outcome, end.status, end.tail) == (Outcome("succeeded"), 200, b"fine")


@pytest.mark.parametrize("answer", [OK, b"HTTP/1.1 204 Done\r\n\r\n", WHOLE["in chunks"]])
def test_the_runner_does_not_wait_for_a_server_to_close(answer: bytes) -> None:
    def script(peer: socket.socket, over: threading.Event) -> None:
        peer.sendall(answer)
        silent(peer, over)

    with serving(script) as served:
        assert attempt(served.url, timeout_s=10).outcome == Outcome("succeeded")


BROKEN_OFF = {
    "by length": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfine",
    "in chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfine\r\n",
}


@pytest.mark.parametrize("answer", BROKEN_OFF.values(), ids=BROKEN_OFF.keys())
def test_an_answer_that_breaks_off_is_a_failure_with_what_was_said(answer: bytes) -> None:
    with answering(answer) as served:
        end = attempt(served.url)
    assert end.outcome == Outcome("failed", f"the answer of {served.place} broke off")
    assert (end.status, end.tail) == (200, b"fine")


HEADS_CUT_SHORT = [b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Le"]


@pytest.mark.parametrize("answer", HEADS_CUT_SHORT)
def test_an_answer_that_breaks_off_in_its_headers_is_a_failure(answer: bytes) -> None:
    with answering(answer) as served:
        end = attempt(served.url)
    assert end.outcome == Outcome("failed", f"the answer of {served.place} broke off")


def test_the_answer_to_a_head_request_has_no_body() -> None:
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n") as served:
        end = attempt(Request(served.url, method="HEAD"))
    assert end.outcome == Outcome("succeeded")


def test_the_end_of_a_long_answer_is_kept() -> None:
    body = b"a" * 100_000 + b"b" * (TAIL_MAX - 1)
    with answering(b"HTTP/1.1 200 OK\r\n\r\n" + body) as served:
        assert attempt(served.url).tail == b"a" + b"b" * (TAIL_MAX - 1)


def test_an_answer_without_end_is_read_up_to_a_limit() -> None:
    def script(peer: socket.socket, over: threading.Event) -> None:
        served.hear(peer)
        peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while not over.is_set():
            peer.sendall(b"x" * 65536)

    with serving(script) as served:
        end = attempt(served.url)
    assert end.outcome == Outcome("succeeded")
    assert len(end.tail) == TAIL_MAX < BODY_MAX


def test_an_answer_counts_although_the_server_did_not_read_the_whole_request() -> None:
    def script(peer: socket.socket, over: threading.Event) -> None:
        peer.sendall(b"HTTP/1.1 413 Too Long\r\nContent-Length: 0\r\n\r\n")

    with serving(script) as served:
        end = attempt(Request(served.url, body="x" * 16_000_000))
    assert end.outcome == Outcome("rejected", "HTTP 413")


# What goes wrong.


def test_a_refused_connection_is_named() -> None:
    with socket.socket() as held:  # bound and not listening: no other process can take the port
        held.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{held.getsockname()[1]}"
        end = attempt(f"http://{place}/")
    assert end.outcome == Outcome("failed", f"connection refused by {place}")
    assert end.status is None


def test_a_name_without_an_address_is_named() -> None:
    end = attempt("http://nowhere.invalid:81/", timeout_s=60)
    assert end.outcome.kind == "failed"
    assert end.outcome.reason.startswith("no address found for nowhere.invalid:81: ")


def test_a_connection_that_is_closed_without_an_answer_is_named() -> None:
    with answering(b"") as served:
        end = attempt(served.url)
    assert end.outcome == Outcome("failed", f"{served.place} closed the connection without an answer")


def test_a_connection_that_is_reset_is_named() -> None:
    def script(peer: socket.socket, over: threading.Event) -> None:
        served.hear(peer)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    with serving(script) as served:
        end = attempt(served.url)
    assert end.outcome == Outcome(
        "failed", f"the connection to {served.place} broke: Connection reset by peer"
    )


GARBAGE = [b"SSH-2.0-OpenSSH\r\n", b"\0" * 100, b"HTTP/1.1 abc OK\r\n\r\n", b"HTTP/9.9 200 OK\r\n\r\n"]
GARBAGE += [b"HTTP/1.1 200 " + b"x" * 100_000, b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 500 + b"\r\n"]
GARBAGE += [b"HTTP/1.1 103 Hints\r\n\r\n" * 50]


@pytest.mark.parametrize("answer", GARBAGE)
def test_an_answer_that_is_not_http_is_named(answer: bytes) -> None:
    with answering(answer) as served:
        end = attempt(served.url)
    assert end.outcome.kind == "failed"
    assert end.outcome.reason.startswith(f"{served.place} did not answer in HTTP (")


PIECES = [
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 ",
    b"\r\n",
    b"Content-Length: ",
    b"Transfer-Encoding: chunked\r\n",
]
PIECES += [
    b"-5",
    b"5",
    b"ffffffffffffffffffff",
    b"Retry-After: ",
    b"Date: x\r\n",
    b"100",
    b"\xff\xfe",
    b":",
    b";",
]


@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=20), max_size=12).map(b"".join))
@settings(max_examples=50, deadline=None)
def test_no_answer_raises_anything(answer: bytes) -> None:
    with answering(answer) as served:
        assert attempt(served.url).outcome.kind in ("succeeded", "failed", "rejected")
