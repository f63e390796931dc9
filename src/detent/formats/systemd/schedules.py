"""Converts systemd's calendar events to exactly equal cron expressions, if there are such.

- systemd requires weekday *and* day of the month, where cron accepts *either*.  So each possible form of
  cron (`MON#1`, `5L`, `L`, a list; a day field that starts with `*` requires both) is tested on every kind
  of month.
- If no form fits, the rule is split by the length of months and, in a single year, by its dates.
- If that fails too, the expression has all days that may match, and a fault says so.
- Years become `starts_at` and `ends_at`; a single instant becomes `at`.
- Clock changes follow our rule; systemd skips a time in the gap.
"""

import re
from calendar import monthrange
from collections.abc import Collection, Iterator
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

from detent.formats.systemd.calendar import ALL_WEEKDAYS, YEAR_HIGH, YEAR_LOW, Calendar
from detent.schedules.cronfields import DAY_OF_MONTH, DAY_OF_WEEK, WEEKDAYS, Field, Grammar, parse_field
from detent.schedules.host_fields import ranges_text
from detent.schedules.yeardays import MONTH_LENGTHS, DayRule, days_of_month

SPANS_MAX = 8  # ranges of years; each becomes a job
FEBRUARY = 2
TOO_WIDE = (
    "a cron expression cannot select exactly these days; this one has more, so check the date in the command"
)
NO_YEARS = "a cron expression has no years, so this one fires in all; check the year in the command"
NEVER = "no such day exists, so it never fires"
PLACEHOLDER_SCHEDULE = "@yearly"  # a disabled job needs a schedule too
ANY_MONTH = Field("*", (1 << 13) - 2)
WEEKS = tuple(frozenset(range(first, first + 7)) for first in (1, 8, 15, 22, 29))


class Span(NamedTuple):
    """The schedules in one range of years; a fault says how they differ from the event."""

    schedules: tuple[str, ...] = ()
    at: str = ""
    starts_at: str = ""
    ends_at: str = ""
    timezone: str = ""
    fault: str = ""


class Days(NamedTuple):
    """The three fields of a cron expression that select a day."""

    day_of_month: str
    month: str
    day_of_week: str


def spans_of(calendar: Calendar, zone: str) -> list[Span]:
    """Convert an event.  `zone` is the machine's."""
    timezone = calendar.zone or zone
    if calendar.years is None:
        return [_recurring(calendar)._replace(timezone=timezone)]
    starts = sorted(year for year in calendar.years if year - 1 not in calendar.years)
    stops = sorted(year + 1 for year in calendar.years if year + 1 not in calendar.years)
    ranges = map(range, starts, stops)
    stretches = [some for some in ranges if any(_dates(calendar, year) for year in some)]
    if 1 <= len(stretches) <= SPANS_MAX:
        return [_within(calendar, stretch, timezone) for stretch in stretches]
    if stretches:
        return [_recurring(calendar)._replace(timezone=timezone, fault=NO_YEARS)]
    return [Span(schedules=(PLACEHOLDER_SCHEDULE,), timezone=timezone, fault=NEVER)]


def _within(calendar: Calendar, years: range, timezone: str) -> Span:
    first = datetime(years[0], 1, 1, tzinfo=ZoneInfo(timezone))
    last = datetime(years[-1], 12, 31, 23, 59, 59, tzinfo=ZoneInfo(timezone))
    dates = _dates(calendar, years[0]) if len(years) == 1 else []
    times = (calendar.hours, calendar.minutes, calendar.seconds)
    if len(dates) == 1 and all(len(values) == 1 for values in times):
        hour, minute, second = (min(values) for values in times)
        month, day = dates[0]
        instant = first.replace(month=month, day=day, hour=hour, minute=minute, second=second)
        return Span(at=instant.isoformat(), timezone=timezone)
    span = _recurring(calendar)
    if span.fault and dates:
        by_month: dict[int, list[int]] = {}
        for month, day in dates:
            by_month.setdefault(month, []).append(day)
        fields = [Days(cron_field(days, 1, 31), str(month), "*") for month, days in by_month.items()]
        span = Span(schedules=tuple(_written(days, calendar) for days in fields))
    return span._replace(
        starts_at="" if years[0] == YEAR_LOW else first.isoformat(),
        ends_at="" if years[-1] == YEAR_HIGH else last.isoformat(),
        timezone=timezone,
    )


def _dates(calendar: Calendar, year: int) -> list[tuple[int, int]]:
    dates = []
    for month in sorted(calendar.months):
        weekday, length = monthrange(year, month)
        wanted = _wanted(calendar, (weekday + 1) % 7, length)
        dates += [(month, day) for day in range(1, length + 1) if wanted >> day - 1 & 1]
    return dates


def _recurring(calendar: Calendar) -> Span:
    possible = _possible(calendar)
    if not possible:
        return Span(schedules=(PLACEHOLDER_SCHEDULE,), fault=NEVER)
    found = find_days(calendar)
    if found is not None:
        return Span(schedules=tuple(_written(days, calendar) for days in found))
    wider = Days(cron_field(possible, 1, 31), cron_field(calendar.months, 1, 12), "*")
    return Span(schedules=(_written(wider, calendar),), fault=TOO_WIDE)


