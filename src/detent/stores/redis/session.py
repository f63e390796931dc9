"""Calls of the scripts, with what this client knows of the server: its epoch, its clocks, its apps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from detent import clock
from detent.errors import StoreUnavailable
from detent.stores.engine.driver import Header
from detent.stores.redis.health import refusal
from detent.stores.redis.link import Link, script_of
from detent.stores.redis.values import to_json

BLOCK_S = 2.0  # one blocking read; shorter than the client's timeout
GUESS_S = 10.0  # the clock of the server is known for this long after a reply,
GUESS_ROUND_TRIP_S = 0.1  # if that reply came so soon
READS = ("find", "look")  # these wait for no replicas: a commit that follows waits for all before it


class Seen(NamedTuple):
    """The newest reply for an app."""

    header: Header
    ahead: float  # of the wall clock, compared with the steady one
    words: tuple[bytes, bytes, bytes]  # epoch, steady and longest ttl, as the server wrote them
    version: int
    sent: float
    received: float


class Session:
    def __init__(
        self,
        link: Link,
        key_prefix: str,
        waits: bool,
        wall: Callable[[], float] | None,
        elapsed: Callable[[], float],
    ) -> None:
        self._link, self._prefix, self._waits = link, key_prefix, waits
        self._registry = f"{key_prefix}detent:apps"
        self._wall, self._elapsed = wall, elapsed
        self._seen: dict[str, Seen] = {}
        self._met: set[tuple[str, str]] = set()  # apps and epochs whose server was checked
        self._heard: dict[str, bytes] = {}  # app -> its newest wake-up
        self._closing = threading.Event()

    def run(self, app: str, name: str, request: Any, words: Sequence[Any] = ()) -> tuple[Seen, list[Any]]:
        """Run a script that needs the header.  If it finds that the clock was set, it runs again."""
        text, started = to_json(request), self._elapsed()
        known = self._known(app, started)
        if not (reply := self._send(app, name, (*known, "", text, *words))):
            sent = self._elapsed()
            known = self._known(app, sent, slack_s=sent - started)
            started, reply = sent, self._send(app, name, (*known, "1", text, *words))
        return self._see(app, reply[0], started), reply[1:]

    def find(self, app: str, *reads: Any) -> tuple[float, float, list[Any]]:
        """Read without a header.  Returns the time by both clocks, and the replies."""
        known = self._known(app, self._elapsed())
        wall, steady, *replies = self._send(app, "find", (*known, "", to_json(reads)))
        return float(wall), float(steady), replies

    def guess(self, app: str) -> Seen | None:
        """The header as it is now, unless something has changed it.

        The steady clock is not behind the server's, so that no claim is shorter than its node believes."""
        seen, now = self._seen.get(app), self._elapsed()
        if seen is None or now - seen.received > GUESS_S or seen.received - seen.sent > GUESS_ROUND_TRIP_S:
            return None
        wall = self._wall() if self._wall else seen.header.wall + now - seen.received
        steady = seen.header.steady + now - seen.sent
        return seen._replace(header=seen.header._replace(wall=wall, steady=steady))

    def _send(self, app: str, name: str, arguments: tuple[Any, ...]) -> list[Any]:
        if not self._met:
            self._check(app)
        return self._link.run(script_of(name), self.key(app, "world"), arguments, name not in READS)

    def _known(self, app: str, now: float, slack_s: float = 0.0) -> tuple[bytes | str, ...]:
        """The server's epoch and clock at the last reply, and how long ago that was: it may lose them.

        `slack_s`: a request may be under way for so long."""
        waits, wall = "1" if self._waits else "", repr(self._wall()) if self._wall else ""
        seen = self._seen.get(app)
        if seen is None:
            return waits, wall, "", "", "", "", ""
        return waits, wall, *seen.words, repr(now - seen.received), repr(now - seen.sent + slack_s)

    def _see(self, app: str, words: bytes, sent: float) -> Seen:
        wall, steady, epoch, quarantined_until, generation, controls, longest, version = words.split(b" ")
        times = float(wall), float(steady), epoch.decode(), float(quarantined_until)
        header = Header(*times, int(generation), int(controls))
        known = epoch, steady, longest
        seen = Seen(header, header.wall - header.steady, known, int(version), sent, self._elapsed())
        if (app, header.epoch) not in self._met:  # it may be another server, or one that lost data
            self._check(app)
            self._link.call(self._registry, "SADD", self._registry, app)
            self._met.add((app, header.epoch))
        self._seen[app] = seen
        return seen

    def _check(self, app: str) -> None:
        if why := refusal(self._link.call(self.key(app, "world"), "INFO")):
            raise self._link.servers.refused(why)

    # Apps and keys.

    def apps(self) -> set[str]:
        return {app.decode() for app in self._link.call(self._registry, "SMEMBERS", self._registry)}

    def key(self, app: str, name: str) -> str:
        return f"{self._prefix}{{detent:{app}}}:{name}"

    # Waiting.

    def wait(self, app: str, seconds: float) -> bool:
        closing, until, stream = self._closing, clock.monotonic() + seconds, self.key(app, "wakeups")
        if app not in self._heard:
            newest = self._link.call(stream, "XREVRANGE", stream, "+", "-", "COUNT", 1)
            self._heard[app] = newest[0][0] if newest else b"0-0"
        while (left := until - clock.monotonic()) > 0 and not closing.is_set():
            block = "BLOCK", max(1, round(min(left, BLOCK_S) * 1000))
            try:
                woken = self._link.call(stream, "XREAD", *block, "STREAMS", stream, self._heard[app])
            except StoreUnavailable:
                if closing.is_set():
                    return False
                raise
            if woken:
                self._heard[app] = woken[0][1][-1][0]  # of the only stream its last entry
                return True
        return False

    def close(self) -> None:
        closing, self._closing = self._closing, threading.Event()
        closing.set()
        self._link.servers.close()
