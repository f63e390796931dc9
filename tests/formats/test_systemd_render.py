"""Schedules as calendar events elapse when systemd says, which is when they should."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.formats.cron_oracle import utc
from tests.formats.systemd_oracle import elapses, needs_systemd_analyze
from tests.hosts.schedule_texts import DST, PATIENT, SCHEDULES, ZONES

from detent.errors import UsageError
from detent.formats.systemd.render import calendar_events
from detent.schedules.host_fields import shifts_of
from detent.schedules.timetable import Timetable, once, parse_schedule

COUNT = 20
LAST = datetime(9000, 1, 1, tzinfo=UTC)


def parsed(text: str, zone: str = "UTC", dst: str = "vixie") -> Timetable:
    return parse_schedule(text, timezone=zone, dst=dst, seed="shop.backup")


@pytest.mark.parametrize(
    ("text", "zone", "events"),
    [
        ("30 2 * * *", "UTC", ["*-*-* 02:30:00 UTC"]),
        ("30 2 * * *", "Asia/Tokyo", ["*-*-* 02:30:00 Asia/Tokyo"]),
        ("*/10 * * * * *", "UTC", ["*-*-* *:*:00..50/10 UTC"]),
        ("0 0 13 * 5", "UTC", ["*-*-13 00:00:00 UTC", "Fri *-*-* 00:00:00 UTC"]),
        ("0 0 * * MON#2", "UTC", ["Mon *-*-08..14 00:00:00 UTC"]),
        ("0 0 * * 5L", "UTC", ["Fri *-*~07/1 00:00:00 UTC"]),
        ("0 0 L * *", "UTC", ["*-*~01 00:00:00 UTC"]),
        ("0 9 * * MON-FRI", "America/New_York", ["Mon..Fri *-*-* 09:00:00 America/New_York"]),
        ("@every 7m", "UTC", ["*-*-* *:*:00 UTC"]),
        ("@every 90m", "Asia/Tokyo", ["*-*-* 00..21/3:00:00 UTC", "*-*-* 01..22/3:30:00 UTC"]),
        (
            "30 2 * * *",
            "Europe/Berlin",
            [
                "*-*-* 02:30:00 Europe/Berlin",
                "Sun *-03-25..31 00..02:00,30:00 UTC",
                "Sun *-10-25..31 00..02:00,30:00 UTC",
            ],
        ),
    ],
)
def test_a_schedule_is_rendered_in_its_shortest_form(text: str, zone: str, events: list[str]) -> None:
    assert calendar_events(parsed(text, zone).instants) == events


def test_a_year_outside_systemds_range_is_refused() -> None:
    with pytest.raises(UsageError, match="1970 to 2199"):
        calendar_events(once("2300-01-01T00:00Z").instants)
    assert calendar_events(once("2026-12-24T18:00:30+01:00").instants) == ["2026-12-24 17:00:30 UTC"]


def test_a_schedule_at_boot_is_refused() -> None:
    with pytest.raises(UsageError, match="detent run"):
        calendar_events(parsed("@reboot").instants)


@needs_systemd_analyze
@settings(PATIENT, max_examples=10)
@given(st.data())
def test_in_utc_the_next_elapses_are_the_instants(data: st.DataObject) -> None:
    text = data.draw(st.one_of(SCHEDULES, st.sampled_from(["*/7 * * * * *", "@every 90s", "5,9 3 4 * * 1"])))
    assume("28W" not in text)  # in February a Friday more
    try:
        schedule = parsed(text)
    except UsageError:
        assume(False)
    since = datetime.fromtimestamp(data.draw(st.integers(1_700_000_000, 2_000_000_000)), UTC)
    due = list(islice(schedule.between(since, LAST), COUNT))
    elapsed = elapses(calendar_events(schedule.instants), since, COUNT)
    assert_contained(due, elapsed)
    if not text.startswith("@every") or 86_400 % period_s(schedule) == 0:
        assert elapsed[: len(due)] == due[: len(elapsed)]


@needs_systemd_analyze
@pytest.mark.parametrize("dst", ["vixie", "twice"])
@pytest.mark.parametrize("text", ["30 1,2 * * *", "0 * * * *"])
@pytest.mark.parametrize(
    ("zone", "change"),
    [
        ("Europe/Berlin", "2027-03-28T01:00"),
        ("Europe/Berlin", "2027-10-31T01:00"),
        ("America/New_York", "2027-03-14T07:00"),
        ("America/New_York", "2027-11-07T06:00"),
        ("Australia/Lord_Howe", "2027-04-03T15:00"),
    ],
)
def test_no_instant_is_lost_around_a_change_of_offset(text: str, zone: str, change: str, dst: str) -> None:
    schedule, since = parsed(text, zone, dst), utc(change) - timedelta(hours=3)
    due = list(schedule.between(since, since + timedelta(hours=30)))
    elapsed = elapses(calendar_events(schedule.instants), since, 60)
    assert due and set(due) <= set(elapsed), sorted(set(due) - set(elapsed))


@needs_systemd_analyze
@settings(PATIENT, max_examples=5)
@given(st.data())
def test_in_any_zone_the_elapses_contain_the_instants(data: st.DataObject) -> None:
    """Mostly around changes of offset, where systemd has rules of its own."""
    text, zone = data.draw(SCHEDULES), data.draw(st.sampled_from(ZONES))
    try:
        schedule = parsed(text, zone, data.draw(st.sampled_from(DST)))
    except UsageError:
        assume(False)
    changes = [shift.at for shift in shifts_of(zone)] or [int(utc("2026-06-01").timestamp())]
    since = datetime.fromtimestamp(
        data.draw(st.sampled_from(changes)) - data.draw(st.integers(1, 7_200)), UTC
    )
    due = list(islice(schedule.between(since, LAST), COUNT))
    assert_contained(due, elapses(calendar_events(schedule.instants), since, COUNT))


def period_s(schedule: Timetable) -> int:
    return getattr(schedule.instants, "period_s", 86_400)


def assert_contained(due: list[datetime], elapsed: list[datetime]) -> None:
    within = [at for at in due if elapsed and at <= elapsed[-1]]
    assert set(within) <= set(elapsed), sorted(set(within) - set(elapsed))
