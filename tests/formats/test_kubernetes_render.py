"""CronJob schedules fire at every instant of their schedule, and rarely at other times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.formats import robfig_oracle as robfig
from tests.hosts.cloud_schedules import UNRINGABLE, cases, is_exact, parsed
from tests.hosts.schedule_texts import DST, PATIENT, SCHEDULES, ZONES

from detent.errors import UsageError
from detent.formats.kubernetes.render import cronjob_schedules
from detent.schedules.host_fields import shifts_of
from detent.schedules.timetable import Timetable, once

DAY = timedelta(days=1)
AWKWARD = (*ZONES, "Asia/Beirut", "America/Havana", "Africa/Cairo", "Atlantic/Azores")


@pytest.mark.parametrize(
    ("text", "zone", "schedules"),
    [
        ("*/5 * * * *", "UTC", ["*/5 * * * * Etc/UTC"]),
        ("*/5 * * * *", "Europe/Berlin", ["*/5 * * * * Etc/UTC"]),
        ("15 * * * *", "Asia/Kolkata", ["45 * * * * Etc/UTC"]),
        ("30 2 * * *", "Asia/Tokyo", ["30 2 * * * Asia/Tokyo"]),
        ("0 12 * * *", "Europe/Berlin", ["0 12 * * * Europe/Berlin"]),
        ("30 2 * * *", "Europe/Berlin", ["30 2 * * * Europe/Berlin", "*/30 0,1 25-31 3,10 * Etc/UTC"]),
        ("0 9 * * MON-FRI", "Europe/Berlin", ["0 9 * * 1-5 Europe/Berlin"]),
        ("0 9 * * SUN", "UTC", ["0 9 * * 0 Etc/UTC"]),
        ("0 9 * * 7", "UTC", ["0 9 * * 0 Etc/UTC"]),
        ("0 0 13 * FRI", "UTC", ["0 0 13 * 5 Etc/UTC"]),
        ("0 0 L * *", "UTC", ["0 0 28-31 * * Etc/UTC"]),
        ("0 0 * * 1#2", "UTC", ["0 0 * * 1 Etc/UTC"]),
        ("@every 7m", "UTC", ["* * * * * Etc/UTC"]),
        ("@every 6h", "Europe/Berlin", ["0 */6 * * * Etc/UTC"]),
        ("@every 24h", "UTC", ["0 0 * * * Etc/UTC"]),
        ("@every 36h", "UTC", ["0 */12 * * * Etc/UTC"]),
        ("@every 90m", "UTC", ["*/30 * * * * Etc/UTC"]),
    ],
)
def test_a_schedule_is_rendered_in_its_shortest_form(text: str, zone: str, schedules: list[str]) -> None:
    assert [" ".join(schedule) for schedule in cronjob_schedules(parsed(text, zone).instants)] == schedules


def test_a_single_instant_fires_every_year() -> None:
    assert cronjob_schedules(once("2026-12-24T18:00+01:00").instants) == [("0 17 24 12 *", "Etc/UTC")]


@pytest.mark.parametrize("text", UNRINGABLE)
def test_an_unsupported_schedule_is_refused_with_advice(text: str) -> None:
    with pytest.raises(UsageError, match="detent run"):
        cronjob_schedules(parsed(text).instants)


def test_the_oracle_knows_what_the_controller_does_about_changes() -> None:
    """A gap swallows, a fold repeats, and in Beirut a whole Sunday is lost."""
    gap, fold = datetime(2026, 3, 28, tzinfo=UTC), datetime(2026, 10, 24, tzinfo=UTC)
    assert len(robfig.fire_times("30 2 * * *", "Europe/Berlin", gap, gap + 3 * DAY)) == 2
    assert len(robfig.fire_times("30 2 * * *", "Europe/Berlin", fold, fold + 3 * DAY)) == 4
    assert robfig.fire_times("0 12 * * 0", "Asia/Beirut", gap, gap + 3 * DAY) == []


@settings(PATIENT, max_examples=15)
@given(cases(AWKWARD))
def test_cronjobs_fire_at_every_instant_and_without_clock_changes_at_no_other(
    case: tuple[str, str, Timetable, datetime],
) -> None:
    text, zone, schedule, middle = case
    _check(schedule, middle, text, zone)


def _check(schedule: Timetable, middle: datetime, text: str, zone: str) -> None:
    since, until = middle - DAY, middle + 1.1 * DAY
    due = set(schedule.between(since, until))
    schedules = cronjob_schedules(schedule.instants)
    fired = {
        at for schedule in schedules for at in robfig.fire_times(*schedule, since - DAY, until) if at > since
    }
    assert due <= fired, (schedules, sorted(due - fired))
    if len(schedules) == 1 and is_exact(text, zone, since, until):
        assert due == fired, schedules


@example("0 12 * * 0", "Asia/Beirut", "vixie")
@example("0 2 * * *", "Australia/Lord_Howe", "vixie")
@example("27 14 * * *", "Australia/Lord_Howe", "vixie")
@example("30 0 * * *", "America/Santiago", "vixie")
@example("30 2 * * *", "Europe/Berlin", "twice")
@example("*/20 1-3 * * *", "America/Havana", "twice")
@settings(PATIENT, max_examples=4)
@given(SCHEDULES, st.sampled_from(AWKWARD), st.sampled_from(DST))
def test_no_change_of_two_years_loses_an_instant(text: str, zone: str, dst: str) -> None:
    try:
        schedule = parsed(text, zone, dst)
    except UsageError:
        assume(False)
    for change in shifts_of(zone)[:4]:
        _check(schedule, datetime.fromtimestamp(change.at - change.at % 60, UTC), text, zone)
