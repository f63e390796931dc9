"""Combined schedules: several expressions, `@every`, single instants, bounds; and rules for all of them."""

import random
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.schedules.oracles import random_expression

from detent.errors import UsageError
from detent.schedules.timetable import Timetable, combine, notes_for, once, parse_instant, parse_schedule

NOON = datetime(2026, 5, 6, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata")


def first_times(schedule: Timetable, count: int) -> list[str]:
    at, found = NOON, []
    for _ in range(count):
        following = schedule.after(at)
        assert following is not None
        at = following
        found.append(f"{at:%m-%d %H:%M:%S}")
    return found


# Laws.


@st.composite
def schedules(draw: st.DrawFn) -> Timetable:
    rng = random.Random(draw(st.integers(0, 10**9)))
    rule, zone = rng.choice(("vixie", "skip", "twice", "utc")), rng.choice(ZONES)
    parts: list[Timetable] = []
    while not parts or rng.random() < 0.3:
        expression = rng.choice((random_expression(rng), f"@every {rng.randint(1, 90_000)}s"))
        try:
            parts.append(parse_schedule(expression, timezone=zone, dst=rule))
        except UsageError:
            continue
    return combine(parts)


INSTANTS = st.datetimes(datetime(1975, 1, 1), datetime(2120, 1, 1), timezones=st.just(UTC))


@settings(max_examples=100, deadline=None)
@given(schedules(), INSTANTS)
def test_after_and_before_are_each_others_inverse(schedule: Timetable, at: datetime) -> None:
    after, before = schedule.after(at), schedule.before(at)
    assert after is not None and before is not None
    assert before < at < after
    assert after.utcoffset() == before.utcoffset() == timedelta(0)
    assert after.microsecond == before.microsecond == 0
    between = schedule.after(before)
    assert between in (at, after)
    assert schedule.before(after) in (at, before)
    assert schedule.after(after - SECOND) == after
    assert schedule.before(before + SECOND) == before


@settings(max_examples=50, deadline=None)
@given(schedules(), INSTANTS)
def test_between_repeats_after_and_includes_its_end_only(schedule: Timetable, at: datetime) -> None:
    walked = [at]
    for _ in range(20):
        following = schedule.after(walked[-1])
        assert following is not None
        walked.append(following)
    assert list(schedule.between(at, walked[-1])) == walked[1:]
    assert list(schedule.between(walked[1], walked[-1] - SECOND)) == walked[2:-1]
    assert list(schedule.between(walked[-1], walked[-1])) == []


@settings(max_examples=30, deadline=None)
@given(schedules(), INSTANTS)
def test_the_zone_of_the_argument_does_not_matter(schedule: Timetable, at: datetime) -> None:
    elsewhere = at.astimezone(timezone(timedelta(hours=-7)))
    assert schedule.after(elsewhere) == schedule.after(at)
    assert schedule.before(elsewhere) == schedule.before(at)


@settings(max_examples=30, deadline=None)
@given(schedules(), st.lists(INSTANTS, min_size=2, max_size=8))
def test_no_answer_depends_on_earlier_calls(schedule: Timetable, asked: list[datetime]) -> None:
    alone = [schedule.after(at) for at in asked]
    assert [schedule.after(at) for at in reversed(asked)] == alone[::-1]


def test_fractions_of_a_second_do_not_skip_or_add_instants() -> None:
    schedule = parse_schedule("* * * * *")
    half = timedelta(microseconds=500_000)
    assert schedule.after(NOON - half) == NOON
    assert schedule.after(NOON) == schedule.after(NOON + half) == NOON + timedelta(minutes=1)
    assert schedule.before(NOON + half) == NOON
    assert schedule.before(NOON) == schedule.before(NOON - half) == NOON - timedelta(minutes=1)
    assert list(schedule.between(NOON - half, NOON + half)) == [NOON]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Pacific/Kiritimati", "Pacific/Pago_Pago"])
@pytest.mark.parametrize("expression", ["*/5 * * * *", "0 0 29 2 *", "@every 7s"])
def test_the_first_and_last_year_raise_no_error(zone: str, expression: str) -> None:
    schedule = parse_schedule(expression, timezone=zone)
    latest, earliest = datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)
    assert schedule.after(latest) is None
    assert schedule.before(earliest) is None
    last, first = schedule.before(latest), schedule.after(earliest)
    assert last is not None and last.year >= 9996
    assert first is not None and first.year <= 4


