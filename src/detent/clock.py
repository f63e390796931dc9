"""The only file that reads time.

`wall` is for what people call time; `monotonic` for measuring; `boottime` also counts while the
machine is asleep, and is the same for all processes of a host: claims are trusted by it.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime

monotonic = time.monotonic  # without a function around it: it is read several times for each of thousands
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def wall() -> float:
    return time.time()


def boottime() -> float:
    return time.clock_gettime(_BOOTTIME)


def now() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)


def instant(seconds: float) -> datetime:
    """The instant so many seconds after the Unix epoch."""
    return datetime.fromtimestamp(seconds, UTC)


class StoreClock:
    """The store's clock, reckoned from its last answer by a clock of this process.

    It is never ahead of the store's clock.  It is behind by the time that the answer took to arrive.
    """

    def __init__(self, ticks: Callable[[], float] = boottime) -> None:
        self.ticks, self._offset_s, self._learned_at = ticks, 0.0, float("-inf")

    def learn(self, now: datetime) -> None:
        """Take the store's time from an answer that has just arrived."""
        self._learned_at = self.ticks()
        self._offset_s = now.timestamp() - self._learned_at

    def now(self) -> datetime:
        return instant(self.ticks() + self._offset_s)

    @property
    def age_s(self) -> float:
        """The time since the last answer; infinite before the first."""
        return self.ticks() - self._learned_at
