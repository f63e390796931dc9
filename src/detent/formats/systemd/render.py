"""Renders a schedule as systemd's calendar events, which elapse at every instant, and at no other in UTC.
Pure.

- systemd requires weekday *and* date, where cron accepts *either*: then there are two events.  `L`, `#` and
  `W` are exact, except for `28W` and `29W` in February.
- `@every` becomes the times of day of its instants, which is exact if it divides a day.
- systemd 252 skips times in a gap, and an hour of real time in a fold.  So there are further events in UTC
  around the clock changes within 28 years; the trigger ignores the extra ones.
- Years outside systemd's range are refused.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import gcd
from typing import NamedTuple

from detent.errors import UsageError
from detent.formats.systemd.calendar import YEAR_HIGH, YEAR_LOW
from detent.schedules.cronfields import Special
from detent.schedules.host_fields import (
    HOUR_S,
    MINUTE_S,
    REBOOT_UNSUPPORTED,
    bits,
    differences,
    runs,
    shifts_of,
)
from detent.schedules.timetable import EPOCH, Every, Instants, Once
from detent.schedules.wallclock import WallClock
from detent.schedules.yeardays import MONTH_LENGTHS

DAY_S = 86_400
WEEKDAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
MONDAY, FRIDAY = 1, 5
WORKDAYS = frozenset(range(MONDAY, FRIDAY + 1))
EVERY_WEEKDAY = frozenset(range(7))
MONTHS = frozenset(range(1, 13))
DAYS = frozenset(range(1, 32))
LAST_WEEK = frozenset(range(1, 8))  # from the end
_Parts = tuple[tuple[int, ...], ...]  # the values of each part of a time
LENGTHS = [{length} if month != 2 else {28, 29} for month, length in enumerate(MONTH_LENGTHS, 1)]


class Days(NamedTuple):
    """The days of one event: all parts must match."""

    months: frozenset[int] = MONTHS
    days: frozenset[int] = DAYS
    weekdays: frozenset[int] = EVERY_WEEKDAY
    from_end: bool = False  # days count from the end of the month: 1 is the last day


def calendar_events(instants: Instants) -> list[str]:
    """Return the events of a schedule, or raise a `UsageError` if it is not supported."""
    match instants:
        case WallClock():
            return list(dict.fromkeys([*_wall_events(instants), *_events_around_changes(instants)]))
        case Every():
            return list(_period_events(instants.period_s))
        case Once():
            return [_once_event(instants)]
    raise UsageError(REBOOT_UNSUPPORTED)


def _once_event(once: Once) -> str:
    at = EPOCH + timedelta(seconds=once.at)
    if not YEAR_LOW <= at.year <= YEAR_HIGH:
        raise UsageError(f"systemd only supports the years {YEAR_LOW} to {YEAR_HIGH}")
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _wall_events(clock: WallClock) -> Iterator[str]:
    fields = clock.pattern.fields
    time = _time(bits(fields.hour.mask), bits(fields.minute.mask), bits(fields.second.mask))
    for days in _days_of(clock):
        yield f"{_date(days)} {time} {clock.zone.name}"


def _days_of(clock: WallClock) -> list[Days]:
    fields = clock.pattern.fields
    months = frozenset(bits(fields.month.mask))
    day, weekday = fields.day_of_month, fields.day_of_week
    dates = [Days(days=frozenset(bits(day.mask)))] if day.mask else []
    dates += _moving_dates(day.specials)
    weekdays = [Days(weekdays=frozenset(bits(weekday.mask)))] if weekday.mask else []
    weekdays += _moving_weekdays(weekday.specials)
    if day.is_open or weekday.is_open:
        named = [_both(one, other) for one in dates for other in weekdays]
    else:
        named = [*dates, *weekdays]
    within = [days._replace(months=days.months & months) for days in named]
    return [days for days in within if days.months and days.days and days.weekdays]


def _moving_weekdays(specials: Iterable[Special]) -> Iterator[Days]:
    for special in specials:
        weekday = frozenset((special.day,))
        if special.kind == "nth":
            first = 7 * (special.nth - 1) + 1
            yield Days(days=frozenset(range(first, min(first + 6, 31) + 1)), weekdays=weekday)
        else:
            yield Days(days=LAST_WEEK, weekdays=weekday, from_end=True)


def _moving_dates(specials: Iterable[Special]) -> Iterator[Days]:
    for special in specials:
        if special.kind == "last":
            yield Days(days=frozenset((1,)), from_end=True)
        elif special.kind == "last-weekday":
            yield Days(days=frozenset((1,)), weekdays=WORKDAYS, from_end=True)
            yield Days(days=frozenset((2, 3)), weekdays=frozenset((FRIDAY,)), from_end=True)
        else:
            yield from _nearest_weekday(special.day)


def _nearest_weekday(day: int) -> Iterator[Days]:
    """Yield the day, the Friday before a Saturday, and the Monday after a Sunday, in the same month."""
    months = [month for month, lengths in enumerate(LENGTHS, 1) if max(lengths) >= day]
    ending = frozenset(month for month in months if day in LENGTHS[month - 1])
    going_on = frozenset(month for month in months if max(LENGTHS[month - 1]) > day)
    monday, friday = frozenset((MONDAY,)), frozenset((FRIDAY,))
    yield Days(frozenset(months), frozenset((day,)), WORKDAYS)
    if day > 1:
        yield Days(frozenset(months), frozenset((day - 1,)), friday)
    else:
        yield Days(frozenset(months), frozenset((3,)), monday)
    yield Days(going_on, frozenset((day + 1,)), monday)
    yield Days(ending, frozenset((day - 2,)), friday)


def _both(one: Days, other: Days) -> Days:
    """Return the common days; a few more if only one counts from the end of the month."""
    months, weekdays = one.months & other.months, one.weekdays & other.weekdays
    if other.days == DAYS and not other.from_end:
        return Days(months, one.days, weekdays, one.from_end)
    if one.days == DAYS and not one.from_end:
        return Days(months, other.days, weekdays, other.from_end)
    days = one.days & other.days if one.from_end == other.from_end else one.days
    return Days(months, days, weekdays, one.from_end)


def _events_around_changes(clock: WallClock) -> Iterator[str]:
    """Yield events for the instants near clock changes: their minutes in the hours around."""
    fields, zone = clock.pattern.fields, clock.zone.name
    ahead = {seconds // MINUTE_S for seconds in differences("UTC", zone)}
    minutes = {(minute - shift) % 60 for minute in bits(fields.minute.mask) for shift in ahead}
    groups: dict[tuple[int, int], tuple[set[int], set[int]]] = {}
    for at, size_s in shifts_of(zone):
        since, until = at - max(size_s, HOUR_S), at + max(size_s, HOUR_S)
        found = clock.next(since - 1)
        if found is None or found > until:
            continue
        if clock.next(at - 1) == at:
            minutes.add(at // MINUTE_S % 60)
        for hour in range(since // HOUR_S, until // HOUR_S + 1):
            shown = datetime.fromtimestamp(hour * HOUR_S, UTC)
            days, hours = groups.setdefault((shown.month, shown.isoweekday() % 7), (set(), set()))
            days.add(shown.day)
            hours.add(shown.hour)
    seconds = bits(fields.second.mask | 1)
    for (month, weekday), (days, hours) in sorted(groups.items()):
        date = _date(
            Days(frozenset((month,)), frozenset(range(min(days), max(days) + 1)), frozenset((weekday,)))
        )
        yield f"{date} {_time(sorted(hours), sorted(minutes), seconds)} UTC"


def _period_events(period_s: int) -> Iterator[str]:
    """Yield the times of day of the multiples of a period, grouped by hours, then minutes, then seconds."""
    times = range(0, DAY_S, gcd(period_s, DAY_S))
    events: list[_Parts] = [((at // HOUR_S,), (at // MINUTE_S % 60,), (at % MINUTE_S,)) for at in times]
    for part in range(3):
        groups: dict[_Parts, tuple[int, ...]] = {}
        for event in events:
            rest = event[:part] + event[part + 1 :]
            groups[rest] = groups.get(rest, ()) + event[part]
        events = [(*rest[:part], values, *rest[part:]) for rest, values in groups.items()]
    for hours, minutes, seconds in events:
        yield f"*-*-* {_time(list(hours), list(minutes), list(seconds))} UTC"


def _date(days: Days) -> str:
    weekdays = "" if days.weekdays == EVERY_WEEKDAY else f"{_weekdays(days.weekdays)} "
    month = _values(sorted(days.months), 12, low=1)
    if days.from_end:
        day = "07/1" if days.days == LAST_WEEK else ",".join(f"{day:02}" for day in sorted(days.days))
        return f"{weekdays}*-{month}~{day}"
    return f"{weekdays}*-{month}-{_values(sorted(days.days), 31, low=1)}"


def _weekdays(weekdays: frozenset[int]) -> str:
    """systemd's week starts with Monday."""
    numbers = sorted((weekday - 1) % 7 for weekday in weekdays)
    names = [*WEEKDAYS[1:], WEEKDAYS[0]]
    return ",".join(names[a] if a == b else f"{names[a]}..{names[b]}" for a, b in runs(numbers))


def _time(hours: list[int], minutes: list[int], seconds: list[int]) -> str:
    return f"{_values(hours, 23)}:{_values(minutes, 59)}:{_values(seconds, 59)}"


def _values(values: list[int], high: int, low: int = 0) -> str:
    if len(values) == high - low + 1:
        return "*"
    steps = {after - before for before, after in pairwise(values)}
    if len(values) > 3 and len(steps) == 1 and (step := steps.pop()) > 1:
        return f"{values[0]:02}..{values[-1]:02}/{step}"
    return ",".join(f"{a:02}" if a == b else f"{a:02}..{b:02}" for a, b in runs(values))
