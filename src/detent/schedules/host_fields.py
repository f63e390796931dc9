"""Rewrites schedules as fields for other schedulers, which must cover every instant of the schedule.

- A scheduler that runs in another time zone is given minutes of every hour: a table of offsets would become
  wrong with the next change of a law.
- Zones are examined over a fixed span of 28 years, after which weekdays and dates repeat.  The span is
  constant, so that a schedule is always rendered in the same way.
- In Vixie cron and its successors a leading `*` changes what day fields and offset changes mean.  Hence
  `open_field`, which starts with `*`, and `closed_field`, which does not.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from math import gcd
from typing import NamedTuple

from detent.errors import UsageError
from detent.schedules.cron import Fields
from detent.schedules.cronfields import Field
from detent.schedules.timetable import Once
from detent.schedules.wallclock import WallClock
from detent.schedules.zones import Window, open_zone

SPAN_FROM_S = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp())
SPAN_UNTIL_S = int(datetime(2052, 1, 1, tzinfo=UTC).timestamp())
MINUTE_S, HOUR_S = 60, 3_600
MINUTES = (1 << 60) - 1
LIST_RUN = 3  # this many consecutive values become a range

REBOOT_UNSUPPORTED = "`@reboot` runs on a node, once per boot: leave this job to `detent run`"


@lru_cache(maxsize=256)
def windows_of(zone: str) -> tuple[Window, ...]:
    found, at = list[Window](), SPAN_FROM_S
    while at < SPAN_UNTIL_S:
        window = open_zone(zone).window(at)
        found.append(window)
        at = window.until
    return tuple(found)


class Shift(NamedTuple):
    at: int
    size_s: int


@lru_cache(maxsize=256)
def shifts_of(zone: str) -> tuple[Shift, ...]:
    pairs = pairwise(windows_of(zone))
    return tuple(
        Shift(after.start, abs(after.offset - before.offset))
        for before, after in pairs
        if after.offset != before.offset
    )


@lru_cache(maxsize=1024)
def differences(zone: str, other: str) -> frozenset[int]:
    """Return the seconds by which the wall clock of `other` is ahead of that of `zone`."""
    starts = {window.start for name in (zone, other) for window in windows_of(name)}
    instants = {max(start, SPAN_FROM_S) for start in starts}
    here, there = open_zone(zone), open_zone(other)
    return frozenset(there.window(at).offset - here.window(at).offset for at in instants)


def is_same_clock(zone: str, other: str) -> bool:
    return differences(zone, other) == {0}


def shift_minutes(minutes: int, zone: str, other: str) -> int:
    """Convert minutes of the hour from one zone to another."""
    shifted = 0
    for seconds in differences(zone, other):
        shift = seconds // MINUTE_S % 60
        shifted |= (minutes << shift | minutes >> 60 - shift) & MINUTES
    return shifted


def minutes_on(clock: WallClock, zone: str) -> int:
    """Return the minutes of the hour in `zone` at which the schedule is due, also right after a gap."""
    minutes = shift_minutes(clock.pattern.fields.minute.mask, clock.zone.name, zone)
    for shift in shifts_of(clock.zone.name):
        if clock.next(shift.at - 1) == shift.at:
            minutes |= 1 << (shift.at + open_zone(zone).window(shift.at).offset) // MINUTE_S % 60
    return minutes


def minutes_of_period(period_s: int) -> int:
    """Return the minutes of the hour in UTC at which multiples of a period are due."""
    step = gcd(period_s // MINUTE_S, 60)
    return sum(1 << minute for minute in range(0, 60, step))


def check_whole_minutes(seconds: int, mask: int = 1) -> None:
    """Refuse an instant or period with seconds, or a pattern with another second than 0."""
    if seconds % MINUTE_S or mask != 1:
        raise UsageError(
            "it has seconds, but this host triggers at whole minutes; remove them, or leave the job to"
            " `detent run` or `--host systemd`"
        )


def is_second_time(once: Once, zone: str) -> bool:
    """Does the wall clock show the time of this instant for the second time?"""
    window = open_zone(zone).window(once.at)
    return once.at + window.offset < window.high


# Special days, for schedulers that know only dates and weekdays.


def wider_days(field: Field) -> int:
    """Return all days of a month that the field can match."""
    mask = field.mask
    for special in field.specials:
        nearest = (max(1, special.day - 2), min(31, special.day + 2))
        first, last = {"last": (28, 31), "last-weekday": (26, 31)}.get(special.kind, nearest)
        mask |= (2 << last) - (1 << first)
    return mask


def wider_weekdays(field: Field) -> int:
    mask = field.mask
    for special in field.specials:
        mask |= 1 << special.day
    return mask


# Masks as text.


def closed_field(mask: int, low: int, high: int) -> str:
    """Write a mask as a field that does not start with `*`."""
    values = bits(mask)
    steps = {after - before for before, after in pairwise(values)}
    if len(values) > LIST_RUN and len(steps) == 1:
        step = steps.pop()
        return f"{values[0]}-{values[-1]}" + (f"/{step}" if step > 1 else "")
    return ranges_text(values)


def open_field(mask: int, low: int, high: int) -> str:
    """Write a mask as a field that starts with `*`.  It must include the lowest value."""
    whole = (2 << high) - (1 << low)
    for step in range(1, high - low + 2):
        stepped = sum(1 << value for value in range(low, high + 1, step))
        if stepped & mask == stepped:
            rest = mask & whole & ~stepped
            star = "*" if step == 1 else f"*/{step}"
            return f"{star},{closed_field(rest, low, high)}" if rest else star
    raise AssertionError("a field that starts with * includes its lowest value")


def short_field(mask: int, low: int, high: int) -> str:
    """Write a mask as the shorter of both forms."""
    closed = closed_field(mask, low, high)
    opened = open_field(mask, low, high) if mask >> low & 1 else closed
    return opened if "," not in opened and len(opened) <= len(closed) else closed


def with_days(time: str, fields: Fields) -> str:
    """Return five fields: minute and hour as given, then the days of a pattern, or more."""
    day = open_field if fields.day_of_month.is_open else closed_field
    weekday = open_field if fields.day_of_week.is_open else closed_field
    days = day(wider_days(fields.day_of_month), 1, 31)
    month, weekdays = short_field(fields.month.mask, 1, 12), weekday(wider_weekdays(fields.day_of_week), 0, 6)
    return f"{time} {days} {month} {weekdays}"


def bits(mask: int) -> list[int]:
    return [value for value in range(mask.bit_length()) if mask >> value & 1]


def ranges_text(values: list[int]) -> str:
    """`1-5,7`."""
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs(values))


def runs(values: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last of each run of at least `LIST_RUN` values; other values singly."""
    start = 0
    for at in range(1, len(values) + 1):
        if at == len(values) or values[at] != values[at - 1] + 1:
            if at - start < LIST_RUN:
                yield from ((value, value) for value in values[start:at])
            else:
                yield values[start], values[at - 1]
            start = at
