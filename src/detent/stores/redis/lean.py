"""A small RESP 2 client for the trigger, because redis-py takes longer to import than a fire takes.

Supports one server, as `redis://` without options; `servers` supports TLS, Sentinels and clusters.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from detent.errors import DetentError, StoreMismatch, StoreUnavailable
from detent.stores.redis.health import explain
from detent.stores.redis.link import NoScript

TIMEOUT_S, CONNECT_S = 5.0, 3.0  # for one reply, and for a connection
PORT = 6379
_URL = re.compile(
    r"redis://(?:(?P<user>[^:/@%]*)(?::(?P<password>[^/@%]*))?@)?"
    r"(?P<host>[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?(?:/(?P<db>[0-9]{0,4}))?"
)
_TEXT, _NUMBER, _LIST, _WORD, _ERROR = b"$:*+-"


class Address(NamedTuple):
    host: str
    port: int
    db: int
    user: str
    password: str


def parse(url: str) -> Address | None:
    """None: this module does not support the URL."""
    found = _URL.fullmatch(url)
    if found is None:
        return None
    user, password = found["user"] or "", found["password"] or ""
    return Address(found["host"], int(found["port"] or PORT), int(found["db"] or 0), user, password)


class LeanServer:
    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._idle: list[Wire] = []  # a connection that failed is not used again
        self._busy: set[Wire] = set()

    @property
    def where(self) -> str:
        return f"the Redis at {self._address.host}:{self._address.port}"

    def send(self, key: str, *commands: Sequence[Any]) -> list[Any]:
        try:
            wire = self._take()
            replies = wire.call_all(commands)
        except Refused as refused:
            if str(refused).startswith("NOSCRIPT"):
                self._give_back(wire)
                raise NoScript from None
            raise explain(self.where, str(refused)) from None
        except (OSError, ValueError) as error:
            raise StoreUnavailable(f"{self.where} does not answer: {error}") from error
        self._give_back(wire)
        return replies

    def refused(self, why: str) -> DetentError:
        return StoreMismatch(f"{self.where} {why}")

    def close(self) -> None:
        with self._lock:
            open_ones, self._idle, self._busy = [*self._idle, *self._busy], [], set()
        for wire in open_ones:
            wire.close()

    def _take(self) -> Wire:
        with self._lock:
            wire = self._idle.pop() if self._idle else None
        wire = wire or _connect(self._address)
        with self._lock:
            self._busy.add(wire)
        return wire

    def _give_back(self, wire: Wire) -> None:
        with self._lock:
            self._busy.discard(wire)
            self._idle.append(wire)


def _connect(address: Address) -> Wire:
    connected = socket.create_connection((address.host, address.port), CONNECT_S)
    connected.settimeout(TIMEOUT_S)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    wire = Wire(connected)
    if address.password:
        wire.call_all([("AUTH", *([address.user] if address.user else []), address.password)])
    if address.db:
        wire.call_all([("SELECT", address.db)])
    return wire


# The protocol.


class Refused(Exception):
    """The server answered with an error."""


class Wire:
    """A connection."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket, self._file = connected, connected.makefile("rb")

    def call_all(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The replies.  If one is an error, raises it after all were read."""
        self._socket.sendall(b"".join(map(_encoded, commands)))
        replies = [self._reply() for _ in commands]
        for reply in replies:
            if isinstance(reply, Refused):
                raise reply
        return replies

    def close(self) -> None:
        with suppress(OSError):  # the server closed it
            self._socket.shutdown(socket.SHUT_RDWR)  # ends a read of another thread
        self._socket.close()

    def _reply(self) -> Any:
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("it closed the connection")
        kind, rest = line[0], line[1:-2]
        if kind == _TEXT:
            return self._exactly(int(rest)) if rest != b"-1" else None
        if kind == _NUMBER:
            return int(rest)
        if kind == _LIST:
            return [self._reply() for _ in range(int(rest))] if rest != b"-1" else None
        if kind == _WORD:
            return rest
        if kind == _ERROR:
            return Refused(rest.decode("utf-8", "replace"))
        raise ConnectionError("it does not speak RESP")

    def _exactly(self, size: int) -> bytes:
        data = self._file.read(size + 2)
        if len(data) < size + 2:
            raise ConnectionError("it closed the connection")
        return data[:-2]


def _encoded(command: Sequence[Any]) -> bytes:
    words = [b"*%d\r\n" % len(command)]
    for word in command:
        text = word if isinstance(word, bytes) else str(word).encode()
        words.append(b"$%d\r\n%b\r\n" % (len(text), text))
    return b"".join(words)