# @every.


@pytest.mark.parametrize(
    ("text", "version", "period_s"),
    [
        ("@every 60s", 1, 60),
        ("@every 5m", 1, 300),
        ("@every 2H", 1, 7_200),
        ("@EVERY 1s", 2, 1),
        ("@every 1h30m", 2, 5_400),
        ("@every 1h1m1s", 2, 3_661),
        ("@every 90m", 2, 5_400),
    ],
)
def test_every_counts_from_the_epoch_in_any_zone(text: str, version: int, period_s: int) -> None:
    found = parse_schedule(text, version=version, timezone="Asia/Kolkata").after(NOON)
    assert found is not None
    assert found.timestamp() % period_s == 0
    assert 0 < (found - NOON).total_seconds() <= period_s


# Several as one.


def test_an_instant_of_several_expressions_counts_once() -> None:
    both = combine(parse_schedule(text) for text in ("0 */2 * * *", "0 */3 * * *", "30 13 * * *"))
    expected = ["05-06 13:30:00", "05-06 14:00:00", "05-06 15:00:00", "05-06 16:00:00", "05-06 18:00:00"]
    assert first_times(both, 5) == expected
    assert both.before(NOON) == datetime(2026, 5, 6, 10, tzinfo=UTC)


def test_an_empty_list_of_schedules_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one schedule"):
        combine([])


def test_starts_at_and_ends_at_are_inclusive() -> None:
    hourly = parse_schedule("@hourly")
    bounded = combine([hourly], starts_at="2026-05-06T14:00Z", ends_at=NOON + timedelta(hours=4))
    assert first_times(bounded, 3) == ["05-06 14:00:00", "05-06 15:00:00", "05-06 16:00:00"]
    assert bounded.after(NOON + timedelta(hours=4)) is None
    assert bounded.before(NOON + timedelta(days=9)) == NOON + timedelta(hours=4)
    assert bounded.before(NOON + timedelta(hours=2)) is None
    assert combine([hourly], starts_at="2026-05-06T14:00:00.5Z").after(NOON) == NOON + timedelta(hours=3)


FORM = "write a date, a time and an offset, such as 2026-12-24T18:00:00+01:00"
SECOND_OF_MAY, END_OF_MAY = "2026-05-02T00:00Z", "2026-05-30T00:00Z"


