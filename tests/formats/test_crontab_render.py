"""Crontab fields fire at every instant of their schedule, and rarely at other times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.formats.cron_oracle import fire_times, utc
from tests.hosts.schedule_texts import DST, PATIENT, SCHEDULES, ZONES

from detent.errors import UsageError
from detent.formats.crontab.render import cron_fields
from detent.schedules.host_fields import shifts_of
from detent.schedules.timetable import Timetable, once, parse_schedule

DAY = timedelta(days=1)


def parsed(text: str, zone: str = "UTC", dst: str = "vixie") -> Timetable:
    return parse_schedule(text, timezone=zone, dst=dst, seed="shop.backup")


@pytest.mark.parametrize(
    ("text", "zone", "dst", "host", "fields"),
    [
        ("*/5 * * * *", "UTC", "vixie", "UTC", "*/5 * * * *"),
        ("30 2 * * *", "Europe/Berlin", "vixie", "Europe/Berlin", "30 2 * * *"),
        ("0 9 * * MON-FRI", "UTC", "vixie", "Etc/UTC", "0 9 * * 1-5"),
        ("@every 5m", "UTC", "vixie", "Europe/Berlin", "*/5 * * * *"),
        ("@every 7m", "UTC", "vixie", "UTC", "* * * * *"),
        ("@every 90m", "UTC", "vixie", "UTC", "*/30 * * * *"),
        ("@every 24h", "UTC", "vixie", "Asia/Kolkata", "30 * * * *"),
        ("15 2 * * *", "Asia/Tokyo", "vixie", "UTC", "15 * * * *"),
        ("15 2 * * *", "Asia/Kolkata", "vixie", "UTC", "45 * * * *"),
        ("30 2 * * *", "Europe/Berlin", "vixie", "UTC", "*/30 * * * *"),  # in the gap it fires at 03:00
        ("30 2 * * *", "Europe/Berlin", "skip", "UTC", "30 * * * *"),
        ("30 2 * * *", "Europe/Berlin", "utc", "UTC", "30 2 * * *"),
        ("30 2 * * *", "UTC", "twice", "UTC", "30 2 * * *"),
        ("0 0 */2 * */3", "UTC", "vixie", "UTC", "0 0 */2 * */3"),
        ("0 0 L * *", "UTC", "vixie", "UTC", "0 0 28-31 * *"),
        ("0 0 * * 1#2", "UTC", "vixie", "UTC", "0 0 * * 1"),
        ("0 30 2 * * *", "UTC", "vixie", "UTC", "30 2 * * *"),
    ],
)
def test_a_schedule_is_rendered_in_its_shortest_form(
    text: str, zone: str, dst: str, host: str, fields: str
) -> None:
    assert cron_fields(parsed(text, zone, dst).instants, host) == fields


def test_minutes_have_no_star_where_the_hour_has_none() -> None:
    """cron would treat the line as one that follows real time, and not fire for the gap."""
    assert cron_fields(parsed("*/15 2 * * *").instants, "UTC") == "0-45/15 2 * * *"
    assert cron_fields(parsed("* 2 * * *").instants, "UTC") == "0-59 2 * * *"


@pytest.mark.parametrize("text", ["*/10 * * * * *", "30 0 2 * * *", "@every 90s", "@every 1s"])
def test_seconds_are_refused_with_advice(text: str) -> None:
    with pytest.raises(UsageError, match=r"whole minutes.*detent run"):
        cron_fields(parsed(text).instants, "UTC")


def test_a_single_instant_is_a_date_and_a_time() -> None:
    at = once("2026-12-24T18:00+01:00").instants
    assert cron_fields(at, "Europe/Berlin") == "0 18 24 12 *"
    assert cron_fields(at, "UTC") == "0 17 24 12 *"
    with pytest.raises(UsageError, match="whole minutes"):
        cron_fields(once("2026-12-24T18:00:30Z").instants, "UTC")


def test_the_second_of_two_equal_times_is_not_lost() -> None:
    at = utc("2026-10-25T01:30")  # 02:30 in Berlin, for the second time
    fields = cron_fields(once(at).instants, "Europe/Berlin")
    assert at in fire_times(fields, "Europe/Berlin", at - DAY, at + DAY)


@pytest.mark.parametrize("host", ZONES)
@pytest.mark.parametrize(
    ("zone", "gap"),
    [
        ("Europe/Berlin", "2027-03-28T01:00"),
        ("Australia/Lord_Howe", "2027-10-02T15:30"),
        ("Africa/Casablanca", "2027-03-14T02:00"),
    ],
)
def test_an_instant_in_a_gap_fires_in_any_zone(zone: str, gap: str, host: str) -> None:
    schedule, at = parsed("10 2 * * *", zone), utc(gap)
    assert at in schedule.between(at - DAY, at + DAY)
    assert at in fire_times(cron_fields(schedule.instants, host), host, at - DAY, at + DAY)


def spans(draw: st.DrawFn, zones: tuple[str, str]) -> tuple[datetime, datetime]:
    """Two days, mostly around a change of one of the zones."""
    changes = [shift.at for zone in zones for shift in shifts_of(zone)]
    any_time = st.integers(int(utc("2026-01-01").timestamp()), int(utc("2036-01-01").timestamp()))
    at = draw(st.one_of(st.sampled_from(changes), any_time) if changes else any_time)
    middle = datetime.fromtimestamp(at - at % 60, UTC)
    return middle - DAY, middle + DAY


@settings(PATIENT, max_examples=20)
@given(st.data())
def test_cron_fires_at_every_instant_and_in_the_same_zone_at_no_other(data: st.DataObject) -> None:
    text, zone = data.draw(SCHEDULES), data.draw(st.sampled_from(ZONES))
    host = data.draw(st.sampled_from([zone, "UTC", *ZONES]))
    dst = data.draw(st.sampled_from(DST))
    try:
        schedule = parsed(text, zone, dst)
    except UsageError:
        assume(False)  # it never fires
    fields = cron_fields(schedule.instants, host)
    since, until = data.draw(st.composite(spans)((zone, host)))
    due = list(schedule.between(since, until))
    fired = fire_times(fields, host, since, until)
    assert set(due) <= set(fired), (fields, sorted(set(due) - set(fired)))
    is_plain = (
        host == zone and dst == "vixie" and not text.startswith("@every") and not set(text) & set("LW#")
    )
    if is_plain:
        assert due == fired, fields
