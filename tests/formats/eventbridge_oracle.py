"""The fire times of EventBridge Scheduler, by its documentation: shares no code with our renderer.

It is stricter than the service: only what the user guide describes is read.  A time in a gap is left out; of
a time that is shown twice the guide says that it fires once, but not when, so the oracle does not rely on it.
"""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MINUTE = timedelta(minutes=1)
LONGEST = 256


class Cron(NamedTuple):
    minutes: frozenset[int]
    hours: frozenset[int]
    days: str
    months: frozenset[int]
    weekdays: str
    years: frozenset[int]

    def matches(self, at: datetime) -> bool:
        is_time = at.minute in self.minutes and at.hour in self.hours
        return is_time and at.month in self.months and at.year in self.years and self._is_day(at)

    def _is_day(self, at: datetime) -> bool:
        if self.days != "?":
            if self.days == "L":
                return at.day == monthrange(at.year, at.month)[1]
            return at.day in _values(self.days, 1, 31)
        weekday, sharp, nth = self.weekdays.partition("#")
        today = at.isoweekday() % 7 + 1  # Sunday is 1
        if sharp:
            return today == int(weekday) and (at.day - 1) // 7 + 1 == int(nth)
        return today in _values(self.weekdays, 1, 7, WEEKDAYS)


def parse_cron(expression: str) -> Cron:
    """Six fields; what the guide does not describe is an AssertionError."""
    assert len(expression) <= LONGEST, expression
    form = re.fullmatch(r"cron\(([^()]*)\)", expression)
    assert form, expression
    words = form[1].split(" ")
    assert len(words) == 6, expression
    minute, hour, day, month, weekday, year = words
    assert (day == "?") != (weekday == "?"), f"{expression}: exactly one of the day fields is ?"
    if day not in ("?", "L"):
        _values(day, 1, 31)
    if re.fullmatch(r"[1-7]#[1-5]", weekday) is None and weekday != "?":
        _values(weekday, 1, 7, WEEKDAYS)
    return Cron(
        minutes=_values(minute, 0, 59),
        hours=_values(hour, 0, 23),
        days=day,
        months=_values(month, 1, 12, MONTHS),
        weekdays=weekday,
        years=_values(year, 1970, 2199),
    )


@lru_cache
def _values(word: str, low: int, high: int, names: tuple[str, ...] = ()) -> frozenset[int]:
    found: set[int] = set()
    for item in word.split(","):
        form = re.fullmatch(r"(\*|\w+)(?:-(\w+)|/(\d+))?", item)
        assert form, f"{item!r} is not in the guide"
        if form[1] == "*":
            assert not form[2]
            first, last = low, high
        else:
            first = _value(form[1], low, names)
            last = _value(form[2], low, names) if form[2] else high if form[3] else first
        step = int(form[3] or 1)
        assert low <= first <= last <= high and step > 0, f"{item} is not in {low}-{high}"
        found.update(range(first, last + 1, step))
    return frozenset(found)


def _value(word: str, low: int, names: tuple[str, ...]) -> int:
    return names.index(word) + low if word in names else int(word)


def certain_fire_times(expression: str, zone: str, since: datetime, until: datetime) -> set[datetime]:
    """The minutes in (since, until] in which it certainly fires."""
    place = ZoneInfo(zone)
    if expression.startswith("at("):
        shown = datetime.strptime(expression, "at(%Y-%m-%dT%H:%M:%S)").replace(tzinfo=place)
        return {at for at in [shown.astimezone(UTC)] if since < at <= until}
    cron = parse_cron(expression)
    at, found = since.replace(second=0, microsecond=0), set[datetime]()
    while at < until:
        at += MINUTE
        shown = at.astimezone(place)
        if cron.matches(shown) and not _is_shown_twice(shown):
            found.add(at)
    return found


def _is_shown_twice(shown: datetime) -> bool:
    return shown.replace(fold=0).utcoffset() != shown.replace(fold=1).utcoffset()