@pytest.mark.parametrize(
    ("starts_at", "ends_at", "message"),
    [
        (END_OF_MAY, SECOND_OF_MAY, f'bad ends_at "{SECOND_OF_MAY}": it is before starts_at {END_OF_MAY}'),
        (SECOND_OF_MAY, END_OF_MAY, f"bad schedule: it never fires between {SECOND_OF_MAY} and {END_OF_MAY}"),
        ("tomorrow", None, f'bad starts_at "tomorrow": {FORM}'),
        (None, "2026-05-30", f'bad ends_at "2026-05-30": {FORM}'),
    ],
)
def test_bounds_without_an_instant_are_refused(
    starts_at: str | None, ends_at: str | None, message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        combine([parse_schedule("@monthly")], starts_at=starts_at, ends_at=ends_at)
    assert str(refused.value) == message


def test_a_single_instant_outside_its_bounds_is_refused() -> None:
    with pytest.raises(UsageError, match="it never fires from 2027-01-01T00:00Z on"):
        combine([once("2026-12-24T18:00+01:00")], starts_at="2027-01-01T00:00Z")
    with pytest.raises(UsageError, match="it never fires until 2026-01-01T00:00Z"):
        combine([once("2026-12-24T18:00+01:00")], ends_at="2026-01-01T00:00Z")


# One-offs.


def test_a_one_off_is_one_instant() -> None:
    eve = datetime(2026, 12, 24, 17, tzinfo=UTC)
    for given_at in ("2026-12-24T18:00+01:00", "2026-12-24t18:00:00+01:00", "2026-12-24 17:00:00Z", eve):
        schedule = once(given_at)
        assert schedule.after(NOON) == schedule.after(eve - SECOND) == eve
        assert schedule.after(eve) is None and schedule.before(eve) is None
        assert schedule.before(eve + SECOND) == eve
        assert list(schedule.between(NOON, eve)) == [eve]
    merged = combine([once(eve), parse_schedule("0 17 24 12 *")])
    assert list(merged.between(NOON, NOON + timedelta(days=300))) == [eve]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", FORM),
        ("2026-12-24", FORM),
        ("2026-12-24T18:00", FORM),
        ("20261224T1800Z", FORM),
        ("2026-W52-4T18:00Z", FORM),
        ("2026-02-30T18:00Z", FORM),
        ("2026-12-24T18:00 Europe/Berlin", FORM),
        ("2026-12-24T18:00:00.5Z", "write whole seconds"),
        ("0001-01-01T00:00+14:00", "it is outside the supported years"),
    ],
)
def test_a_bad_one_off_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        once(text)
    assert str(refused.value) == f'bad at "{text}": {message}'


def test_an_instant_is_read_as_utc() -> None:
    assert parse_instant("2026-12-24T18:00-05:30", "starts_at") == datetime(2026, 12, 24, 23, 30, tzinfo=UTC)


# Zones and rules.


@pytest.mark.parametrize(
    ("zone", "advice"),
    [
        ("Europe/Berln", "did you mean Europe/Berlin?"),
        ("berlin", "did you mean Europe/Berlin?"),
        ("New York", "did you mean America/New_York?"),
        ("Mars/Olympus", "write one such as UTC or Europe/Berlin"),
        ("", "write one such as UTC or Europe/Berlin"),
        ("../../etc/passwd", "write one such as UTC or Europe/Berlin"),
        ("/etc/localtime", "write one such as UTC or Europe/Berlin"),
        ("localtime", "write one such as UTC or Europe/Berlin"),
    ],
)
def test_an_unknown_zone_is_refused_with_a_suggestion(zone: str, advice: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_schedule("@daily", timezone=zone)
    assert str(refused.value) == f'bad timezone "{zone}": no such IANA name; {advice}'


@pytest.mark.parametrize("zone", ["Europe", "right/UTC", "posix/Europe/Berlin", "a\0b"])
def test_entries_that_are_not_places_are_refused(zone: str) -> None:
    with pytest.raises(UsageError, match="no such IANA name"):
        parse_schedule("@daily", timezone=zone)


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(UsageError, match='bad dst "never": it is not vixie, skip, twice or utc'):
        parse_schedule("@daily", dst="never")


def test_a_merged_schedule_has_the_notes_of_its_due_expressions() -> None:
    texts = ("30 2 * * *", "45 2 * * *", "@every 1h")
    parts = [parse_schedule(text, timezone="Europe/Berlin") for text in texts]
    merged = combine(parts, starts_at=datetime(2026, 1, 1, tzinfo=UTC))
    after_the_gap = datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert notes_for(merged, after_the_gap) == (
        "02:30 does not exist on 2026-03-29 in Europe/Berlin; fires right after the gap; "
        "02:45 does not exist on 2026-03-29 in Europe/Berlin; fires right after the gap"
    )
    assert notes_for(merged, datetime(2026, 10, 25, 0, 30, tzinfo=UTC)).startswith("02:30 happens twice")
    assert notes_for(merged, datetime(2026, 10, 25, 1, tzinfo=UTC)) == ""
