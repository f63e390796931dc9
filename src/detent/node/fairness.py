"""Shares the due work fairly among the nodes of a fleet.

All nodes wake at the same instant, and the first to ask could take as much as it has room for.  So a node
that is not alone asks for small batches first, and for larger ones while there is more.  A node that had more
than its share lately waits a moment before it asks.  The nodes exchange their loads with their heartbeats,
more often if there is much to share.  None of this decides who may run what: the store does."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime

from detent.model import Note
from detent.node.ports import Wakeup

FIRST_LIMIT = 2  # enough for a single due fire, so that it costs one ask
GROWTH = 2
DELAY_S = 0.01  # of a node with more than its share: longer than an ask takes, too short to notice
AHEAD = 1.2  # a node with more than this times the mean load is ahead
HALF_LIFE_S = 3.0  # after this time, past work counts half
COMPARE_AFTER = 16  # claims since the last comparison of loads: compare again


class FairShare:
    def __init__(self, is_worker: bool = False) -> None:
        self.is_alone, self.is_ahead, self._is_worker = True, False, is_worker
        self._batch_limit, self._had, self._had_at = FIRST_LIMIT, 0.0, 0.0
        self._uncompared, self.compare_soon = 0, Wakeup()

    def compare(self, loads: Sequence[float], own: float) -> None:
        """Compare our load with those of all live nodes, ours included."""
        self.is_alone = len(loads) < 2
        self.is_ahead = not self.is_alone and own > AHEAD * sum(loads) / len(loads)

    def load(self, held: int, now: float) -> float:
        """Return our load: the claims that we hold, and those of the last seconds."""
        self._had, self._had_at, self._uncompared = _faded(self._had, now - self._had_at), now, 0
        return held + self._had

    @property
    def delay_s(self) -> float:
        """How long to wait before a first ask.  A worker never waits: people wait for its messages."""
        return DELAY_S if self.is_ahead and self._batch_limit == FIRST_LIMIT and not self._is_worker else 0.0

    def batch_limit(self, room: int) -> int:
        return room if self.is_alone else min(room, self._batch_limit)

    def take(self, asked: int, got: int, room: int) -> bool:
        """Note how many claims were granted, and return whether to ask for more at once.  The batch limit
        grows while there is more, and stays for a worker without room, because its queues are long."""
        self._had, self._uncompared = self._had + got, self._uncompared + got
        if self._uncompared >= COMPARE_AFTER:
            self.compare_soon.set()
        is_more = not self.is_alone and got >= asked and room > 0
        if self.is_alone or got < asked or not (is_more or self._is_worker):
            self._batch_limit = FIRST_LIMIT
        elif asked >= self._batch_limit:
            self._batch_limit *= GROWTH
        return is_more


def loads_of(living: Sequence[Note], queues: tuple[str, ...], now: datetime) -> Iterator[float]:
    """Yield the loads of the nodes that serve our queues.  Skip notes of versions that lack a field."""
    for note in living:
        with suppress(ValueError, TypeError, KeyError):
            said = json.loads(note.text)
            if not set(queues).isdisjoint(said["queues"]):
                yield _faded(float(said["load"]), (now - note.written_at).total_seconds())


def _faded(load: float, age_s: float) -> float:
    return load * math.pow(0.5, max(0.0, age_s) / HALF_LIFE_S)
