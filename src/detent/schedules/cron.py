"""One cron expression as bit masks: finds the next and the previous matching time on a plain calendar.

- Times are local seconds: the time on a wall clock, counted as if it were UTC.  `schedules.wallclock`
  handles zones and changes of the UTC offset.
- The minutes of a day are an integer of 1440 bits, the seconds one of 60, the days of a year one of 366.
  To find the next match, shift and take the lowest bit.
- An expression that matches no day of any year is refused, so every search ends.
"""

from datetime import date
from functools import lru_cache
from typing import NamedTuple

from detent.errors import UsageError
from detent.schedules.cronfields import (
    DAY_OF_MONTH,
    DAY_OF_WEEK,
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    Field,
    Grammar,
    parse_field,
)
from detent.schedules.yeardays import (
    EPOCH_ORDINAL,
    KINDS,
    MONTH_LENGTHS,
    YEAR_MAX,
    DayRule,
    days_of_year,
    find_year,
)
from detent.text import listed, plural

DAY_S = 86_400
AT_SECOND_0 = Field(text="0", mask=1, is_open=False)
SHORTCUTS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class Fields(NamedTuple):
    """The six fields of an expression.  An expression of five fields has second 0."""

    second: Field
    minute: Field
    hour: Field
    day_of_month: Field
    month: Field
    day_of_week: Field


class Pattern:
    """The local times that an expression matches."""

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        self._rule = DayRule(fields.day_of_month, fields.month, fields.day_of_week)
        self._days: list[int | None] = [None] * KINDS
        self._seconds = fields.second.mask
        self._minutes = fields.minute.mask * sum(
            1 << 60 * hour for hour in range(24) if fields.hour.mask >> hour & 1
        )
        self._first_s = lowest(self._minutes) * 60 + lowest(self._seconds)
        self._last_s = highest(self._minutes) * 60 + highest(self._seconds)
        self._first_second = lowest(self._seconds)
        self._today = -1 << 62  # midnight of the last matching day: most calls are about the same day
        self._year = (0, 0, 0)  # last used year: first day, day after its end, matching days

    def at_or_after(self, local: int) -> int | None:
        """Return the first match that is not earlier.  This is the hot path, so it avoids calls."""
        of_day = local - self._today
        if not 0 <= of_day < DAY_S:
            found = self._find_midnight(local // DAY_S)
            if found is None or found > local:
                return None if found is None else found + self._first_s
            of_day = local - found
        minutes = self._minutes >> of_day // 60
        if minutes & 1 and (seconds := self._seconds >> of_day % 60):
            return local + (seconds & -seconds).bit_length() - 1
        if minutes := minutes >> 1:
            return local - of_day % 60 + 60 * (minutes & -minutes).bit_length() + self._first_second
        found = self._find_midnight(local // DAY_S + 1)
        return None if found is None else found + self._first_s

    def at_or_before(self, local: int) -> int | None:
        day, of_day = divmod(local, DAY_S)
        found = self._day_until(day)
        if found == day:
            minute, second = divmod(of_day, 60)
            if self._minutes >> minute & 1 and (seconds := self._seconds & (2 << second) - 1):
                return local - second + highest(seconds)
            if minutes := self._minutes & (1 << minute) - 1:
                return day * DAY_S + 60 * highest(minutes) + highest(self._seconds)
            found = self._day_until(day - 1)
        return None if found is None else found * DAY_S + self._last_s

    def fires_ever(self) -> bool:
        return any(self._days_of(kind) for kind in range(KINDS))

    def _find_midnight(self, day: int) -> int | None:
        """Return the midnight of the first matching day that is not earlier, and remember it."""
        found = self._day_from(day)
        if found is None:
            return None
        self._today = midnight = found * DAY_S
        return midnight

    def _day_from(self, day: int) -> int | None:
        first, until, days = self._year
        if not first <= day < until:
            first, until, days = self._load_year(day)
        if left := days >> day - first:
            return day + lowest(left)
        return self._first_day_after(until)

    def _first_day_after(self, until: int) -> int | None:
        for number in range(date.fromordinal(until + EPOCH_ORDINAL - 1).year + 1, YEAR_MAX + 1):
            year = find_year(number)
            if days := self._days_of(year.kind):
                return year.first + lowest(days)
        return None

    def _day_until(self, day: int) -> int | None:
        first, until, days = self._year
        if not first <= day < until:
            first, until, days = self._load_year(day)
        if left := days & (2 << day - first) - 1:
            return first + highest(left)
        for number in range(date.fromordinal(first + EPOCH_ORDINAL).year - 1, 0, -1):
            year = find_year(number)
            if days := self._days_of(year.kind):
                return year.first + highest(days)
        return None

    def _load_year(self, day: int) -> tuple[int, int, int]:
        """Return the year of this day, and remember it."""
        year = find_year(date.fromordinal(day + EPOCH_ORDINAL).year)
        self._year = (year.first, year.until, self._days_of(year.kind))
        return self._year

    def _days_of(self, kind: int) -> int:
        days = self._days[kind]
        if days is None:
            days = self._days[kind] = days_of_year(self._rule, kind)
        return days


def lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def highest(bits: int) -> int:
    return bits.bit_length() - 1


@lru_cache(maxsize=4096)
def parse_cron(text: str, grammar: Grammar) -> Pattern:
    """Parse five fields (in version 2 also six) or a shortcut such as `@daily`."""
    words = SHORTCUTS.get(text.lower(), text).split()
    if len(words) != 5 and not (len(words) == 6 and grammar.version >= 2):
        raise UsageError(_wrong_count(len(words), grammar))
    second = AT_SECOND_0 if len(words) == 5 else parse_field(words[0], SECOND, grammar)
    ranges = (MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK)
    rest = (parse_field(word, within, grammar) for word, within in zip(words[-5:], ranges, strict=True))
    pattern = Pattern(Fields(second, *rest))
    if not pattern.fires_ever():
        raise UsageError(f"it never fires: {_why_never(pattern.fields)}")
    return pattern


def _wrong_count(count: int, grammar: Grammar) -> str:
    found = f"it has {plural(count, 'field')}"
    five = "5 (minute, hour, day of month, month, day of week)"
    if grammar.version < 2:
        return f"{found}; version 1 takes {five}"
    return f"{found}; write {five}, or 6 with the second first"


def _why_never(fields: Fields) -> str:
    longest = max(
        length + (month == 2)
        for month, length in enumerate(MONTH_LENGTHS, 1)
        if fields.month.mask >> month & 1
    )
    if fields.day_of_month.mask and lowest(fields.day_of_month.mask) > longest:
        days = [str(day) for day in range(longest, 32) if fields.day_of_month.mask >> day & 1]
        return f"none of its months has a day {listed(days)}"
    return "no year has a day that matches all day fields"
