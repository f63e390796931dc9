"""Parses systemd's calendar events (`OnCalendar=Mon..Fri *-*-* 09:00`) into sets of values.

- Weekdays, a date, a time and a time zone are optional: `Sat *-*-1..7 18:00 Europe/Berlin`.
- A component is `*` or a list of values `a`, ranges `a..b` and repetitions `a/n`, `a..b/n`.
- A `~` before the day counts from the end of the month; a repetition continues towards the end.
- Everything that systemd refuses is refused: backward ranges, repetitions that never happen, `*/n`.
- Fractions of a second are refused, because a fire is due at a whole second.
"""

import re
from datetime import UTC, datetime
from typing import NamedTuple

from detent.errors import UsageError
from detent.schedules.zones import open_zone
from detent.text import quote

YEAR_LOW, YEAR_HIGH = 1970, 2199  # the limits of systemd
FROM_END_HIGH = 28  # every month has this many days
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
ALL_WEEKDAYS = frozenset(range(7))
SHORTHANDS = {
    "minutely": "*-*-* *:*:00",
    "hourly": "*-*-* *:00:00",
    "daily": "*-*-* 00:00:00",
    "weekly": "Mon *-*-* 00:00:00",
    "monthly": "*-*-01 00:00:00",
    "quarterly": "*-01,04,07,10-01 00:00:00",
    **dict.fromkeys(("yearly", "annually", "anually"), "*-01-01 00:00:00"),
    **dict.fromkeys(("biannually", "bi-annually", "semiannually", "semi-annually"), "*-01,07-01 00:00:00"),
}

_ITEM = re.compile(r"(\d+)(?:\.\.(\d+))?(?:/(\d+))?")
_DATE = re.compile(r"(?:(?:([^-~]+)-)?([^-~]+)([-~]))([^-~]+)")
_TIME = re.compile(r"([^:]+):([^:]+)(?::([^:]+))?")
_NUMBER = re.compile(r"\d{1,10}")


class Calendar(NamedTuple):
    """The local times of one expression: all components must match."""

    years: frozenset[int] | None  # None for every year
    months: frozenset[int]
    days: frozenset[int]
    hours: frozenset[int]
    minutes: frozenset[int]
    seconds: frozenset[int]
    weekdays: frozenset[int] = ALL_WEEKDAYS  # 0 is Sunday
    from_end: bool = False  # days count from the end of the month: 1 is the last day
    zone: str = ""  # "" for the machine's zone


def parse_calendar(text: str) -> Calendar:
    try:
        return _parse(text.split())
    except UsageError as error:
        raise UsageError(f"bad calendar event {quote(text)}: {error}") from None


def _parse(words: list[str]) -> Calendar:
    zone = _zone(words[-1]) if words else ""
    if zone:
        words = words[:-1]
    if not words:
        raise UsageError("the expression is empty")
    if len(words) == 1 and words[0].lower() in SHORTHANDS:
        words = SHORTHANDS[words[0].lower()].split()
    if words[0].startswith("@"):
        words, zone = _from_unix_time(words), "UTC"
    weekdays = ALL_WEEKDAYS
    if words[0][0].isalpha():
        weekdays = _weekdays(words[0])
        words = words[1:]
    return _dated(words)._replace(weekdays=weekdays, zone=zone)


def _from_unix_time(words: list[str]) -> list[str]:
    number = words[0][1:]
    if len(words) > 1 or not _NUMBER.fullmatch(number):
        raise UsageError(f"{quote(words[0])} is not @ and the seconds since 1970")
    return f"{datetime.fromtimestamp(int(number), UTC):%Y-%m-%d %H:%M:%S}".split()


def _zone(word: str) -> str:
    """Return the word if it is a zone, or an empty text."""
    if word.upper() == "UTC":
        return "UTC"
    first = re.split(r",|\.\.|-", word, maxsplit=1)[0].lower()
    is_weekday = any(first in (day, day[:3]) for day in WEEKDAYS)
    if not word[0].isalpha() or word.lower() in SHORTHANDS or is_weekday:
        return ""
    return open_zone(word).name


def _weekdays(word: str) -> frozenset[int]:
    found: set[int] = set()
    for item in word.removesuffix(",").split(","):
        first, _, last = item.replace("..", "-").partition("-")
        low, high = _weekday(first), _weekday(last or first)
        if low > high:
            raise UsageError(f"the range {quote(item)} is backwards; a week ends with Sunday")
        found.update((day + 1) % 7 for day in range(low, high + 1))
    return frozenset(found)


