"""A small client for the trigger, because redis-py takes longer to import than a fire takes.

Supports one server, as `redis://` without options; `servers` supports TLS, Sentinels and clusters.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from detent.errors import DetentError, StoreMismatch, StoreUnavailable
from detent.stores.redis.health import explain
from detent.stores.redis.link import CONNECT_S, PORT, TIMEOUT_S, NoScript

try:
    import hiredis
except ModuleNotFoundError:  # redis-py works without it
    hiredis = None  # type: ignore[assignment]

RECEIVE = 1 << 16
_URL = re.compile(
    r"redis://(?:(?P<user>[^:/@%]*)(?::(?P<password>[^/@%]*))?@)?"
    r"(?P<host>[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?(?:/(?P<db>[0-9]{0,4}))?"
)


def lean_server(url: str) -> LeanServer | None:
    """None: it needs redis-py."""
    found = _URL.fullmatch(url)
    return LeanServer(found.groupdict("")) if found and hiredis else None


class LeanServer:
    def __init__(self, address: Mapping[str, str]) -> None:
        self._address, self._host = address, (address["host"], int(address["port"] or PORT))
        self.where = "the Redis at {}:{}".format(*self._host)
        self._wires: dict[int, Wire] = {}  # by thread

    def send(self, key: str, *commands: Sequence[Any]) -> list[Any]:
        thread = threading.get_ident()
        try:
            if thread not in self._wires:
                self._wires[thread] = self._connect()
            return self._wires[thread].call_all(commands)
        except Refused as refused:
            raise NoScript if "NOSCRIPT" in str(refused) else explain(self.where, str(refused)) from None
        except (OSError, ValueError) as error:
            self._wires.pop(thread, None)  # a connection that failed is not used again
            raise StoreUnavailable(f"{self.where} does not answer: {error}") from error

    def refused(self, why: str) -> DetentError:
        return StoreMismatch(f"{self.where} {why}")

    def close(self) -> None:
        wires, self._wires = self._wires, {}
        for wire in wires.values():
            wire.close()

    def _connect(self) -> Wire:
        host, port = self._host
        # As bytes: for a str, getaddrinfo loads the tables of international names.
        connected = socket.create_connection((host.encode(), port), CONNECT_S)  # type: ignore[arg-type]
        connected.settimeout(TIMEOUT_S)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire, (user, password, _, _, db) = Wire(connected), self._address.values()
        if password:
            wire.call_all([("AUTH", user, password) if user else ("AUTH", password)])
        if db:
            wire.call_all([("SELECT", db)])
        return wire


class Refused(Exception):
    """The server answered with an error."""


class Wire:
    """A connection, and the protocol."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._reader = hiredis.Reader(protocolError=ConnectionError, replyError=Refused)

    def call_all(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The replies.  If one is an error, raises it after all were read."""
        self._socket.sendall(b"".join([hiredis.pack_command((*command,)) for command in commands]))
        replies = [self._reply() for _ in commands]
        if refused := [reply for reply in replies if isinstance(reply, Refused)]:
            raise refused[0]
        return replies

    def close(self) -> None:
        with suppress(OSError):  # the server closed it
            self._socket.shutdown(socket.SHUT_RDWR)  # ends a read of another thread
        self._socket.close()

    def _reply(self) -> Any:
        while (reply := self._reader.gets()) is False:
            data = self._socket.recv(RECEIVE)
            if not data:
                raise ConnectionError("it closed the connection")
            self._reader.feed(data)
        return reply
