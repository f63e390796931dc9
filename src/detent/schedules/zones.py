"""A time zone as windows of constant UTC offset.

- zoneinfo returns the offset of an instant, but not when it changes.  So about a year at a time is probed
  every three days, and each change is bisected to the second.  In the tz database no two changes are closer
  than six days.
- A window also ends where a probed year ends, although the offset stays the same.
- `high` is the latest local time that the wall clock showed before the window.  It is earlier than the
  window's first local time after a gap, and later while times repeat.
"""

from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import NamedTuple

from detent.errors import UsageError
from detent.text import nearest, quote

DAY_S = 86_400
PROBE_S = 3 * DAY_S
STRETCH_S = 1 << 25  # about 388 days
FIRST_S = int(datetime(1, 2, 1, tzinfo=UTC).timestamp())  # a month inside the range of datetime
LAST_S = int(datetime(9999, 12, 1, tzinfo=UTC).timestamp())
NOT_PLACES = ("posix/", "right/", "localtime", "posixrules", "Factory")  # entries of some systems


class Window(NamedTuple):
    """The Unix seconds from `start` to before `until`, which have one offset."""

    start: int
    until: int
    offset: int
    high: int  # local seconds


class Zone:
    __slots__ = ("_stretches", "_tzinfo", "name")

    def __init__(self, name: str, tzinfo: tzinfo) -> None:
        self.name = name
        self._tzinfo = tzinfo
        self._stretches: dict[int, tuple[Window, ...]] = {}

    def window(self, instant: int) -> Window:
        number = instant // STRETCH_S
        windows = self._stretches.get(number)
        if windows is None:
            windows = self._stretches[number] = self._probe(number)
        return next(window for window in windows if instant < window.until)

    def _probe(self, number: int) -> tuple[Window, ...]:
        if self._tzinfo is UTC:
            return (Window(FIRST_S - DAY_S, LAST_S + DAY_S, 0, FIRST_S - DAY_S),)
        start = max(number * STRETCH_S, FIRST_S - DAY_S)
        until = min((number + 1) * STRETCH_S, LAST_S + DAY_S)
        return tuple(_cut(window, start) for window in self._scan(start, until) if window.until > start)

    def _scan(self, start: int, until: int) -> Iterator[Window]:
        """Yield windows from shortly before `start`, because times may still repeat then."""
        at = start - PROBE_S
        offset = self._offset(at)
        high = at + offset
        for change in self._changes(at, until):
            yield Window(at, change, offset, high)
            high = change + offset
            at, offset = change, self._offset(change)
        yield Window(at, until, offset, high)

    def _changes(self, start: int, until: int) -> Iterator[int]:
        at, offset = start, self._offset(start)
        while at < until - 1:
            probe = min(at + PROBE_S, until - 1)
            if self._offset(probe) == offset:
                at = probe
            else:
                at = self._first_change(at, probe)
                offset = self._offset(at)
                yield at

    def _first_change(self, low: int, high: int) -> int:
        """Return the first instant in (low, high] with another offset than `low`."""
        offset, between = self._offset(low), range(low + 1, high)
        return low + 1 + bisect_left(between, True, key=lambda at: self._offset(at) != offset)

    def _offset(self, instant: int) -> int:
        offset = datetime.fromtimestamp(instant, self._tzinfo).utcoffset()
        return 0 if offset is None else offset.days * DAY_S + offset.seconds


def _cut(window: Window, start: int) -> Window:
    if window.start >= start:
        return window
    return window._replace(start=start, high=max(window.high, start + window.offset))


@lru_cache(maxsize=1024)
def open_zone(name: str) -> Zone:
    if name == "UTC":
        return Zone(name, UTC)
    from zoneinfo import ZoneInfo  # not needed for UTC

    if not name.startswith(NOT_PLACES):
        try:
            return Zone(name, ZoneInfo(name))
        except (OSError, ValueError, KeyError):  # a directory, a path outside, an unknown name
            pass
    raise UsageError(f"bad timezone {quote(name)}: no such IANA name; {_advice(name)}")


def _advice(name: str) -> str:
    from zoneinfo import available_timezones

    zones = sorted(zone for zone in available_timezones() if not zone.startswith(NOT_PLACES))
    city = "/" + name.lower().replace(" ", "_")
    meant = next((zone for zone in zones if zone.lower().endswith(city)), "") or nearest(name, zones)
    return f"did you mean {meant}?" if meant else "write one such as UTC or Europe/Berlin"
