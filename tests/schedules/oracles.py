"""The oracle of the schedule tests: a naive reading of cron, minute by minute, and random expressions.

It shares nothing with the code under test: values in sets instead of masks, datetimes instead of seconds,
every minute tried instead of found.
"""

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
WARM_UP = timedelta(days=2)  # the wall clock's past that may still matter: no clock was ever put back further
BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


class Change(NamedTuple):
    """A change of a zone's offset: the first minute of the new one."""

    zone: str
    at: datetime


class Minute(NamedTuple):
    """An instant and what the wall clock shows at it."""

    at: datetime
    shown: datetime


def values(text: str, low: int, high: int) -> set[int]:
    """The values of a field, without names."""
    found: set[int] = set()
    for item in text.split(","):
        body, _, step = item.partition("/")
        first, _, last = body.partition("-")
        start = low if body == "*" else int(first)
        end = high if body == "*" or (step and not last) else int(last or first)
        found.update(range(start, end + 1, int(step or 1)))
    return found


class Naive:
    """A five-field expression, read naively."""

    def __init__(self, expression: str) -> None:
        words = expression.split()
        self.is_wild = words[1].startswith("*")
        self.both = words[2].startswith("*") or words[4].startswith("*")
        self.minutes, self.hours, self.days, self.months, self.weekdays = (
            values(word, *bounds) for word, bounds in zip(words, BOUNDS, strict=True)
        )

    def names(self, shown: datetime) -> bool:
        if shown.minute not in self.minutes or shown.hour not in self.hours or shown.month not in self.months:
            return False
        by_date, by_weekday = shown.day in self.days, shown.isoweekday() % 7 in self.weekdays
        return by_date and by_weekday if self.both else by_date or by_weekday


def wall(zone: str, since: datetime, until: datetime) -> list[Minute]:
    """Every minute from `since` to `until`, and before it the wall clock's past."""
    place, at, minutes = ZoneInfo(zone), since - WARM_UP, []
    while at <= until:
        minutes.append(Minute(at, at.astimezone(place).replace(tzinfo=None)))
        at += MINUTE
    return minutes


def try_every_minute(naive: Naive, rule: str, minutes: Sequence[Minute]) -> list[datetime]:
    """The instants of an expression among these minutes, found by trying each."""
    found, reached = [], minutes[0].shown
    for minute in minutes:
        if rule == "utc":
            fires = naive.names(minute.at)
        elif naive.is_wild:
            fires = naive.names(minute.shown)
        else:
            makes_good = rule != "skip" and any(map(naive.names, skipped(reached, minute.shown)))
            counts = rule == "twice" or minute.shown >= reached
            fires = makes_good or (counts and naive.names(minute.shown))
        reached = max(reached, minute.shown + MINUTE)
        if fires:
            found.append(minute.at)
    return found


def skipped(reached: datetime, shown: datetime) -> Iterator[datetime]:
    while reached < shown:
        yield reached
        reached += MINUTE


@cache
def changes(zone: str, year: int) -> list[Change]:
    """The changes of a zone's offset in a year, found by asking every hour and then every minute."""
    place, found = ZoneInfo(zone), []
    at, hour = datetime(year, 1, 1, tzinfo=UTC), timedelta(hours=1)
    offset = at.astimezone(place).utcoffset()
    while at.year == year:
        before, offset = offset, (at + hour).astimezone(place).utcoffset()
        if before != offset:
            minute = at
            while minute.astimezone(place).utcoffset() == before:
                minute += MINUTE
            found.append(Change(zone, minute))
        at += hour
    return found


# Random expressions.


def random_field(rng: random.Random, low: int, high: int) -> str:
    kind = rng.randrange(8)
    if kind < 2:
        return "*"
    if kind == 2:
        return f"*/{rng.randint(1, high)}"
    first, last = sorted((rng.randint(low, high), rng.randint(low, high)))
    if (
        first == last
    ):  # croniter reads `7-7` as `*`, cronsim `7-7/2` as `7/2`; for us a range ends where it ends
        return str(first)
    if kind == 3:
        return f"{first}-{last}"
    if kind == 4:
        return f"{first}-{last}/{rng.randint(1, 9)}"
    if kind == 5:
        return ",".join(str(rng.randint(low, high)) for _ in range(rng.randint(2, 4)))
    return str(first)


def random_expression(rng: random.Random) -> str:
    return " ".join(random_field(rng, *bounds) for bounds in BOUNDS)


def expression_near(rng: random.Random, shown: datetime) -> str:
    """An expression that names times near this one, so that a change of offset matters to it."""
    hour = (shown.hour + rng.randint(-2, 2)) % 24
    hours = (str(hour), str(hour), f"{min(hour, 21)}-{min(hour, 21) + 2}", "*", "*/2", "0-23", f"{hour},5,23")
    minutes = ("0", "30", "*/15", "*", f"{rng.randrange(60)}", "59", "1,31", "0-59/7")
    day, weekday = shown.day, shown.isoweekday() % 7
    days = ("* * *", "* * *", f"{day} * *", f"{day} {shown.month} 3", f"*/2 * {weekday}")
    return f"{rng.choice(minutes)} {rng.choice(hours)} {rng.choice(days)}"
