"""Calendar events of systemd against what systemd itself answered, and against a plain search of days."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.errors import UsageError
from detent.formats.systemd.calendar import ALL_WEEKDAYS, Calendar, parse_calendar
from detent.formats.systemd.schedules import NEVER, Span, spans_of
from detent.schedules.timetable import Timetable, combine, once, parse_schedule

BASE = datetime(2026, 1, 1, tzinfo=UTC)
INEXACT = {  # systemd has instants for these, and no schedule of ours names exactly them
    "Thu 2026..2027-*-13 0:30",
    "Fri *-*-13",
    "Mon..Fri *-*-15",
    "*-*~2",
    "*-02~03",
    "*-*~1..3",
    "Mon *-*~8..14",
    "Mon..Fri *-*~1",
    "2026/2-1-1",
}


def recorded() -> list[tuple[str, str, str]]:
    lines = (Path(__file__).parent / "systemd_calendar.txt").read_text().splitlines()
    rows = [line.split(" | ") for line in lines if not line.startswith("#")]
    return [(expression, zone, answer) for expression, zone, answer in rows]


TABLE = recorded()
ELAPSING = [row for row in TABLE if row[2] not in ("refused", "never") and row[0] not in INEXACT]


def timetable(spans: list[Span]) -> Timetable:
    return combine(
        combine(
            [once(span.at)]
            if span.at
            else [parse_schedule(s, timezone=span.timezone) for s in span.schedules],
            starts_at=span.starts_at or None,
            ends_at=span.ends_at or None,
        )
        for span in spans
    )


def instants(answer: str) -> list[datetime]:
    return [datetime.fromisoformat(text).replace(tzinfo=UTC) for text in answer.split()]


def first(schedule: Timetable, count: int) -> list[datetime]:
    found: list[datetime] = []
    while len(found) < count and (at := schedule.after(found[-1] if found else BASE)) is not None:
        found.append(at)
    return found


def test_the_table_is_large_enough_to_mean_something() -> None:
    assert len(ELAPSING) >= 60


@pytest.mark.parametrize(("expression", "zone", "answer"), ELAPSING)
def test_an_event_elapses_when_systemd_says(expression: str, zone: str, answer: str) -> None:
    spans = spans_of(parse_calendar(expression), zone)
    assert not any(span.fault for span in spans)
    assert first(timetable(spans), 5) == instants(answer)


@pytest.mark.parametrize("expression", sorted(INEXACT))
def test_an_inexact_conversion_has_a_fault_and_loses_no_instant(expression: str) -> None:
    answer = next(answer for other, _, answer in TABLE if other == expression)
    spans = spans_of(parse_calendar(expression), "UTC")
    assert all(span.fault for span in spans)
    due = timetable(spans)
    wanted = instants(answer)
    assert wanted and [at for at in wanted if due.after(at - timedelta(seconds=1)) != at] == []


@pytest.mark.parametrize("expression", [row[0] for row in TABLE if row[2] == "refused"])
def test_an_event_that_systemd_refuses_is_refused(expression: str) -> None:
    with pytest.raises(UsageError, match="bad calendar event"):
        parse_calendar(expression)


@pytest.mark.parametrize("expression", ["2026-02-29", "*-2-30", "2025..2027-2-29"])
def test_a_day_that_does_not_exist_never_fires(expression: str) -> None:
    assert [span.fault for span in spans_of(parse_calendar(expression), "UTC")] == [NEVER]


@pytest.mark.parametrize(
    ("expression", "schedules"),
    [
        ("*-*-* 02:30", ("30 2 * * *",)),
        ("*:0/15", ("*/15 * * * *",)),
        ("Mon..Fri 08..18:00/20:30", ("30 */20 8-18 * * MON-FRI",)),
        ("Mon *-*-1..7", ("0 0 * * MON#1",)),
        ("Mon *-*~7/1", ("0 0 * * 1L",)),
        ("*-*~1", ("0 0 L * *",)),
        ("Sun *-*-13", ("0 0 13 * */7",)),
        ("Mon *-*-1,2", ("0 0 */31,2 * MON",)),
        ("Sat,Sun 10:00", ("0 10 * * SAT,SUN",)),
        ("*-1,4~2", ("0 0 30 1 *", "0 0 29 4 *")),
        ("*-*-1/2", ("0 0 1-31/2 * *",)),
    ],
)
def test_an_event_is_rendered_in_its_shortest_form(expression: str, schedules: tuple[str, ...]) -> None:
    assert spans_of(parse_calendar(expression), "UTC")[0].schedules == schedules


def test_a_zone_of_the_event_wins_over_the_machines() -> None:
    assert spans_of(parse_calendar("daily Asia/Tokyo"), "Europe/Berlin")[0].timezone == "Asia/Tokyo"
    assert spans_of(parse_calendar("daily"), "Europe/Berlin")[0].timezone == "Europe/Berlin"


def test_fractions_of_a_second_are_refused_with_the_reason() -> None:
    with pytest.raises(UsageError, match="whole second"):
        parse_calendar("*:*:0.5")


def values(low: int, high: int) -> st.SearchStrategy[frozenset[int]]:
    return st.one_of(
        st.just(frozenset(range(low, high + 1))),
        st.frozensets(st.integers(low, high), min_size=1, max_size=9),
        st.tuples(st.integers(low, high), st.integers(low, high)).map(
            lambda ends: frozenset(range(min(ends), max(ends) + 1))
        ),
    )


@st.composite
def calendars(draw: st.DrawFn) -> Calendar:
    from_end = draw(st.booleans())
    weeks = st.sampled_from([frozenset(range(n, n + 7)) for n in (1, 8, 15, 22)])
    return Calendar(
        years=draw(st.one_of(st.none(), st.frozensets(st.integers(2024, 2029), min_size=1, max_size=4))),
        months=draw(values(1, 12)),
        days=draw(st.one_of(values(1, 28 if from_end else 31), weeks)),
        hours=frozenset((draw(st.integers(0, 23)),)),
        minutes=frozenset((0,)),
        seconds=frozenset((0,)),
        weekdays=draw(st.one_of(st.just(ALL_WEEKDAYS), values(0, 6))),
        from_end=from_end,
    )


def fits(calendar: Calendar, day: date) -> bool:
    next_month = (day.replace(day=1) + timedelta(days=31)).replace(day=1)
    counted = (next_month - day).days if calendar.from_end else day.day
    in_year = calendar.years is None or day.year in calendar.years
    weekday = day.isoweekday() % 7
    return (
        in_year and day.month in calendar.months and counted in calendar.days and weekday in calendar.weekdays
    )


@settings(max_examples=50, deadline=None)
@given(calendars())
def test_the_days_are_exactly_those_that_fit_or_there_is_a_fault(calendar: Calendar) -> None:
    days = [date(2024, 1, 1) + timedelta(days=n) for n in range(6 * 365)]
    wanted = {day for day in days if fits(calendar, day)}
    spans = spans_of(calendar, "UTC")
    if any(span.fault == NEVER for span in spans):
        assert not wanted
        return
    start = datetime(2023, 12, 31, 23, 59, tzinfo=UTC)
    until = datetime.combine(days[-1], datetime.max.time(), tzinfo=UTC)
    found = {at.date() for at in timetable(spans).between(start, until)}
    if any(span.fault for span in spans):
        assert wanted <= found
    else:
        assert wanted == found
