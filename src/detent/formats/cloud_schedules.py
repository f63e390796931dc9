"""Fire times for hosts where each trigger costs a pod or an invocation, so that extra ones are rare.  Pure.

- Such a host reads a schedule in its own zone, and is right except around clock changes.  For these hours
  there is a second schedule in UTC, with all instants near changes within 28 years.  It may fire a little
  too often.
- If a gap contains midnight, or a change is not a whole hour, the whole day after it is covered: some hosts
  step from midnight to midnight by whole hours, and fail there.
- A schedule of every hour of every day is rendered in UTC, which has no clock changes.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from math import gcd
from typing import NamedTuple, TypeVar

from detent.errors import UsageError
from detent.schedules import host_fields
from detent.schedules.cronfields import Field
from detent.schedules.timetable import Every, Instants, Once
from detent.schedules.wallclock import WallClock
from detent.schedules.zones import Window

DAY_S = 86_400
EVERY_HOUR = (1 << 24) - 1
EVERY_DAY = (2 << 31) - 2
EVERY_MONTH = (2 << 12) - 2
EVERY_WEEKDAY = (1 << 7) - 1

_Rendered = TypeVar("_Rendered")


class UtcTimes(NamedTuple):
    """Times in UTC, as bit masks of fields that must all match."""

    minutes: int
    hours: int = EVERY_HOUR
    days: int = EVERY_DAY
    months: int = EVERY_MONTH

    def written(self, write: Callable[[int, int, int], str]) -> str:
        """Return the fields; `write` gets a mask with its lowest and highest value."""
        ranges = ((0, 59), (0, 23), (1, 31), (1, 12))
        return " ".join(write(mask, low, high) for mask, (low, high) in zip(self, ranges, strict=True))


def render(
    instants: Instants,
    in_zone: Callable[[WallClock], Iterable[_Rendered]],
    in_utc: Callable[[UtcTimes], _Rendered],
) -> list[_Rendered]:
    """Render a schedule, or raise a `UsageError` if it is not supported."""
    match instants:
        case WallClock():
            host_fields.check_whole_minutes(0, instants.pattern.fields.second.mask)
            if times := _hourly_times(instants):
                return [in_utc(times)]
            around = times_around_changes(instants)
            return [*in_zone(instants), *([in_utc(around)] if around else [])]
        case Every():
            host_fields.check_whole_minutes(instants.period_s)
            return [in_utc(_period_times(instants.period_s))]
        case Once():
            host_fields.check_whole_minutes(instants.at)
            shown = datetime.fromtimestamp(instants.at, UTC)
            return [in_utc(UtcTimes(1 << shown.minute, 1 << shown.hour, 1 << shown.day, 1 << shown.month))]
    raise UsageError(host_fields.REBOOT_UNSUPPORTED)


def _hourly_times(clock: WallClock) -> UtcTimes | None:
    """Return the times of a schedule without hours and days, or None if it has some."""
    fields = clock.pattern.fields
    others = (
        (fields.hour, EVERY_HOUR),
        (fields.month, EVERY_MONTH),
        (fields.day_of_month, EVERY_DAY),
        (fields.day_of_week, EVERY_WEEKDAY),
    )
    if not all(is_whole(field, mask) for field, mask in others):
        return None
    return UtcTimes(host_fields.shift_minutes(fields.minute.mask, clock.zone.name, "UTC"))


def is_whole(field: Field, mask: int) -> bool:
    return field.is_open and field.mask == mask


def times_around_changes(clock: WallClock) -> UtcTimes | None:
    """Return the times of the instants near clock changes, or None if there are none."""
    minutes = hours = days = months = 0
    for at in _instants_near_changes(clock):
        shown = datetime.fromtimestamp(at, UTC)
        minutes |= 1 << shown.minute
        hours |= 1 << shown.hour
        days |= 1 << shown.day
        months |= 1 << shown.month
    return UtcTimes(minutes, hours, days, months) if minutes else None


def _instants_near_changes(clock: WallClock) -> Iterator[int]:
    for change_at, size_s in host_fields.shifts_of(clock.zone.name):
        reach_s = max(size_s, host_fields.HOUR_S)
        is_odd = size_s % host_fields.HOUR_S != 0 or _contains_midnight(clock.zone.window(change_at))
        until = change_at + (DAY_S if is_odd else reach_s)
        at = clock.next(change_at - reach_s - 1)
        while at is not None and at <= until:
            yield at
            at = clock.next(at)


def _contains_midnight(window: Window) -> bool:
    """Whether the gap before this window contains midnight."""
    last = window.start + window.offset - 1
    return last >= window.high and last // DAY_S != (window.high - 1) // DAY_S


def _period_times(period_s: int) -> UtcTimes:
    """Return the multiples of a period since 1970; exact if it divides a day into hours, or an hour."""
    if period_s % host_fields.HOUR_S == 0:
        step = gcd(period_s // host_fields.HOUR_S, 24)
        return UtcTimes(1, sum(1 << hour for hour in range(0, 24, step)))
    return UtcTimes(host_fields.minutes_of_period(period_s))
