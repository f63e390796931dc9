"""The only file that reads time.

`wall` is for what people call time; `monotonic` for measuring; `boottime` also counts while the
machine is asleep, and is the same for all processes of a host: claims are trusted by it.
"""

import time
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
