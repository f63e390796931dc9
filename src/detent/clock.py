"""The only module that reads clocks.

`wall` is civil time.  `monotonic` measures durations.  `boottime` also counts while the machine is suspended,
and all processes of a host read the same value: the trust in a claim is measured with it.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime

monotonic = time.monotonic
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def wall() -> float:
    return time.time()


def boottime() -> float:
    return time.clock_gettime(_BOOTTIME)


def now() -> datetime:
    return instant(time.time())


def instant(seconds: float) -> datetime:
    """Convert seconds since the Unix epoch."""
    return datetime.fromtimestamp(seconds, UTC)


class StoreClock:
    """Estimates the store's clock from its last answer and a local clock.

    The estimate is never ahead of the store.  It is behind by the time the answer took to arrive.
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
        """Time since the last answer; infinite before the first one."""
        return self.ticks() - self._learned_at
