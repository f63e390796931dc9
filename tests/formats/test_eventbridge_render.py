"""EventBridge expressions fire at every instant of their schedule, and rarely at other times."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from tests.formats.eventbridge_oracle import certain_fire_times, parse_cron
from tests.hosts.cloud_schedules import UNRINGABLE, cases, is_exact, parsed
from tests.hosts.schedule_texts import PATIENT, ZONES

from detent.errors import UsageError
from detent.formats.eventbridge.render import schedule_expressions
from detent.schedules.timetable import Timetable, once

DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("text", "zone", "expressions"),
    [
        ("*/5 * * * *", "UTC", ["cron(0/5 * * * ? *) UTC"]),
        ("*/5 * * * *", "Europe/Berlin", ["cron(0/5 * * * ? *) UTC"]),
        ("30 2 * * *", "Asia/Tokyo", ["cron(30 2 * * ? *) Asia/Tokyo"]),
        (
            "30 2 * * *",
            "Europe/Berlin",
            ["cron(30 2 * * ? *) Europe/Berlin", "cron(0,30 0,1 25-31 3,10 ? *) UTC"],
        ),
        ("0 9 * * MON-FRI", "UTC", ["cron(0 9 ? * 2-6 *) UTC"]),
        ("0 9 * * SUN", "UTC", ["cron(0 9 ? * 1 *) UTC"]),
        ("0 9 * * SAT,7", "UTC", ["cron(0 9 ? * 1,7 *) UTC"]),
        ("0 0 13 * FRI", "UTC", ["cron(0 0 13 * ? *) UTC", "cron(0 0 ? * 6 *) UTC"]),
        ("0 0 */2 * FRI", "UTC", ["cron(0 0 ? * 6 *) UTC"]),
        ("0 0 L * *", "UTC", ["cron(0 0 L * ? *) UTC"]),
        ("0 0 15W * *", "UTC", ["cron(0 0 13-17 * ? *) UTC"]),
        ("0 0 * * 1#2", "UTC", ["cron(0 0 ? * 2#2 *) UTC"]),
        ("0 0 * * 5L", "UTC", ["cron(0 0 ? * 6 *) UTC"]),
        ("@every 7m", "UTC", ["cron(* * * * ? *) UTC"]),
        ("@every 6h", "UTC", ["cron(0 0/6 * * ? *) UTC"]),
    ],
)
def test_a_schedule_is_rendered_in_its_shortest_form(text: str, zone: str, expressions: list[str]) -> None:
    assert [
        " ".join(expression) for expression in schedule_expressions(parsed(text, zone).instants)
    ] == expressions


def test_a_single_instant_is_rendered_as_at() -> None:
    assert schedule_expressions(once("2026-12-24T18:00+01:00").instants) == [
        ("at(2026-12-24T17:00:00)", "UTC")
    ]


@pytest.mark.parametrize("text", UNRINGABLE)
def test_an_unsupported_schedule_is_refused_with_advice(text: str) -> None:
    with pytest.raises(UsageError, match="detent run"):
        schedule_expressions(parsed(text).instants)


@pytest.mark.parametrize(
    "wrong",
    [
        "cron(hello)",
        "cron(0 9 * * 1-5 *)",
        "cron(0 9 ? * ? *)",
        "cron(0 9 ? * 0 *)",
        "cron(60 9 * * ? *)",
        "cron(0 9 * * ?)",
        "cron(0 9 * * ? *) ",
        "cron(5-1 9 * * ? *)",
    ],
)
def test_the_oracle_takes_only_what_the_guide_describes(wrong: str) -> None:
    with pytest.raises((AssertionError, ValueError)):
        parse_cron(wrong)


@settings(PATIENT, max_examples=15)
@given(cases(ZONES))
def test_expressions_fire_at_every_instant_and_without_clock_changes_at_no_other(
    case: tuple[str, str, Timetable, datetime],
) -> None:
    text, zone, schedule, middle = case
    since, until = middle - DAY, middle + DAY
    due = set(schedule.between(since, until))
    expressions = schedule_expressions(schedule.instants)
    fired = set().union(*(certain_fire_times(*expression, since, until) for expression in expressions))
    assert due <= fired, (expressions, sorted(due - fired))
    if len(expressions) == 1 and is_exact(text, zone, since, until):
        assert due == fired, expressions
