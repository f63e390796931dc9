"""Sends one request with `http.client`, over a connection that cannot outlive its attempt.

- Every wait on the socket lasts at most `POLL_S`, and the attempt is checked before the next one. A stop, the
  end of trust and the deadline end it whatever the server does: no answer, one byte a second, full buffers.
- The attempt is checked again before each write.
- Time is `clock.boottime`: after a machine wakes from sleep, the deadline has passed.
- `http.client` gets a connected socket and never connects by itself: the caller chooses the address.
"""

import contextlib
import errno
import functools
import http.client
import os
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar, cast

from detent import clock
from detent.model import Outcome
from detent.rules.outcomes import timed_out
from detent.runners.lifeline import Lifeline

POLL_S = 0.25
INTERIM_MAX = 10  # responses with a status of 100 to 199 before the final one
READ_MAX = 65_536  # bytes of a body in one piece

_Result = TypeVar("_Result")
Address = tuple[Any, ...]


class Interrupted(Exception):
    """The attempt ended before the response was complete."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.kind)
        self.outcome = outcome


class TlsFailed(OSError):
    """The TLS handshake failed, or the certificate was refused."""


class Watch:
    """The limits of one attempt, and what the attempt is doing."""

    def __init__(self, lifeline: Lifeline, timeout_s: float) -> None:
        self.lifeline = lifeline
        self.timeout_s = timeout_s
        self.deadline = clock.boottime() + timeout_s if timeout_s else float("inf")
        self.doing = "connecting"
        self.sent = False  # whether a byte of the request may have left

    def patience_s(self) -> float:
        """Return how long the next wait may take; raise `Interrupted` if the attempt is over."""
        now = clock.boottime()
        if why := self.lifeline.ended(now):
            raise Interrupted(why)
        if now >= self.deadline:
            raise Interrupted(timed_out(self.timeout_s, self.doing))
        return max(0.001, min(POLL_S, self.deadline - now, self.lifeline.trusted_by - now))


class WatchedSocket(socket.socket):
    """A socket whose reads and writes end when the attempt ends."""

    watch: Watch
    is_at_end = False  # the server has closed its side

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        count = self.patiently(functools.partial(super().recv_into, buffer, nbytes or 0, flags))
        self.is_at_end = not count
        return count

    def sendall(self, data: Any, flags: int = 0) -> None:
        rest = memoryview(data)
        while rest:
            self.watch.patience_s()
            self.watch.sent = True
            rest = rest[self.patiently(functools.partial(super().send, rest, flags)) :]

    def patiently(self, step: Callable[[], _Result]) -> _Result:
        """Repeat a step that times out until it succeeds or the attempt is over."""
        while True:
            self.settimeout(self.watch.patience_s())
            try:
                return step()
            except TimeoutError as error:
                if error.errno is not None:  # from the kernel: the connection is dead
                    raise


class _WatchedTlsSocket(WatchedSocket, ssl.SSLSocket):
    """The same over TLS: OpenSSL continues an interrupted step when it is called again."""


class HttpRequest(NamedTuple):
    method: str
    target: str  # path and query
    headers: list[tuple[str, str]]
    body: bytes = b""


class _Response(http.client.HTTPResponse):
    """Skips every interim response; `http.client` itself skips only 100."""

    def begin(self) -> None:
        for _ in range(INTERIM_MAX):
            super().begin()
            if self.status >= 200:
                return
            self.headers = None  # type: ignore[assignment]  # lets `begin` read the next response
        raise http.client.HTTPException(f"more than {INTERIM_MAX} interim responses")


class _Connection(http.client.HTTPConnection):
    response_class = _Response
    auto_open = 0  # never connects by itself: the address would be unchecked


def get_response(sock: WatchedSocket, request: HttpRequest) -> http.client.HTTPResponse:
    """Send the request and return the response with its body unread; the caller closes the response."""
    connection = _Connection("")  # it needs a host only to connect
    connection.sock = sock
    sock.watch.doing = "sending"
    connection.putrequest(request.method, request.target, skip_host=True, skip_accept_encoding=True)
    for name, value in request.headers:
        connection.putheader(name, value.encode("utf-8", "surrogatepass"))
    # A server may answer and close before it has read the whole request: its answer still counts.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.endheaders(request.body)
    sock.watch.doing = "waiting for the answer"
    response = connection.getresponse()
    if sock.is_at_end:  # `http.client` takes the end of the connection for the end of the headers
        response.close()
        raise http.client.IncompleteRead(b"")
    sock.watch.doing = "reading the answer"
    return response


def read_body(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield the body as it arrives; raise `IncompleteRead` if the connection ends early."""
    left = response.length  # None: the body is chunked, or ends with the connection
    while left is None or left > 0:
        piece = response.read1(READ_MAX if left is None else min(left, READ_MAX))
        if not piece:
            break
        left = None if left is None else left - len(piece)
        yield piece
    if left:
        raise http.client.IncompleteRead(b"", left)


