"""The days of a year that match the day fields of a cron expression, as an integer: bit 0 is 1 January.

- There are 14 kinds of year: seven weekdays for 1 January, leap or not.  So each expression needs at most 14
  integers, and `L`, `LW`, `W` and `#` cost nothing during a search.
- If day of month and day of week are both restricted, either matches.  If one is open, both must match.
- `31W` is the weekday nearest to the 31st in the same month.  A month without a 31st has none.
- Day 0 is 1970-01-01, a Thursday.  Weekday 0 is Sunday.
"""

from datetime import date
from functools import lru_cache
from typing import NamedTuple, assert_never

from detent.schedules.cronfields import Field, Special

KINDS = 14
YEAR_MAX = 9999
EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
MONTH_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
WEEKS = sum(1 << 7 * week for week in range(5))  # repeats seven bits for five weeks


class DayRule(NamedTuple):
    day_of_month: Field
    month: Field
    day_of_week: Field


class Year(NamedTuple):
    first: int  # day number of 1 January
    until: int  # of the next 1 January
    kind: int  # 0 to 13


@lru_cache(maxsize=1024)
def find_year(number: int) -> Year:
    first = date(number, 1, 1).toordinal() - EPOCH_ORDINAL
    until = date(number, 12, 31).toordinal() + 1 - EPOCH_ORDINAL
    return Year(first, until, (first + 4) % 7 * 2 + (until - first - 365))


@lru_cache(maxsize=4096)
def days_of_year(rule: DayRule, kind: int) -> int:
    weekday, leap = divmod(kind, 2)
    days = start = 0
    for month, common_length in enumerate(MONTH_LENGTHS, 1):
        length = common_length + (leap if month == 2 else 0)
        if rule.month.mask >> month & 1:
            days |= days_of_month(rule, (weekday + start) % 7, length) << start
        start += length
    return days


def days_of_month(rule: DayRule, weekday: int, length: int) -> int:
    """Return the matching days of a month that starts on this weekday; bit 0 is the 1st."""
    by_date = rule.day_of_month.mask >> 1
    week = rule.day_of_week.mask
    by_weekday = ((week | week << 7) >> weekday & 0b1111111) * WEEKS
    for special in rule.day_of_month.specials:
        by_date |= day_of_special(special, weekday, length)
    for special in rule.day_of_week.specials:
        by_weekday |= day_of_special(special, weekday, length)
    either = not (rule.day_of_month.is_open or rule.day_of_week.is_open)
    days = by_date | by_weekday if either else by_date & by_weekday
    return days & (1 << length) - 1


def day_of_special(special: Special, weekday: int, length: int) -> int:
    """Return the bit of a special day, or 0 if the month has none."""
    match special.kind:
        case "last":
            return 1 << length - 1
        case "last-weekday":
            return 1 << nearest_weekday(length - 1, weekday, length)
        case "nearest-weekday":
            return 1 << nearest_weekday(special.day - 1, weekday, length) if special.day <= length else 0
        case "nth":
            return 1 << (special.day - weekday) % 7 + 7 * (special.nth - 1)
        case "last-of":
            return 1 << length - 1 - (weekday + length - 1 - special.day) % 7
    assert_never(special.kind)


def nearest_weekday(index: int, weekday: int, length: int) -> int:
    """Return the nearest day from Monday to Friday in the same month."""
    match (weekday + index) % 7:
        case 6:
            return index - 1 if index else 2
        case 0:
            return index + 1 if index + 1 < length else index - 2
        case _:
            return index