def _written(days: Days, calendar: Calendar) -> str:
    second = [] if calendar.seconds == {0} else [cron_field(calendar.seconds, 0, 59)]
    time = [*second, cron_field(calendar.minutes, 0, 59), cron_field(calendar.hours, 0, 23)]
    return " ".join([*time, *days])


def find_days(calendar: Calendar) -> list[Days] | None:
    """Return day fields that select exactly the days of the calendar, or None."""
    whole = _prove(calendar)
    if whole is not None:
        return [whole]
    parts = [_prove(part) for part in _by_length(calendar)]
    return [part for part in parts if part is not None] if None not in parts else None


def _by_length(calendar: Calendar) -> Iterator[Calendar]:
    """Split the calendar by length of month, so that days can count from the start."""
    for length in (31, 30):
        months = frozenset(m for m in calendar.months if MONTH_LENGTHS[m - 1] == length)
        days = calendar.days
        if calendar.from_end:
            days = frozenset(length + 1 - day for day in days if day <= length)
        if months:
            yield calendar._replace(months=months, days=days, from_end=False)
    if FEBRUARY in calendar.months:
        yield calendar._replace(months=frozenset((FEBRUARY,)))


def _prove(calendar: Calendar) -> Days | None:
    month = cron_field(calendar.months, 1, 12)
    for day_of_month, day_of_week in _proposals(calendar):
        if _is_exact(calendar, day_of_month, day_of_week):
            return Days(day_of_month, month, day_of_week)
    return None


def _proposals(calendar: Calendar) -> Iterator[tuple[str, str]]:
    """Yield forms that may fit, the simplest first."""
    days, weekdays = calendar.days, calendar.weekdays
    names = _weekday_names(weekdays)
    if calendar.from_end:
        yield "L", "*"
        yield "*", ",".join(f"{day}L" for day in sorted(weekdays))
        yield "*", names
        return
    yield cron_field(days, 1, 31), "*"
    yield "*", names
    nth = [i for i, week in enumerate(WEEKS, 1) if week & days]
    yield "*", ",".join(f"{WEEKDAYS[day]}#{i}" for day in sorted(weekdays) for i in nth)
    if 1 in days:  # `*/31` is the 1st alone
        rest = days - {1}
        yield "*/31" + ("," + cron_field(rest, 1, 31) if rest else ""), names
    if 0 in weekdays:  # `*/7` is Sunday alone
        rest = weekdays - {0}
        yield cron_field(days, 1, 31), "*/7" + ("," + _weekday_names(rest) if rest else "")


def _is_exact(calendar: Calendar, day_of_month: str, day_of_week: str) -> bool:
    grammar = Grammar()
    rule = DayRule(
        parse_field(day_of_month, DAY_OF_MONTH, grammar),
        ANY_MONTH,
        parse_field(day_of_week, DAY_OF_WEEK, grammar),
    )
    return all(
        days_of_month(rule, weekday, length) == _wanted(calendar, weekday, length)
        for length in _lengths(calendar.months)
        for weekday in range(7)
    )


def _wanted(calendar: Calendar, weekday: int, length: int) -> int:
    """Return the calendar's days in a month that starts on this weekday; bit 0 is the 1st."""
    wanted = 0
    for index in range(length):
        counted = length - index if calendar.from_end else index + 1
        if counted in calendar.days and (weekday + index) % 7 in calendar.weekdays:
            wanted |= 1 << index
    return wanted


def _possible(calendar: Calendar) -> list[int]:
    """Return the days that the calendar selects in any month."""
    joined = 0
    for length in _lengths(calendar.months):
        for weekday in range(7):
            joined |= _wanted(calendar, weekday, length)
    return [day for day in range(1, 32) if joined >> day - 1 & 1]


def _lengths(months: Collection[int]) -> set[int]:
    lengths = {MONTH_LENGTHS[month - 1] for month in months}
    return lengths | {29} if FEBRUARY in months else lengths


def cron_field(values: Collection[int], low: int, high: int) -> str:
    """Render values as a field: `*`, `*/15`, `1-7`, `9-17/2` or a list."""
    ordered = sorted(values)
    if len(ordered) == high - low + 1:
        return "*"
    steps = {after - before for before, after in pairwise(ordered)}
    step = steps.pop() if len(steps) == 1 else 0
    if step > 1 and len(ordered) > 2:
        # Only for times: a day field that starts with `*` has another meaning in cron.
        is_whole = low == 0 and ordered[0] == low and ordered[-1] + step > high
        return f"*/{step}" if is_whole else f"{ordered[0]}-{ordered[-1]}/{step}"
    return ranges_text(ordered)


def _weekday_names(weekdays: Collection[int]) -> str:
    if frozenset(weekdays) == ALL_WEEKDAYS:
        return "*"
    named = re.sub(r"\d", lambda day: WEEKDAYS[int(day[0])], ranges_text(sorted(set(weekdays) - {0})))
    return ",".join(filter(None, (named, "SUN" if 0 in weekdays else "")))
