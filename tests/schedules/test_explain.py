"""Explanations agree with the schedule, and each reason is true."""

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.schedules.oracles import Change, Naive, changes, expression_near, random_expression, values

from detent.errors import UsageError
from detent.schedules.explain import Answer, explain, explain_skipped, read_wall_clock
from detent.schedules.timetable import Timetable, combine, once, parse_schedule
from detent.schedules.zones import open_zone

SECOND = timedelta(seconds=1)
FIELDS = {
    "minute": (0, 0, 59),
    "hour": (1, 0, 23),
    "day of month": (2, 1, 31),
    "month": (3, 1, 12),
    "day of week": (4, 0, 6),
}
CHANGES = [
    change
    for zone, year in (("Europe/Berlin", 2026), ("Australia/Lord_Howe", 2026), ("America/Sao_Paulo", 2018))
    for change in changes(zone, year)
]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def is_due(schedule: Timetable, instant: datetime) -> bool:
    return list(schedule.between(instant - SECOND, instant)) == [instant]


def check(expression: str, answer: Answer, shown: datetime) -> None:
    """Each named field does not match, and there is a reason if it is not due."""
    words = expression.split()
    for miss in answer.mismatches:
        if miss.field != "second":
            place, low, high = FIELDS[miss.field]
            assert miss.value not in values(words[place], low, high), (expression, miss)
            assert words[place] in miss.words
    named = Naive(expression).names(shown) and shown.second == 0
    if not answer.detail:
        assert answer.is_due is named is (not answer.mismatches), (expression, shown, answer)
    assert answer.is_due or answer.words


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False), st.datetimes(datetime(1975, 1, 1), datetime(2060, 1, 1)))
def test_an_expression_is_due_if_all_fields_match(rng: random.Random, moment: datetime) -> None:
    instant = rng.choice([moment.replace(second=0, microsecond=0), moment.replace(microsecond=0)])
    instant = instant.replace(tzinfo=UTC)
    expression = rng.choice([random_expression(rng), expression_near(rng, instant)])
    try:
        schedule = parse_schedule(expression)
    except UsageError:  # it never fires
        return
    for moment in (instant, schedule.after(instant) or instant):
        [answer] = explain(schedule, moment)
        assert answer.is_due == is_due(schedule, moment)
        assert not answer.detail
        check(expression, answer, moment.replace(tzinfo=None))


