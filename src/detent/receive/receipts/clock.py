"""The clock by which a server of receipts judges leases: one that no step of its wall clock moves.

A server has only its wall clock, which can be set.  `mono` is that clock less all steps that were noticed.

1. A caller sends what it remembers: the reading of `mono` in its last answer, and how long it has waited
   since by the clock of its own boot: at least since the answer, at most since the request.
2. `mono` is never set back behind the newest call.  If it moved by more than the caller waited, the wall
   clock was set, and the surplus is left out.  (Or the call was late: then `mono` is behind.)  If it moved by
   less, it leaps ahead to what the caller knows, and live leases end that much later.
3. A caller that remembers nothing cannot tell a step from a time without calls.  A process that holds a lease
   calls three times in its length.  So a longer time without calls counts as a day at most, and each lease
   that was live at its beginning ends that much later; once, until it is renewed.

A difference below a second is the network.  A server that lost its data begins another `epoch`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from detent import clock


class Reading(NamedTuple):
    """What an answer says of the server's clock."""

    epoch: str
    mono: float


class Memory(NamedTuple):
    """What a call says of the caller's memory; without an epoch it remembers nothing."""

    epoch: str
    mono: float
    least_s: float
    most_s: float


class ClockMemory:
    """The newest reading of a server's clock that this process has got."""

    def __init__(self, boottime: Callable[[], float] = clock.boottime) -> None:
        self._boottime = boottime
        self._known: tuple[Reading, float, float] | None = None  # and when it was asked for and answered

    def recall(self) -> tuple[Memory, float]:
        """What to send with a call, and when that is."""
        now = self._boottime()
        if self._known is None:
            return Memory("", 0.0, 0.0, 0.0), now
        reading, asked_at, answered_at = self._known
        return Memory(*reading, now - answered_at, now - asked_at), now

    def learn(self, reading: Reading, asked_at: float) -> None:
        """Keep what the answer to a call said that was sent at `asked_at`."""
        self._known = (reading, asked_at, self._boottime())
