"""Schedules around changes of the UTC offset, compared with a search of every minute."""

import random
from datetime import UTC, datetime, timedelta, tzinfo

import pytest
from tests.schedules.oracles import Change, Naive, changes, expression_near, try_every_minute, wall

from detent.schedules.cron import parse_cron
from detent.schedules.cronfields import Grammar
from detent.schedules.timetable import notes_for, parse_schedule
from detent.schedules.wallclock import Dst, WallClock
from detent.schedules.zones import STRETCH_S, Zone, open_zone

RULES = ("vixie", "skip", "twice", "utc")
NEAR = timedelta(hours=27)
EDGE = 53 * STRETCH_S
SAMPLE = (
    ("Europe/Berlin", 2026),
    ("Europe/Berlin", 2061),  # by the zone's rule: the table ends in 2037
    ("America/New_York", 2026),
    ("Australia/Lord_Howe", 2026),  # half an hour
    ("Antarctica/Troll", 2026),  # two hours
    ("Africa/Casablanca", 2025),  # for a month, in Ramadan; newer databases differ on 2026
    ("Europe/Dublin", 2026),  # winter time is the exception
    ("Pacific/Apia", 2011),  # a whole day is left out
    ("America/St_Johns", 2006),  # at one minute past midnight
    ("Asia/Pyongyang", 2015),  # another standard offset
    ("America/Sao_Paulo", 2018),  # at midnight: some days start at one o'clock
)
BY_SAMPLE = [change for zone, year in SAMPLE for change in changes(zone, year)]


def test_the_sample_contains_the_expected_changes() -> None:
    assert len(BY_SAMPLE) == 22
    assert Change("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)) in BY_SAMPLE


def asked_at_random(rng: random.Random, change: Change) -> list[datetime]:
    """In random order, because caches of one call must not affect the next."""
    minutes = [timedelta(minutes=rng.randint(-90, 90)) for _ in range(20)]
    return [change.at + minute for minute in minutes] + [change.at - timedelta(seconds=1)]


@pytest.mark.parametrize("change", BY_SAMPLE, ids=lambda change: f"{change.zone}@{change.at:%Y-%m-%d}")
def test_around_a_change_every_rule_agrees_with_a_search_of_every_minute(change: Change) -> None:
    since, until = change.at - NEAR, change.at + NEAR
    minutes = wall(change.zone, since, until)
    shown = next(minute.shown for minute in minutes if minute.at == change.at)
    rng = random.Random(f"{change}")
    for rule in RULES:
        for expression in [expression_near(rng, shown) for _ in range(5)]:
            expected = [at for at in try_every_minute(Naive(expression), rule, minutes) if at > since]
            schedule = parse_schedule(expression, timezone=change.zone, dst=rule)
            assert list(schedule.between(since, until)) == expected, (expression, rule)
            backwards, at = [], schedule.before(until + timedelta(microseconds=1))
            while at is not None and at > since:
                backwards.append(at)
                at = schedule.before(at)
            assert backwards[::-1] == expected, (expression, rule)
            for at in asked_at_random(rng, change):
                if following := [later for later in expected if later > at]:
                    assert schedule.after(at) == following[0], (expression, rule, at)


def test_the_windows_of_a_zone_agree_with_a_search_of_every_hour() -> None:
    for zone, year in SAMPLE:
        at, end = (int(datetime(y, 1, 1, tzinfo=UTC).timestamp()) for y in (year, year + 1))
        found, offset = [], open_zone(zone).window(at).offset
        while at < end:
            window = open_zone(zone).window(at)
            if window.offset != offset:
                found.append(Change(zone, datetime.fromtimestamp(window.start, UTC)))
            at, offset = window.until, window.offset
        assert found == changes(zone, year)


def test_a_window_that_ends_with_its_probed_year_changes_nothing() -> None:
    zone = open_zone("Africa/Casablanca")
    for number in range(30, 80):
        edge = number * STRETCH_S
        before, after = zone.window(edge - 1), zone.window(edge)
        assert before.until == after.start == edge
        assert after.high == edge + before.offset


class OneChange(tzinfo):
    """A zone that changes its offset once; instants after the change have `fold` set."""

    def __init__(self, at: int, hours: int) -> None:
        self.at = datetime.fromtimestamp(at, UTC)
        self.offset = timedelta(hours=hours)

    def fromutc(self, dt: datetime) -> datetime:
        is_after = dt.replace(tzinfo=UTC) >= self.at
        return (dt + (self.offset if is_after else timedelta(0))).replace(fold=is_after)

    def utcoffset(self, dt: datetime | None) -> timedelta:
        return self.offset if dt and dt.fold else timedelta(0)

    def dst(self, dt: datetime | None) -> None:
        return None

    def tzname(self, dt: datetime | None) -> str:
        return "One/Change"


@pytest.mark.parametrize(
    ("zone", "rule", "expression", "expected"),
    [  # seconds after the edge, which is at 03:48:16
        (OneChange(EDGE, 1), "vixie", "0 4 * * *", [0]),
        (OneChange(EDGE, 1), "skip", "0 4 * * *", []),
        (OneChange(EDGE, 1), "vixie", "0 5 * * *", [704]),
        (OneChange(EDGE, -1), "vixie", "30 3 * * *", [-1_096]),
        (OneChange(EDGE, -1), "twice", "30 3 * * *", [-1_096, 2_504]),
        (OneChange(EDGE - 1_800, -1), "vixie", "0 3 * * *", [-2_896]),  # the fold goes on over the edge
        (OneChange(EDGE - 1_800, -1), "twice", "0 3 * * *", [-2_896, 704]),
    ],
)
def test_a_change_at_the_end_of_a_probed_year_is_found(
    zone: OneChange, rule: Dst, expression: str, expected: list[int]
) -> None:
    clock = WallClock(parse_cron(expression, Grammar()), Zone("One/Change", zone), rule)
    found = []
    at = clock.next(EDGE - 7_200)
    while at is not None and at < EDGE + 7_200:
        found.append(at - EDGE)
        at = clock.next(at)
    assert found == expected


# The rules as a table, in Berlin: 2026-03-29 has no 02:00–02:59, 2026-10-25 has it twice.

GAP = (datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 3, 29, 12, tzinfo=UTC))
FOLD = (datetime(2026, 10, 24, 12, tzinfo=UTC), datetime(2026, 10, 25, 12, tzinfo=UTC))


