"""Lints of one cron expression that probably does not mean what its author intended.  Pure.

A lint only reports fire times that are really unexpected: a step that wraps between two values of the next
field, or a day that a named month does not have.  A step with its own first value (`3/7`) is intentional.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from detent.manifest.problems import Problem
from detent.schedules.cron import Pattern
from detent.schedules.cronfields import MONTHS, WEEKDAYS, Field
from detent.schedules.timetable import period_text
from detent.schedules.yeardays import MONTH_LENGTHS
from detent.text import listed, plural, quote

SHOWN_MAX = 4  # values that a message lists
FEBRUARY, LEAP_DAY = 2, 29

_STEP = re.compile(r"(?:\*|0|1|JAN)/([0-9]+)", re.IGNORECASE)
_NUMBERS = re.compile(r"[0-9]+(,[0-9]+)*")


class Unit(NamedTuple):
    """The unit of a field, whose values repeat."""

    noun: str
    low: int
    size: int
    unit_s: int  # 0 if its values differ in length


SECONDS = Unit("second", 0, 60, 1)
MINUTES = Unit("minute", 0, 60, 60)
HOURS = Unit("hour", 0, 24, 3_600)
MONTHS_OF_YEAR = Unit("month", 1, 12, 0)


def lint_pattern(text: str, pattern: Pattern, path: str, version: int) -> Iterator[Problem]:
    """Return the warnings about an expression; `text` is the form in the manifest."""
    fields = pattern.fields
    found = [
        *_uneven_steps(pattern),
        _too_often(text, pattern),
        _step_of_month(fields.day_of_month, fields.month, fields.day_of_week),
        _step_of_week(fields.day_of_week, fields.day_of_month),
        _short_months(pattern, version),
        _either_day(pattern, version),
    ]
    for code, message, advice in filter(None, found):
        yield Problem(path, f"{quote(text)} {message}", code=code, advice=advice)


Lint = tuple[str, str, str]  # code, message, advice


def _uneven_steps(pattern: Pattern) -> Iterator[Lint]:
    fields = pattern.fields
    days_follow = fields.day_of_month.is_open and fields.day_of_week.is_open
    wraps = (
        (SECONDS, fields.second, has_neighbours(fields.minute.mask, 60)),
        (MINUTES, fields.minute, has_neighbours(fields.hour.mask, 24)),
        (HOURS, fields.hour, days_follow),
        (MONTHS_OF_YEAR, fields.month, True),
    )
    for clock, field, follows in wraps:
        step = _step_of(field, clock.low)
        if step and follows and clock.size % step:
            yield _uneven(clock, step, alone=_is_alone(field, pattern))


def has_neighbours(mask: int, size: int) -> bool:
    """Whether the mask has two adjacent values.  The first value follows the last."""
    return bool(mask & (mask >> 1)) or bool(mask & 1 and mask >> (size - 1) & 1)


def _step_of(field: Field, low: int) -> int:
    """Return the n of `*/n` if it is at least 2, else 0."""
    match = _STEP.fullmatch(field.text)
    starts_low = match is not None and field.mask >> low & 1
    return int(match[1]) if match and starts_low and int(match[1]) > 1 else 0


def _is_alone(field: Field, pattern: Pattern) -> bool:
    """Whether `@every` can replace it: smaller fields are 0, and larger ones are `*`."""
    fields = pattern.fields
    order = (fields.second, fields.minute, fields.hour, fields.day_of_month, fields.month, fields.day_of_week)
    at = [one is field for one in order].index(True)
    smaller, larger = order[:at], order[at + 1 :]
    return all(one.text == "0" for one in smaller) and all(one.text in ("*", "?") for one in larger)


def _uneven(clock: Unit, step: int, alone: bool) -> Lint:
    values = range(clock.low, clock.low + clock.size, step)
    every = f"; for exactly every {step} {clock.noun}s write @every {period_text(step * clock.unit_s)}"
    exactly = every if alone and clock.unit_s else ""
    if len(values) == 1:
        message = f"steps by {step}, but there are {clock.size} {clock.noun}s: it fires at {clock.low} only"
        return "step-too-large", message, f"{clock.low} says the same{exactly}"
    rest = clock.size - (values[-1] - clock.low)
    shown = series([str(value) for value in values])
    message = f"fires at {clock.noun}s {shown} and then at {clock.low}, {plural(rest, clock.noun)} later"
    return "uneven-step", message, f"{_even_steps(clock, step)} evenly{exactly}"


def _even_steps(clock: Unit, step: int) -> str:
    even = [n for n in range(2, clock.size // 2 + 1) if clock.size % n == 0]
    below, above = [n for n in even if n < step][-1:], [n for n in even if n > step][:1]
    near = [f"*/{n}" for n in below + above]
    return f"{listed(near, 'and')} {'divide' if len(near) > 1 else 'divides'} the {clock.size} {clock.noun}s"


def _step_of_month(field: Field, month: Field, day_of_week: Field) -> Lint | None:
    step = _step_of(field, 1)
    if not 1 < step < 31 or day_of_week.text not in ("*", "?") or not has_neighbours(month.mask >> 1, 12):
        return None
    last = range(1, 32, step)[-1]
    days = series([str(day) for day in range(1, 32, step)])
    message = f"fires on days {days} and then on day 1: {_days_later(32 - last)} after a month of 31 days"
    advice = f"list the days; @every {24 * step}h fires exactly every {step} days, at midnight UTC"
    return "day-step", message, advice


def _step_of_week(field: Field, day_of_month: Field) -> Lint | None:
    step = _step_of(field, 0)
    if not 1 < step < 7 or day_of_month.text not in ("*", "?"):
        return None
    days = [WEEKDAYS[day] for day in range(0, 7, step)]
    rest = 7 - WEEKDAYS.index(days[-1])
    message = f"fires on {listed(days, 'and')} and then on SUN again, {_days_later(rest)}"
    return "day-step", message, "list the days, like MON,WED,FRI"


def _days_later(days: int) -> str:
    return "the next day" if days == 1 else f"{days} days later"


def _too_often(text: str, pattern: Pattern) -> Lint | None:
    """Find `* 2 * * *`, which is a common mistake for `0 2 * * *`."""
    fields = pattern.fields
    words = text.split()
    if len(words) < 5:
        return None
    if fields.second.text == "*" and _NUMBERS.fullmatch(fields.minute.text):
        what, at = f"every second of minute {fields.minute.text}", 0
        times = fields.minute.mask.bit_count()
    elif fields.minute.text == "*" and _NUMBERS.fullmatch(fields.hour.text):
        what, at = f"every minute of hour {fields.hour.text}", len(words) - 5
        times = fields.hour.mask.bit_count()
    else:
        return None
    once = " ".join([*words[:at], "0", *words[at + 1 :]])
    return "every-minute", f"fires {what}, {60 * times} times", f"to fire once, write {quote(once)}"


def _short_months(pattern: Pattern, version: int) -> Lint | None:
    fields = pattern.fields
    field = fields.day_of_month
    named = [int(item) for item in field.text.split(",") if item.isdecimal()]
    if field.is_open or not fields.day_of_week.is_open or field.specials:
        return None
    months = [month for month in range(1, 13) if fields.month.mask >> month & 1]
    days = {day: [month for month in months if _lacks(month, day, field.mask)] for day in sorted(named)}
    gaps = [_missing(day, without) for day, without in days.items() if 0 < len(without) < len(months)]
    if not gaps:
        return None
    where = "" if version > 1 else " (in a manifest of version 2)"
    advice = f"write L for the last day of every month{where}"
    return "short-month", f"does not fire in every month: {'; '.join(gaps)}", advice


def _lacks(month: int, day: int, mask: int) -> bool:
    """Whether the month lacks this day, and its last day is not listed either."""
    length = MONTH_LENGTHS[month - 1]
    return day > length and not mask >> length & 1


def _missing(day: int, months: list[int]) -> str:
    if day == LEAP_DAY and months == [FEBRUARY]:
        return "FEB has a day 29 in leap years only"
    names = [MONTHS[month - 1] for month in months]
    return f"{listed(names, 'and')} {'has' if len(names) == 1 else 'have'} no day {day}"


def _either_day(pattern: Pattern, version: int) -> Lint | None:
    days, weekdays = pattern.fields.day_of_month, pattern.fields.day_of_week
    if days.is_open or weekdays.is_open:
        return None
    message = f"fires on day {days.text} of the month and on every {weekdays.text}, because either is enough"
    nth = "; MON#1 is the first Monday of a month" if version > 1 else ""
    return "either-day", message, f"write * for one of the two fields{nth}"


def series(values: list[str]) -> str:
    """`0, 7, 14, …, 56`."""
    if len(values) <= SHOWN_MAX:
        return ", ".join(values)
    return ", ".join([*values[: SHOWN_MAX - 1], "…", values[-1]])
