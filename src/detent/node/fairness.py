"""How the nodes of a fleet share what is due.

All of them wake at the same instant, and the first to ask could take as much as it has room for.  So a
node that is not alone asks in bites, a small one first and larger ones while there is more, and the others
get theirs in between.  One that had more than its share lately lets the others go first: they are awake,
so no fire waits for that.  They tell each other with their heartbeats, and these come more often where there
is much to share.  Alone it does neither.  None of this decides who may run what: the store does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime

from detent.model import Note
from detent.node.ports import Wakeup

FIRST_LIMIT = 2  # a fire that is due alone costs one ask, as ever
GROWTH = 2
DELAY_S = 0.01  # how much later one asks that is ahead: longer than an ask takes, too short to be felt
AHEAD = 1.2  # times the mean: one is ahead
HALF_LIFE_S = 3.0  # after so long, what a node had counts half
COMPARE_AFTER = 16  # had since the last comparison: time for another


class FairShare:
    def __init__(self, is_worker: bool = False) -> None:
        self.is_alone, self.is_ahead, self._is_worker = True, False, is_worker
        self._batch_limit, self._had, self._had_at = FIRST_LIMIT, 0.0, 0.0
        self._uncompared, self.compare_soon = 0, Wakeup()

    def compare(self, loads: Sequence[float], own: float) -> None:
        """Take the loads of all living nodes, and ours among them."""
        self.is_alone = len(loads) < 2
        self.is_ahead = not self.is_alone and own > AHEAD * sum(loads) / len(loads)

    def load(self, held: int, now: float) -> float:
        """What the others compare theirs with: what we hold, and what we had of late."""
        self._had, self._had_at, self._uncompared = _faded(self._had, now - self._had_at), now, 0
        return held + self._had

    @property
    def delay_s(self) -> float:
        """How long to wait before asking; not between bites, and a worker never: people wait for messages."""
        return DELAY_S if self.is_ahead and self._batch_limit == FIRST_LIMIT and not self._is_worker else 0.0

    def batch_limit(self, room: int) -> int:
        return room if self.is_alone else min(room, self._batch_limit)

    def take(self, asked: int, got: int, room: int) -> bool:
        """So many were granted, and so much room is left.  Is it worth asking for more at once?  A bite grows
        while there is more; a worker's also where it has no room for more, as its queues are long then."""
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
    """Of those nodes that serve what we do.  One of another version may say more or less."""
    for note in living:
        with suppress(ValueError, TypeError, KeyError):
            said = json.loads(note.text)
            if not set(queues).isdisjoint(said["queues"]):
                yield _faded(float(said["load"]), (now - note.written_at).total_seconds())


def _faded(load: float, age_s: float) -> float:
    """What counts of it by now."""
    return load * math.pow(0.5, max(0.0, age_s) / HALF_LIFE_S)