# Connecting.


def connect(host: str, port: int, watch: Watch) -> WatchedSocket:
    watch.patience_s()  # an attempt that is over does not even connect
    return reach(look_up(host, port, watch), watch)


def reach(addresses: list[Address], watch: Watch) -> WatchedSocket:
    """Connect to the first of a host's addresses that answers."""
    for left in range(len(addresses), 1, -1):
        # One dead address must not use up the time of those behind it.
        now = clock.boottime()
        try:
            return _dial(addresses[-left], watch, now + (watch.deadline - now) / left)
        except OSError:
            continue
    return _dial(addresses[-1], watch, float("inf"))


def _dial(address: Address, watch: Watch, give_up_by: float) -> WatchedSocket:
    family, kind, protocol, _, peer = address
    sock = WatchedSocket(family, kind, protocol)
    sock.watch = watch
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        problem = sock.connect_ex(peer)
        if problem == errno.EINPROGRESS:
            problem = _wait_for_connection(sock, give_up_by)
        if problem:
            raise OSError(problem, os.strerror(problem))
    except BaseException:
        sock.close()
        raise
    return sock


def _wait_for_connection(sock: WatchedSocket, give_up_by: float) -> int:
    """Wait until the socket is connected; return an error number, 0 on success."""
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    while not poll.poll(sock.watch.patience_s() * 1000):
        if clock.boottime() >= give_up_by:
            return errno.ETIMEDOUT
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def start_tls(sock: WatchedSocket, host: str) -> WatchedSocket:
    """Return the socket with TLS on it; the certificate must be valid for the host."""
    name = host.encode("ascii")  # as in `look_up`
    wrapped = trusted_roots().wrap_socket(sock, server_hostname=name, do_handshake_on_connect=False)
    secure = cast(_WatchedTlsSocket, wrapped)
    secure.watch = sock.watch
    with contextlib.ExitStack() as undo:
        undo.callback(secure.close)
        try:
            secure.patiently(secure.do_handshake)
        except ssl.SSLCertVerificationError as error:
            raise TlsFailed(f"its certificate is refused, {error.verify_message}") from error
        except ssl.SSLError as error:
            reason = (error.reason or "the connection ended").lower().replace("_", " ")
            raise TlsFailed(reason) from error
        undo.pop_all()
    return secure


def trusted_roots() -> ssl.SSLContext:
    """Return a context that trusts the roots of this system."""
    paths = ssl.get_default_verify_paths()
    bundle = paths.cafile or paths.openssl_cafile
    try:
        changed_ns = os.stat(bundle).st_mtime_ns  # noqa: PTH116 -- pathlib takes longer to import
    except OSError:
        changed_ns = 0
    return _context(bundle, changed_ns)


@functools.lru_cache(maxsize=1)
def _context(bundle: str, changed_ns: int) -> ssl.SSLContext:
    """Loading the roots takes longer than a request, so they are kept until the bundle changes."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    context.sslsocket_class = _WatchedTlsSocket
    return context


def look_up(host: str, port: int, watch: Watch) -> list[Address]:
    # As bytes: for a str, getaddrinfo loads the tables of international names.
    name = host.encode("ascii")
    try:
        return list(socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
    except socket.gaierror:
        return _ask_resolver(name, port, watch)


def _ask_resolver(name: bytes, port: int, watch: Watch) -> list[Address]:
    """Resolve in a thread, which may be left behind: a resolver cannot be interrupted."""
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
