"""The fire times of the CronJob controller: robfig/cron v3.0.1 step by step, with Go's calendar as it is.

It shares nothing with the code under test.  The walk is `SpecSchedule.Next`, its peculiarities included:
`*/2` is no star, midnights that do not exist are corrected by whole hours, hours are added as real time.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
EPOCH = datetime(1970, 1, 1)
YEARS_AHEAD = 5
HOUR_S, MINUTE_S = 3_600, 60


class Parsed(NamedTuple):
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    stars: tuple[bool, ...]

    def matches_day(self, at: Moment) -> bool:
        by_day, by_week = at.shown.day in self.days, at.shown.isoweekday() % 7 in self.weekdays
        return by_day and by_week if self.stars[2] or self.stars[4] else by_day or by_week


def parse(schedule: str) -> Parsed:
    """As `ParseStandard` does; what it would not take is an AssertionError."""
    words = schedule.split()
    assert len(words) == 5, schedule
    fields = [_field(word, low, high) for word, (low, high) in zip(words, RANGES, strict=True)]
    return Parsed(*(values for values, _ in fields), stars=tuple(star for _, star in fields))


def _field(word: str, low: int, high: int) -> tuple[frozenset[int], bool]:
    found: set[int] = set()
    has_star = False
    for item in word.split(","):
        form = re.fullmatch(r"(\*|\?|\d+(?:-\d+)?)(?:/(\d+))?", item)
        assert form, f"{item!r} is nothing that robfig/cron reads"
        step = int(form[2] or 1)
        first, _, last = form[1].partition("-")
        if form[1] in "*?":
            start, end = low, high
            has_star |= step == 1
        else:
            start = int(first)
            end = int(last) if last else high if form[2] else start
        assert low <= start <= end <= high and step > 0, f"{item} is not in {low}-{high}"
        found.update(range(start, end + 1, step))
    return frozenset(found), has_star


class Moment:
    """Go's `time.Time` in a location, to the second."""

    def __init__(self, unix: int, place: ZoneInfo) -> None:
        self.unix, self.place = unix, place
        self.shown = datetime.fromtimestamp(unix, place).replace(tzinfo=None)

    def add(self, seconds: int) -> Moment:
        return Moment(self.unix + seconds, self.place)

    def add_date(self, months: int, days: int) -> Moment:
        shown = self.shown
        year, month = divmod(shown.year * 12 + shown.month - 1 + months, 12)
        first = datetime(year, month + 1, 1, shown.hour, shown.minute, shown.second)
        return date(first + timedelta(days=shown.day - 1 + days), self.place)


def date(shown: datetime, place: ZoneInfo) -> Moment:
    """Go's `time.Date`: one guess of the offset, and one correction."""
    as_utc = int((shown - EPOCH).total_seconds())
    offset = _offset(as_utc, place)
    corrected = _offset(as_utc - offset, place)
    return Moment(as_utc - corrected, place)


def _offset(unix: int, place: ZoneInfo) -> int:
    offset = datetime.fromtimestamp(unix, place).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def next_ring(schedule: Parsed, after: Moment) -> Moment | None:
    """`SpecSchedule.Next`."""
    at: Moment | None = after.add(1)
    last_year = after.shown.year + YEARS_AHEAD
    state = {"added": False}
    while at is not None and at.shown.year <= last_year:
        at, is_found = _walk(schedule, at, state)
        if is_found:
            return at
    return None


def _walk(schedule: Parsed, at: Moment, state: dict[str, bool]) -> tuple[Moment, bool]:
    """One pass from the month down to the second; False: it wrapped around, and starts again."""
    while at.shown.month not in schedule.months:
        if not state["added"]:
            state["added"] = True
            at = date(at.shown.replace(day=1, hour=0, minute=0, second=0), at.place)
        at = at.add_date(1, 0)
        if at.shown.month == 1:
            return at, False
    while not schedule.matches_day(at):
        if not state["added"]:
            state["added"] = True
            at = date(at.shown.replace(hour=0, minute=0, second=0), at.place)
        at = at.add_date(0, 1)
        if at.shown.hour > 12:
            at = at.add((24 - at.shown.hour) * HOUR_S)
        elif at.shown.hour:
            at = at.add(-at.shown.hour * HOUR_S)
        if at.shown.day == 1:
            return at, False
    while at.shown.hour not in schedule.hours:
        if not state["added"]:
            state["added"] = True
            at = date(at.shown.replace(minute=0, second=0), at.place)
        at = at.add(HOUR_S)
        if at.shown.hour == 0:
            return at, False
    while at.shown.minute not in schedule.minutes:
        if not state["added"]:
            state["added"] = True
            at = Moment(at.unix - at.unix % MINUTE_S, at.place)
        at = at.add(MINUTE_S)
        if at.shown.minute == 0:
            return at, False
    while at.shown.second:
        if not state["added"]:
            state["added"] = True
        at = at.add(1)
        if at.shown.second == 0:
            return at, False
    return at, True


def fire_times(schedule: str, zone: str, since: datetime, until: datetime) -> list[datetime]:
    """All fire times in (since, until], each computed from the one before, as the controller does."""
    parsed, found = parse(schedule), list[datetime]()
    at: Moment | None = Moment(int(since.timestamp()), ZoneInfo(zone))
    while at is not None:
        at = next_ring(parsed, at)
        if at is None or at.unix > until.timestamp():
            break
        found.append(datetime.fromtimestamp(at.unix, UTC))
    return found
