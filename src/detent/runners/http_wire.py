"""A connection that cannot outlive its attempt, over TCP or TLS.

- The socket never blocks; each wait is at most `POLL_S` long, so that a stop from another thread, the
  end of trust and the deadline are seen whatever the other side does: silent, trickling or full.
- Whether the attempt may go on is asked again right before each byte that leaves.
- Time is `clock.boottime`: a machine that wakes from sleep finds its deadline passed.
"""

from __future__ import annotations

import errno
import functools
import io
import os
import select
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from detent import clock
from detent.model import Outcome
from detent.runners.base import Lifeline

if TYPE_CHECKING:
    import ssl

POLL_S = 0.25

_Answer = TypeVar("_Answer")
Address = tuple[Any, ...]


class Interrupted(Exception):
    """The attempt is over before its work is done."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.kind)
        self.outcome = outcome


class TlsFailed(OSError):
    """The two sides did not come to trust each other."""


class Watch:
    """The limits of one attempt, and what it is doing."""

    def __init__(self, lifeline: Lifeline, timeout_s: float) -> None:
        self.lifeline = lifeline
        self.timeout_s = timeout_s
        self.deadline = clock.boottime() + timeout_s if timeout_s else float("inf")
        self.doing = "connecting"
        self.sent = False  # whether a byte of the request may have left

    def patience_s(self) -> float:
        """How long may be waited before asking again; `Interrupted` if the attempt is over."""
        now = clock.boottime()
        if why := self.lifeline.ended(now):
            raise Interrupted(why)
        if now >= self.deadline:
            raise Interrupted(Outcome("timed-out", f"after {self.timeout_s:g} s, while {self.doing}"))
        return max(0.0, min(POLL_S, self.deadline - now, self.lifeline.trusted_by - now))


class Wire(io.RawIOBase):
    """One connection; enough of a socket for the standard library's response parser."""

    def __init__(self, sock: socket.socket, watch: Watch) -> None:
        self._sock = sock
        self._watch = watch
        # TLS may need to read in order to write, and says so by these errors.
        self._turns: dict[type[OSError], int] = {}
        self.reader: io.BufferedReader[Any] = io.BufferedReader(self)

    def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        """Agree on keys, with the one whose certificate is for this host."""
        import ssl

        self._turns = {ssl.SSLWantReadError: select.POLLIN, ssl.SSLWantWriteError: select.POLLOUT}
        try:
            wrapped = context.wrap_socket(self._sock, server_hostname=host, do_handshake_on_connect=False)
            self._sock = wrapped
            self._when_ready(wrapped.do_handshake, select.POLLIN)
        except ssl.SSLCertVerificationError as error:
            raise TlsFailed(f"its certificate is refused, {error.verify_message}") from error
        except ssl.SSLError as error:
            reason = (error.reason or "the connection ended").lower().replace("_", " ")
            raise TlsFailed(reason) from error

    def send_all(self, content: bytes) -> None:
        """Send all of it, or be interrupted."""
        rest = memoryview(content)
        while rest:
            sent = self._when_ready(functools.partial(self._sock.send, rest), select.POLLOUT)
            self._watch.sent = True
            rest = rest[sent:]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._when_ready(lambda: self._sock.recv_into(buffer), select.POLLIN)

    def makefile(self, mode: str) -> io.BufferedReader[Any]:
        """The one reader, also for the second response after an interim one: it may hold its bytes."""
        return self.reader

    def peer(self) -> str:
        """The address at the other end."""
        address: str = self._sock.getpeername()[0]
        return address

    def close(self) -> None:
        self._sock.close()
        super().close()

    def _when_ready(self, step: Callable[[], _Answer], event: int) -> _Answer:
        while True:
            patience_s = self._watch.patience_s()
            try:
                return step()
            except BlockingIOError:
                wait(self._sock, event, patience_s)
            except OSError as error:
                turn = self._turns.get(type(error))
                if turn is None:
                    raise
                wait(self._sock, turn, patience_s)


def wait(sock: socket.socket, event: int, seconds: float) -> bool:
    """Wait for the socket to become ready, at most so long.  Errors count as ready."""
    poll = select.poll()
    poll.register(sock, event)
    return bool(poll.poll(max(1, seconds * 1000)))


def connect(host: str, port: int, watch: Watch) -> Wire:
    """Connect to this host."""
    watch.patience_s()  # an attempt that is over does not even connect
    return reach(look_up(host, port, watch), watch)


def reach(addresses: list[Address], watch: Watch) -> Wire:
    """Connect to the first of a host's addresses that answers."""
    for left in range(len(addresses), 1, -1):
        # One dead address must not use up the time of those behind it.
        now = clock.boottime()
        try:
            return _dial(addresses[-left], watch, now + (watch.deadline - now) / left)
        except OSError:
            continue
    return _dial(addresses[-1], watch, float("inf"))


def _dial(address: Address, watch: Watch, give_up_by: float) -> Wire:
    family, kind, protocol, _, peer = address
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        problem = sock.connect_ex(peer)
        if problem in (0, errno.EINPROGRESS):
            problem = _connected(sock, watch, give_up_by)
        if problem:
            raise OSError(problem, os.strerror(problem))
    except BaseException:
        sock.close()
        raise
    return Wire(sock, watch)


def _connected(sock: socket.socket, watch: Watch, give_up_by: float) -> int:
    """Wait until the connection stands, and give the error's number, 0 if it does."""
    while not wait(sock, select.POLLOUT, watch.patience_s()):
        if clock.boottime() >= give_up_by:
            return errno.ETIMEDOUT
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def look_up(host: str, port: int, watch: Watch) -> list[Address]:
    """All addresses of a host."""
    # As bytes: given a text, getaddrinfo loads the tables of international names, for plain names too.
    name = host.encode("ascii")
    try:
        return list(socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
    except socket.gaierror:
        return _ask_resolver(name, port, watch)


def _ask_resolver(name: bytes, port: int, watch: Watch) -> list[Address]:
    """The resolver cannot be interrupted: it is asked in a thread that may be left behind."""
    found: list[Address] = []
    problems: list[OSError] = []

    def ask() -> None:
        try:
            found.extend(socket.getaddrinfo(name, port, type=socket.SOCK_STREAM))
        except OSError as error:
            problems.append(error)

    thread = threading.Thread(target=ask, name="detent-resolve", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(watch.patience_s())
    if problems:
        raise problems[0]
    return found
