"""The limits of an HTTP attempt: the deadline, trust and stop requests; and which certificates TLS trusts."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.runners.http_servers import (
    HOUR_S,
    OK,
    Script,
    answering,
    answering_tls,
    attempt,
    make_certificate,
    serving,
    silent,
    tls_over,
    trickling,
    trusted,
)

from detent import clock
from detent.model import Outcome, Request
from detent.rules.outcomes import CLAIM_EXPIRED, NOT_SENT, replaced_by
from detent.runners.http.connection import POLL_S, Address, Interrupted, Watch, connect, reach
from detent.runners.lifeline import TAIL_MAX, Lifeline

# Limits: the deadline, trust, and stop requests.


def interim_without_end(peer: socket.socket, over: threading.Event) -> None:
    while not over.wait(0.05):
        peer.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")


STALLED: dict[str, tuple[Script, str]] = {
    "silent": (silent, "waiting for the answer"),
    "trickling a status": (trickling(b"HTTP/1.1 200 "), "waiting for the answer"),
    "trickling headers": (trickling(b"HTTP/1.1 200 OK\r\nA: "), "waiting for the answer"),
    "interim answers without end": (interim_without_end, "waiting for the answer"),
    "trickling a body": (trickling(b"HTTP/1.1 200 OK\r\n\r\n"), "reading the answer"),
    "trickling to a length": (
        trickling(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"),
        "reading the answer",
    ),
    "trickling a chunk": (
        trickling(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\n"),
        "reading the answer",
    ),
}


@pytest.mark.parametrize(("script", "doing"), STALLED.values(), ids=STALLED.keys())
def test_no_server_outlives_the_deadline(script: Script, doing: str) -> None:
    with serving(script) as served:
        end = attempt(served.url, timeout_s=0.6)
    assert end.outcome == Outcome("timed-out", f"after 0.6 s, while {doing}")
    assert end.took_s >= 0.6


def test_a_server_that_never_reads_does_not_outlive_the_deadline() -> None:
    with serving(silent) as served:
        end = attempt(Request(served.url, body="x" * 16_000_000), timeout_s=0.6)
    assert end.outcome == Outcome("timed-out", "after 0.6 s, while sending")


def test_a_server_that_never_shakes_hands_does_not_outlive_the_deadline() -> None:
    with serving(silent) as served:
        end = attempt(f"https://{served.place}/", timeout_s=0.6)
    assert end.outcome == Outcome("timed-out", "after 0.6 s, while connecting")


@contextlib.contextmanager
def unanswering() -> Iterator[socket.socket]:
    """A port that neither accepts nor refuses connections."""
    with socket.socket() as full, contextlib.ExitStack() as waiting:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):  # Linux leaves further ones unanswered once these fill the backlog
            sock = waiting.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex(full.getsockname())
        yield full


def test_a_connection_that_is_never_accepted_does_not_outlive_the_deadline() -> None:
    with unanswering() as full:
        end = attempt(f"http://127.0.0.1:{full.getsockname()[1]}/", timeout_s=0.6)
    assert end.outcome == Outcome("timed-out", "after 0.6 s, while connecting")


def test_the_body_that_arrived_before_the_deadline_is_kept() -> None:
    def script(peer: socket.socket, over: threading.Event) -> None:
        peer.sendall(b"HTTP/1.1 200 OK\r\n\r\nstep 1")
        silent(peer, over)

    with serving(script) as served:
        end = attempt(served.url, timeout_s=1)
    assert (end.outcome.kind, end.status, end.tail) == ("timed-out", 200, b"step 1")


def test_nothing_is_sent_once_trust_has_passed() -> None:
    with answering(OK) as served:
        end = attempt(served.url, trusted(0))
    assert end.outcome == NOT_SENT
    assert served.connections == 0


def test_trust_that_passes_in_a_handshake_ends_it_and_nothing_was_sent() -> None:
    with serving(silent) as served:
        end = attempt(f"https://{served.place}/", trusted(0.6))
    assert end.outcome == NOT_SENT


def test_trust_is_checked_again_between_connecting_and_the_first_byte() -> None:
    def script(peer: socket.socket, over: threading.Event) -> None:
        received.append(peer.recv(1))
        hung_up.set()

    received: list[bytes] = []
    hung_up = threading.Event()
    with serving(script) as served:
        watch = Watch(trusted(0.5), 20)
        with connect("127.0.0.1", served.port, watch) as sock, pytest.raises(Interrupted) as caught:
            while clock.boottime() < watch.lifeline.trusted_by:
                threading.Event().wait(0.05)
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert hung_up.wait(10)
    assert caught.value.outcome == CLAIM_EXPIRED
    assert received == [b""]


def test_work_ends_when_trust_passes() -> None:
    with serving(trickling(b"HTTP/1.1 200 OK\r\n\r\n")) as served:
        end = attempt(served.url, trusted(0.6))
    assert end.outcome == CLAIM_EXPIRED


def test_work_goes_on_when_trust_is_extended() -> None:
    first_trust_s = 1.0

    def script(peer: socket.socket, over: threading.Event) -> None:
        served.hear(peer)
        lifeline.extend(clock.boottime() + HOUR_S)
        over.wait(first_trust_s + 0.5)
        peer.sendall(OK)

    with serving(script) as served:
        lifeline = trusted(first_trust_s)
        assert attempt(served.url, lifeline).outcome == Outcome("succeeded")


@pytest.mark.parametrize("timeout_s", [0, 20])
def test_a_stopped_attempt_ends_with_the_outcome_of_the_stop(timeout_s: float) -> None:
    why = Outcome("cancelled", "by hand", "stopped")

    def script(peer: socket.socket, over: threading.Event) -> None:
        served.hear(peer)
        lifeline.stop(why)
        hung_up.append(peer.recv(1))

    hung_up: list[bytes] = []
    with serving(script) as served:
        lifeline = trusted()
        end = attempt(served.url, lifeline, timeout_s)
    assert end.outcome == why
    assert hung_up == [b""]


def test_a_stopped_attempt_sends_nothing_and_the_first_stop_counts() -> None:
    lifeline = trusted(0)
    lifeline.stop(replaced_by("a newer fire"))
    lifeline.stop(Outcome("cancelled"))
    with answering(OK) as served:
        assert attempt(served.url, lifeline).outcome == replaced_by("a newer fire")
    assert served.connections == 0


def test_trust_only_grows_and_does_not_come_back() -> None:
    lifeline = Lifeline(10.0)
    lifeline.extend(5.0)
    assert lifeline.ended(9.9) is None
    lifeline.extend(20.0)
    assert lifeline.ended(10.0) is None
    assert lifeline.ended(20.0) == CLAIM_EXPIRED
    lifeline.extend(30.0)
    assert lifeline.ended(21.0) == CLAIM_EXPIRED


def test_an_address_that_refuses_or_is_silent_leaves_time_for_the_next() -> None:
    def address(bound: socket.socket) -> Address:
        return (socket.AF_INET, socket.SOCK_STREAM, 0, "", bound.getsockname())

    with socket.socket() as refusing, unanswering() as quiet, answering(OK) as served:
        refusing.bind(("127.0.0.1", 0))
        addresses = [address(refusing), address(quiet), address(served.listener)]
        with reach(addresses, Watch(trusted(), 3)) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert sock.makefile("rb").read() == OK


# TLS.


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def test_a_certificate_without_a_trusted_root_is_refused(certificate: Path) -> None:
    with answering_tls(certificate, OK) as served:
        end = attempt(f"https://{served.place}/")
    reason = f"no TLS with {served.place}: its certificate is refused, self-signed certificate"
    assert end.outcome == Outcome("failed", reason)
    assert served.requests == []


@pytest.fixture
def trust_it(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))


@pytest.mark.usefixtures("trust_it")
def test_a_trusted_certificate_is_for_its_host_only(certificate: Path) -> None:
    with answering_tls(certificate, OK) as served:
        here = attempt(Request(f"https://{served.place}/", body="x" * 16_000_000))
        elsewhere = attempt(f"https://localhost:{served.port}/")
    assert (here.outcome, here.tail) == (Outcome("succeeded"), b"fine")
    assert "its certificate is refused" in elsewhere.outcome.reason
    assert "localhost" in elsewhere.outcome.reason


@pytest.mark.usefixtures("trust_it")
def test_a_long_answer_over_tls_arrives_whole(certificate: Path) -> None:
    body = b"x" * 500_000 + b"end"
    with answering_tls(
        certificate, f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    ) as served:
        end = attempt(f"https://{served.place}/")
    assert (end.outcome, end.tail) == (Outcome("succeeded"), body[-TAIL_MAX:])


@pytest.mark.usefixtures("trust_it")
def test_a_tls_server_may_pause_in_the_handshake_and_in_the_request(
    certificate: Path,
) -> None:
    def script(peer: socket.socket, over: threading.Event) -> None:
        over.wait(2 * POLL_S)
        with tls_over(peer, certificate) as wrapped:
            over.wait(2 * POLL_S)
            served.hear(wrapped)
            over.wait(2 * POLL_S)
            wrapped.sendall(OK)

    body = "".join(map(str, range(2_000_000)))
    with serving(script) as served:
        end = attempt(Request(f"https://{served.place}/", method="POST", body=body))
    assert (end.outcome, end.tail) == (Outcome("succeeded"), b"fine")
    assert served.requests[0].partition(b"\r\n\r\n")[2] == body.encode()


@pytest.mark.usefixtures("trust_it")
def test_no_tls_server_outlives_the_deadline_while_it_answers_byte_by_byte(certificate: Path) -> None:
    def script(peer: socket.socket, over: threading.Event) -> None:
        with tls_over(peer, certificate) as wrapped:
            trickling(b"HTTP/1.1 200 OK\r\n\r\n")(wrapped, over)

    with serving(script) as served:
        end = attempt(f"https://{served.place}/", timeout_s=2)
    assert (end.outcome, end.status) == (Outcome("timed-out", "after 2 s, while reading the answer"), 200)


def test_a_server_without_tls_is_named() -> None:
    def script(peer: socket.socket, over: threading.Event) -> None:
        peer.recv(1)
        peer.sendall(OK)

    with serving(script) as served:
        end = attempt(f"https://{served.place}/")
    assert end.outcome.kind == "failed"
    assert end.outcome.reason.startswith(f"no TLS with {served.place}: ")