def _weekday(name: str) -> int:
    for i, day in enumerate(WEEKDAYS):
        if name.lower() in (day, day[:3]):
            return i
    raise UsageError(f"{quote(name)} is neither a weekday nor a time zone")


def _dated(words: list[str]) -> Calendar:
    """Parse the date and the time.  The defaults are every day and midnight."""
    date = words[0] if words and ":" not in words[0] else "*-*-*"
    rest = words[1:] if words and ":" not in words[0] else words
    if len(rest) > 1:
        raise UsageError(f"{quote(rest[1])} follows the time, where only a time zone is allowed")
    day, time = _DATE.fullmatch(date), _TIME.fullmatch(rest[0] if rest else "0:0")
    if day is None:
        raise UsageError(f"{quote(date)} is not a date such as *-*-*, *-12-24 or 2026-12-24")
    if time is None:
        raise UsageError(f"{quote(rest[0])} is not a time such as 02:00 or *:0/15")
    from_end = day[3] == "~"
    return Calendar(
        years=None if day[1] in (None, "*") else _years(day[1]),
        months=_values(day[2], 1, 12),
        days=_days_from_end(day[4]) if from_end else _values(day[4], 1, 31),
        hours=_values(time[1], 0, 23),
        minutes=_values(time[2], 0, 59),
        seconds=_seconds(time[3] or "0"),
        from_end=from_end,
    )


def _years(text: str) -> frozenset[int]:
    """Parse years.  Two digits mean 1970 to 2069."""
    items = []
    for item in text.split(","):
        span, slash, step = item.partition("/")
        items.append("..".join(_full_year(year) for year in span.split("..")) + slash + step)
    return _values(",".join(items), YEAR_LOW, YEAR_HIGH)


def _full_year(text: str) -> str:
    if not _NUMBER.fullmatch(text) or int(text) >= 100:
        return text
    return str(int(text) + (2000 if int(text) < 70 else 1900))


def _seconds(text: str) -> frozenset[int]:
    whole = re.sub(r"\.0+(?=$|[,/])", "", text)
    if re.search(r"\d\.\d", whole):
        raise UsageError(f"{quote(text)} has fractions of a second; a fire is due at a whole second")
    return _values(whole, 0, 59)


def _days_from_end(text: str) -> frozenset[int]:
    """Parse days that count from the end, so that `~07/1` is the last seven days."""
    if text == "*":
        return _values(text, 1, 31)
    found: set[int] = set()
    for item in text.split(","):
        low, high, step = _item(item, 1, FROM_END_HIGH)
        if high is not None:
            found.update(range(low, high + 1, step or 1))
        elif step < low:
            found.update(range(low, 0, -step) if step else (low,))
        else:
            raise _never_repeats(item, low - 1)
    return frozenset(found)


def _values(text: str, low: int, high: int) -> frozenset[int]:
    if text == "*":
        return frozenset(range(low, high + 1))
    found: set[int] = set()
    for item in text.split(","):
        first, last, step = _item(item, low, high)
        if last is None and first + step > high:
            raise _never_repeats(item, high - first)
        until = last if last is not None else high if step else first
        found.update(range(first, until + 1, step or 1))
    return frozenset(found)


def _never_repeats(item: str, room: int) -> UsageError:
    return UsageError(f"{quote(item)} never repeats: the step is more than {room}")


def _item(item: str, low: int, high: int) -> tuple[int, int | None, int]:
    """Return the first value, the last value of a range or None, and the step or 0."""
    match = _ITEM.fullmatch(item)
    if match is None or any(len(number) > 10 for number in match.groups("")):
        raise UsageError(f"{quote(item)} is not a value, a range a..b or a repetition a/n")
    first, last = int(match[1]), int(match[2]) if match[2] else None
    step = int(match[3]) if match[3] else 0
    for value in (first, last):
        if value is not None and not low <= value <= high:
            raise UsageError(f"{value} in {quote(item)} is not in {low}–{high}")
    if last is not None and first > last:
        raise UsageError(f"the range {quote(item)} is backwards")
    if match[3] and not step:
        raise UsageError(f"the step of {quote(item)} is 0")
    return first, last, step