@pytest.mark.parametrize("rule", ["vixie", "skip", "twice"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change.zone}@{change.at:%Y-%m-%d}")
def test_around_a_change_of_offset_every_answer_agrees_with_the_schedule(change: Change, rule: str) -> None:
    rng, zone = random.Random(f"{change}{rule}"), ZoneInfo(change.zone)
    for _ in range(40):
        expression = expression_near(rng, change.at.astimezone(zone))
        schedule = parse_schedule(expression, timezone=change.zone, dst=rule)
        for minute in range(-130, 130, 5):
            instant = change.at + timedelta(minutes=minute)
            [answer] = explain(schedule, instant)
            assert answer.is_due == is_due(schedule, instant)
            check(expression, answer, instant.astimezone(zone).replace(tzinfo=None))


@pytest.mark.parametrize(
    ("expression", "instant", "words"),
    [
        ("*/5 * * * *", "2026-11-15T02:07", "minute 07 is not in */5"),
        ("0 9 * * MON-FRI", "2026-11-15T09:00", "day of week: Sunday is not in MON-FRI"),
        ("0 9 1 * *", "2026-11-15T09:00", "day of month 15 is not in 1"),
        ("0 9 * JAN *", "2026-11-15T09:00", "month: November is not in JAN"),
        ("0 9 L * *", "2026-02-27T09:00", "day of month 27 is not in L"),
        ("0 9 * * 5#2", "2026-02-27T09:00", "day of week: Friday is not in 5#2"),
        ("10 * * * * *", "2026-02-27T09:00", "second 00 is not in 10"),
        (
            "0 9 1 * MON",
            "2026-11-15T09:00",
            "day of month 15 is not in 1; day of week: Sunday is not in MON (either day would do)",
        ),
        ("0 9 15 * MON", "2026-11-15T09:00", ""),
        ("0 9 */2 * MON", "2026-11-15T09:00", "day of week: Sunday is not in MON"),
        ("5 9 * * THU", "2026-11-15T10:05", "hour 10 is not in 9; day of week: Sunday is not in THU"),
        (
            "@every 1h30m",
            "2026-11-15T10:05",
            "it counts from 1970-01-01T00:00:00Z; this is 3900 s after one of its instants",
        ),
        ("@hourly", "2026-11-15T10:00", ""),
        ("@reboot", "2026-11-15T10:00", "it is due only when its host has booted"),
    ],
)
def test_the_mismatch_is_explained(expression: str, instant: str, words: str) -> None:
    [answer] = explain(parse_schedule(expression), at(instant))
    assert answer.words == words
    assert answer.is_due == (words == "")


def test_an_h_field_shows_its_value() -> None:
    schedule = parse_schedule("H 9 * * *", seed="demo.backup")
    due_at = schedule.after(at("2026-01-01T00:00"))
    assert due_at
    [answer] = explain(schedule, due_at + timedelta(minutes=1))
    assert answer.mismatches[0].words.endswith(f"is not in H (here {due_at.minute})")


def test_each_expression_of_a_schedule_has_its_own_answer() -> None:
    schedule = combine([parse_schedule("0 9 * * *"), parse_schedule("@every 1h30m")])
    answers = explain(schedule, at("2026-11-15T09:00"))
    assert [(answer.schedule, answer.is_due) for answer in answers] == [
        ("0 9 * * *", True),
        ("@every 1h30m", True),
    ]


@pytest.mark.parametrize(
    ("instant", "words"),
    [
        ("2026-01-31T09:00", "the job starts at 2026-02-01T00:00:00Z"),
        ("2026-02-10T09:00", ""),
        ("2026-03-02T09:00", "the job ended at 2026-03-01T00:00:00Z"),
    ],
)
def test_the_bounds_of_a_job_are_explained(instant: str, words: str) -> None:
    bounds = {"starts_at": "2026-02-01T00:00Z", "ends_at": "2026-03-01T00:00Z"}
    [answer] = explain(combine([parse_schedule("0 9 * * *")], **bounds), at(instant))
    assert (answer.words, answer.is_due) == (words, words == "")


def test_a_single_instant_is_explained() -> None:
    [answer] = explain(once("2026-12-24T18:00+01:00"), at("2026-12-24T18:00"))
    assert answer == Answer(
        "at 2026-12-24T17:00:00Z", False, detail="it is due only once, at 2026-12-24T17:00:00Z"
    )


# Changes of offset.


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe", "America/Sao_Paulo", "UTC"])
@given(st.datetimes(datetime(2010, 1, 1), datetime(2035, 1, 1)))
def test_a_local_time_is_read_as_zoneinfo_reads_it(zone: str, moment: datetime) -> None:
    shown, place = moment.replace(microsecond=0), ZoneInfo(zone)
    found = {
        instant
        for fold in (0, 1)
        for instant in [shown.replace(tzinfo=place, fold=fold).astimezone(UTC)]
        if instant.astimezone(place).replace(tzinfo=None) == shown
    }
    assert read_wall_clock(shown, open_zone(zone)).instants == tuple(sorted(found))


def test_a_repeated_local_time_is_two_instants() -> None:
    reading = read_wall_clock(datetime(2026, 10, 25, 2, 30), open_zone("Europe/Berlin"))
    assert reading == ((at("2026-10-25T00:30"), at("2026-10-25T01:30")), None, None)
    schedule = parse_schedule("30 2 * * *", timezone="Europe/Berlin")
    first, second = (explain(schedule, instant)[0] for instant in reading.instants)
    assert first.is_due and "happens twice" in first.detail
    assert not second.is_due
    assert second.detail == (
        "02:30 happened twice that day in Europe/Berlin, and this is the second time;"
        " under dst: vixie it fires the first time only"
    )


@pytest.mark.parametrize(
    ("hour", "minute", "is_gap"), [(1, 59, False), (2, 0, True), (2, 59, True), (3, 0, False)]
)
def test_a_gap_begins_and_ends_with_the_hour(hour: int, minute: int, is_gap: bool) -> None:
    reading = read_wall_clock(datetime(2026, 3, 29, hour, minute), open_zone("Europe/Berlin"))
    assert (reading.gap is not None, len(reading.instants)) == (is_gap, not is_gap)


@pytest.mark.parametrize(
    ("expression", "rule", "due", "words"),
    [
        ("30 2 * * *", "vixie", True, "under dst: vixie it is due right after the gap instead"),
        ("30 2 * * *", "skip", False, "under dst: skip it does not fire"),
        ("30 * * * *", "vixie", False, "its hour field is *: it follows real time and does not catch up"),
        ("15 2 * * *", "vixie", False, "minute 30 is not in 15"),
        ("30 2 * * *", "utc", False, "under dst: utc its fields are read in UTC: give the time in UTC"),
        ("@every 1h", "vixie", False, "it does not follow the wall clock: give an instant in UTC"),
    ],
)
def test_a_skipped_local_time_is_explained(expression: str, rule: str, due: bool, words: str) -> None:
    shown = datetime(2026, 3, 29, 2, 30)
    reading = read_wall_clock(shown, open_zone("Europe/Berlin"))
    assert reading.instants == ()
    assert reading.gap == (datetime(2026, 3, 29, 2), datetime(2026, 3, 29, 3))
    assert reading.resumes_at == at("2026-03-29T01:00")
    schedule = parse_schedule(expression, timezone="Europe/Berlin", dst=rule)
    [answer] = explain_skipped(schedule, shown, reading.resumes_at)
    assert (answer.words, answer.is_due) == (words, due)
