"""Runs scripts and commands on Redis servers.  `servers` reaches them with redis-py, `lean` without it.

A link never retries: the caller decides, because a failed call may have taken effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha1
from typing import Any, Protocol

from detent.errors import DetentError, StoreUnavailable

PORT = 6379
TIMEOUT_S, CONNECT_S = 5.0, 3.0  # for one reply; a server may pause for more than 2 s
SCRIPTS = ("look", "commit", "take", "find")
# Before Redis 7, a script must ask for the replication of its effects instead of its text.
_START = "if redis.replicate_commands then redis.replicate_commands() end\n"
ACKNOWLEDGE_MS = 2000  # for `wait_replicas`, which is part of a reply


class Script:
    def __init__(self, text: str) -> None:
        self.text = _START + text
        self.sha = sha1(self.text.encode(), usedforsecurity=False).hexdigest()


@cache
def script_of(name: str) -> Script:
    texts = []
    for part in ("header", "records", "steps", name):
        with open(f"{__file__.rpartition('/')[0]}/lua/{part}.lua", encoding="utf-8") as file:  # noqa: PTH123
            texts.append(file.read())
    return Script("\n".join(texts))


class NoScript(Exception):
    """The server does not have the script: it was restarted, or is another one."""


class Servers(Protocol):
    """One server, or those of a cluster.  Each calling thread has its own connection."""

    @property
    def where(self) -> str: ...  # how messages name the server; it never shows a password

    def send(self, key: str, *commands: Sequence[Any]) -> list[Any]:
        """Send commands at once to the server that has the key.  Returns their replies."""

    def refused(self, why: str) -> DetentError: ...  # for a server that cannot be a store

    def close(self) -> None: ...  # also ends calls of other threads


class Link:
    def __init__(self, servers: Servers, wait_replicas: int = 0) -> None:
        self.servers, self._wait_replicas = servers, wait_replicas

    def run(self, script: Script, key: str, arguments: Sequence[Any], is_write: bool) -> list[Any]:
        """Run the script once on the server that has the key."""
        wait = [("WAIT", self._wait_replicas, ACKNOWLEDGE_MS)] if is_write and self._wait_replicas else []
        words, send = (1, key, *arguments), self.servers.send
        try:
            reply, *replicas = send(key, ("EVALSHA", script.sha, *words), *wait)
        except NoScript:
            reply, *replicas = send(key, ("EVAL", script.text, *words), *wait)
        if replicas and replicas[0] < self._wait_replicas:
            have = f"{replicas[0]} of {self._wait_replicas} replicas acknowledged the write"
            raise StoreUnavailable(f"{self.servers.where}: {have} (`wait_replicas`); a failover may lose it")
        return list(reply)

    def call(self, key: str, *command: Any) -> Any:
        """Run one command on the server that has the key."""
        return self.servers.send(key, command)[0]
