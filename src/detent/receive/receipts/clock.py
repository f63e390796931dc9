"""Computes a clock for leases that does not move when the server's wall clock is set.

A server of receipts has only its wall clock.  `mono` is that clock minus all steps that were noticed.

1. A caller sends its memory: the reading of `mono` in its last answer, and how much time has passed since by
   its own boot clock: at least since the answer, at most since the request.
2. `mono` never goes back behind the newest call.  If it moved further than the caller waited, the wall clock
   was set, and the surplus is subtracted.  (Or the call was delayed: then `mono` is behind.)  If it moved
   less, it jumps ahead to what the caller knows, and live leases are extended by as much.
3. A caller without memory cannot tell a step from a time without calls.  But a process with a lease calls
   three times per lease.  So a longer gap counts as one day at most, and each lease that was live when the
   gap began is extended by it, once until its next renewal.

Differences below a second are network delays.  A server that lost its data starts a new `epoch`.
"""

from collections.abc import Callable
from typing import NamedTuple

from detent import clock


class Reading(NamedTuple):
    epoch: str
    mono: float


class Memory(NamedTuple):
    """What a caller remembers, as a call contains it; without an epoch, the caller remembers nothing."""

    epoch: str
    mono: float
    least_s: float
    most_s: float


class ClockMemory:
    """The newest reading of a server's clock in this process."""

    def __init__(self, boottime: Callable[[], float] = clock.boottime) -> None:
        self._boottime = boottime
        self._known: tuple[Reading, float, float] | None = None  # with the times of its request and answer

    def recall(self) -> tuple[Memory, float]:
        """Return the memory to send with a call, and the time of the call."""
        now = self._boottime()
        if self._known is None:
            return Memory("", 0.0, 0.0, 0.0), now
        reading, asked_at, answered_at = self._known
        return Memory(*reading, now - answered_at, now - asked_at), now

    def learn(self, reading: Reading, asked_at: float) -> None:
        self._known = (reading, asked_at, self._boottime())