@pytest.mark.parametrize(
    ("rule", "gap", "fold"),
    [
        ("vixie", ["01:00"], ["00:30"]),
        ("skip", [], ["00:30"]),
        ("twice", ["01:00"], ["00:30", "01:30"]),
        ("utc", ["02:30"], ["02:30"]),
    ],
)
def test_a_job_at_half_past_two_in_gap_and_fold(rule: str, gap: list[str], fold: list[str]) -> None:
    schedule = parse_schedule("30 2 * * *", timezone="Europe/Berlin", dst=rule)
    assert [f"{at:%H:%M}" for at in schedule.between(*GAP)] == gap
    assert [f"{at:%H:%M}" for at in schedule.between(*FOLD)] == fold


@pytest.mark.parametrize("rule", ["vixie", "skip", "twice"])
def test_a_job_of_every_hour_follows_real_time(rule: str) -> None:
    schedule = parse_schedule("30 * * * *", timezone="Europe/Berlin", dst=rule)
    for since, until in (GAP, FOLD):
        assert len(list(schedule.between(since, until))) == 24


def test_several_times_in_a_gap_fire_once() -> None:
    schedule = parse_schedule("0,15,30 2,3 * * *", timezone="Europe/Berlin")
    assert [f"{at:%H:%M}" for at in schedule.between(*GAP)] == ["01:00", "01:15", "01:30"]


def test_seconds_in_a_gap_fire_right_after_it() -> None:
    schedule = parse_schedule("59 59 2 * * *", timezone="Europe/Berlin")
    assert list(schedule.between(*GAP)) == [datetime(2026, 3, 29, 1, tzinfo=UTC)]


NONE = "02:30 does not exist on 2026-03-29 in Europe/Berlin"
TWO = "02:30 happens twice on 2026-10-25 in Europe/Berlin"


@pytest.mark.parametrize(
    ("rule", "at", "note"),
    [
        ("vixie", "2026-03-29T01:00Z", f"{NONE}; fires right after the gap"),
        ("vixie", "2026-10-25T00:30Z", f"{TWO}; fires the first time only"),
        ("twice", "2026-10-25T00:30Z", f"{TWO}; fires both times, this is the first"),
        ("twice", "2026-10-25T01:30Z", f"{TWO}; fires both times, this is the second"),
        ("vixie", "2026-10-26T01:30Z", ""),
        ("utc", "2026-10-25T02:30Z", ""),
    ],
)
def test_a_note_describes_how_a_change_affects_a_fire(rule: str, at: str, note: str) -> None:
    schedule = parse_schedule("30 2 * * *", timezone="Europe/Berlin", dst=rule)
    instant = datetime.fromisoformat(at)
    assert schedule.after(instant - timedelta(seconds=1)) == instant
    assert notes_for(schedule, instant) == note


@pytest.mark.parametrize("rule", ["vixie", "skip", "twice"])
@pytest.mark.parametrize("at", ["2026-03-29T01:00Z", "2026-10-25T02:00Z"])
def test_a_time_at_the_very_end_of_gap_or_fold_needs_no_note(rule: str, at: str) -> None:
    schedule = parse_schedule("0 3 * * *", timezone="Europe/Berlin", dst=rule)
    instant = datetime.fromisoformat(at)
    assert schedule.after(instant - timedelta(seconds=1)) == instant
    assert notes_for(schedule, instant) == ""
