"""The fire times of Vixie's cron, minute by minute: an oracle that shares nothing with the code under test.

As Debian's cron(8) says: local time that jumps ahead by less than three hours makes good at once what has
fixed times; while local time repeats itself, what has fixed times does not run again; a line whose hour or
minute starts with `*` follows the clock.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
MINUTE = timedelta(minutes=1)


class Line(NamedTuple):
    values: tuple[frozenset[int], ...]
    stars: tuple[bool, ...]

    def matches(self, at: datetime) -> bool:
        minute, hour, day, month, weekday = self.values
        today = at.isoweekday() % 7
        by_day, by_week = at.day in day, today in weekday or (today == 0 and 7 in weekday)
        either = not (self.stars[2] or self.stars[4])
        days = by_day or by_week if either else by_day and by_week
        return at.minute in minute and at.hour in hour and at.month in month and days

    @property
    def follows_the_clock(self) -> bool:
        return self.stars[0] or self.stars[1]


def read_line(fields: str) -> Line:
    words = fields.split()
    assert len(words) == 5, fields
    values = tuple(_read(word, low, high) for word, (low, high) in zip(words, RANGES, strict=True))
    return Line(values, tuple(word.startswith("*") for word in words))


def _read(word: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for item in word.split(","):
        body, _, step = item.partition("/")
        first, dash, last = body.partition("-")
        if body == "*":
            start, end = low, high
        else:
            start, end = int(first), int(last) if dash else int(first)
            assert not step or dash, f"{item}: a step needs a range"
        assert low <= start <= end <= high, f"{item} is not in {low}-{high}"
        found.update(range(start, end + 1, int(step or 1)))
    return frozenset(found)


def fire_times(fields: str, zone: str, since: datetime, until: datetime) -> list[datetime]:
    """Every minute in (since, until] at which the line is run, in a zone."""
    line, place = read_line(fields), ZoneInfo(zone)
    found: list[datetime] = []
    at = since.replace(second=0, microsecond=0)
    shown = _local(at, place)
    high = shown
    while at < until:
        at += MINUTE
        before, shown = shown, _local(at, place)
        if line.follows_the_clock:
            due = line.matches(shown)
        elif shown > before + MINUTE:
            due = any(line.matches(one) for one in _minutes(max(before, high) + MINUTE, shown))
        else:
            due = shown > high and line.matches(shown)
        high = max(high, shown)
        if due:
            found.append(at)
    return found


def _local(at: datetime, place: ZoneInfo) -> datetime:
    return at.astimezone(place).replace(tzinfo=None)


def _minutes(first: datetime, last: datetime) -> list[datetime]:
    return [first + n * MINUTE for n in range(int((last - first) / MINUTE) + 1)]


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
