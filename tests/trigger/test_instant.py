"""Which instant a trigger is for, as a table."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from detent.schedules.timetable import parse_schedule
from detent.trigger.instant import newest_instant, upcoming_instant

HOURLY, MINUTELY = (parse_schedule(text, version=2) for text in ("0 * * * *", "* * * * *"))


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-03-01T{text}").replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("now", "due"), [("02:00:00", "02:00:00"), ("02:00:03", "02:00:00"), ("01:59:59.9", "01:00:00")]
)
def test_the_newest_instant_is_chosen(now: str, due: str) -> None:
    assert newest_instant(HOURLY, at(now)) == at(due)


AWAITED = [  # the store's time, the host's time, and the instant that the trigger waits for
    ("a clock that is early", HOURLY, "01:59:50", "02:00:00", "02:00:00"),
    ("by almost a minute", HOURLY, "01:59:01", "02:00:00", "02:00:00"),
    ("by a minute", HOURLY, "01:59:00", "02:00:00", ""),
    ("clocks that agree, just before", HOURLY, "01:59:50", "01:59:50", "02:00:00"),
    ("clocks that agree, long before", HOURLY, "01:59:30", "01:59:30", ""),
    ("a late trigger of each minute", MINUTELY, "02:00:05", "02:00:05", ""),
    ("a late clock", MINUTELY, "02:00:20", "02:00:00", ""),
    ("an early clock of each minute", MINUTELY, "02:00:50", "02:01:00", "02:01:00"),
    ("a host that triggers too often", HOURLY, "01:59:00.5", "01:59:00.5", ""),
]


@pytest.mark.parametrize(
    ("what", "schedule", "now", "fired_at", "due"), AWAITED, ids=[row[0] for row in AWAITED]
)
def test_only_a_trigger_for_the_next_instant_waits_for_it(
    what: str, schedule: object, now: str, fired_at: str, due: str
) -> None:
    found = upcoming_instant(schedule, at(now), at(fired_at))  # type: ignore[arg-type]
    assert found == (at(due) if due else None)
