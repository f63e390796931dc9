"""Connects the trigger to a Redis server without redis-py, which takes longer to import than a fire takes.

Supports `redis://` without options; `link` supports TLS, Sentinels and clusters.  The rules are the same: no
retries, one connection for each calling thread, no password in a message.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.errors import DetentError, StoreMismatch, StoreUnavailable
from detent.stores.redis.resp import Refused, Wire

if TYPE_CHECKING:
    from detent.stores.redis.script import Script

TIMEOUT_S, CONNECT_S = 5.0, 3.0  # for one reply, and for a connection
ACKNOWLEDGE_MS = 2000  # for `wait_replicas`, which is part of a reply
PORT = 6379
_URL = re.compile(
    r"redis://(?:(?P<user>[^:/@%]*)(?::(?P<password>[^/@%]*))?@)?"
    r"(?P<host>[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?(?:/(?P<db>[0-9]{0,4}))?"
)


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


class Connection:
    """One connection.  After an error it cannot be used again."""

    def __init__(self, address: Address) -> None:
        self._socket = socket.create_connection((address.host, address.port), CONNECT_S)
        self._socket.settimeout(TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._wire = Wire(self._socket)
        if address.password:
            self.call("AUTH", *([address.user] if address.user else []), address.password)
        if address.db:
            self.call("SELECT", address.db)

    def call(self, *command: Any) -> Any:
        """The reply.  Raises `Refused` for an error."""
        return self.call_all(command)[0]

    def call_all(self, *commands: Sequence[Any]) -> list[Any]:
        return self._wire.call_all(commands)

    def close(self) -> None:
        self._socket.close()


class LeanLink:
    """The methods of `link.Link` that a store needs, for one server."""

    def __init__(self, address: Address, wait_replicas: int) -> None:
        self._address, self._wait_replicas = address, wait_replicas
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()

    @property
    def where(self) -> str:
        """How messages name the server."""
        return f"the Redis at {self._address.host}:{self._address.port}"

    def run(self, script: Script, key: str, arguments: Sequence[bytes | str], is_write: bool) -> list[bytes]:
        """Run the script once.  Sends its text, because that is faster than computing its hash."""
        commands: list[tuple[Any, ...]] = [("EVAL", script.whole, 1, key, *arguments)]
        if is_write and self._wait_replicas:
            commands.append(("WAIT", self._wait_replicas, ACKNOWLEDGE_MS))
        answer, *replicas = self._call_all(*commands)
        if replicas and replicas[0] < self._wait_replicas:
            have = f"{replicas[0]} of {self._wait_replicas} replicas have it"
            raise StoreUnavailable(f"{self.where}: {have} (`wait_replicas`); whether it stands is unknown")
        texts: list[bytes] = answer
        return texts

    def call(self, key: str, *command: Any) -> Any:
        return self._call_all(command)[0]

    def refused(self, why: str) -> DetentError:
        return StoreMismatch(f"{self.where} {why}")

    def close(self) -> None:
        """Close all connections, also those that a thread waits on."""
        with self._lock:
            open_ones, self._idle, self._busy = [*self._idle, *self._busy], [], set()
        for connection in open_ones:
            connection.close()

    def _call_all(self, *commands: Sequence[Any]) -> list[Any]:
        try:
            connection = self._take()
            answers = connection.call_all(*commands)
        except Refused as refused:
            raise self._explain(str(refused)) from None
        except (OSError, ValueError) as error:
            raise StoreUnavailable(f"{self.where} does not answer: {error}") from error
        with self._lock:
            self._busy.discard(connection)
            self._idle.append(connection)
        return answers

    def _take(self) -> Connection:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        connection = connection or Connection(self._address)
        with self._lock:
            self._busy.add(connection)
        return connection

    def _explain(self, said: str) -> DetentError:
        from detent.stores.redis.link import AWAY, OTHER_VERSION, READ_ONLY

        if said.startswith(("WRONGPASS", "NOAUTH", "ERR AUTH", "ERR invalid password")):
            return StoreMismatch(f"{self.where} refuses the user or the password: put it right in its URL")
        if said.startswith("READONLY"):
            return self.refused(READ_ONLY)
        if said.startswith("OOM"):
            return StoreUnavailable(f"{self.where} is full: raise its maxmemory, or `detent prune`")
        if said.startswith(AWAY):
            return StoreUnavailable(f"{self.where} does not answer: {said}")
        if "DETENT-SCHEMA" in said:
            return StoreMismatch(f"{self.where} {OTHER_VERSION}")
        return StoreMismatch(f"{self.where} refuses: {said}")
