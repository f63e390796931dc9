"""Lints: each speaks where it should, with its code and advice, and of an ordinary manifest none does."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.loading.files import read_document
from detent.manifest.check import check_manifest
from detent.manifest.lint.job import LintedJob, lint_job, shared_instant, total_wait_s
from detent.manifest.lint.work import is_private_host, lint_secrets
from detent.manifest.problems import Problem
from detent.schedules.timetable import parse_schedule, period_text

NOW = datetime(2026, 8, 1, 12, tzinfo=UTC)
EXAMPLE = Path(__file__).parents[2] / "examples" / "detent.yaml"
REQUEST = {"url": "https://example.org/x"}


def lints(document: dict[str, Any]) -> list[Problem]:
    manifest = check_manifest(document)
    subjects = [
        LintedJob(name, json.loads(text), manifest.version, NOW) for name, text in manifest.canonical.items()
    ]
    return [problem for subject in subjects for problem in lint_job(subject)]


def lint(version: int = 2, **fields: Any) -> list[Problem]:
    job: dict[str, Any] = {"name": "j", **fields}
    if not {"schedules", "at"} & job.keys():
        job.setdefault("schedule", "@daily")
    if "request" not in job:
        job.setdefault("command", "true")
    return lints({"version": version, "app": "a", "jobs": [job]})


def codes(**fields: Any) -> list[str]:
    return [problem.code for problem in lint(**fields)]


SCHEDULES = [  # schedule, code, part of the message, part of the advice
    ("*/7 * * * *", "uneven-step", "minutes 0, 7, 14, …, 56 and then at 0, 4 minutes later", "@every 7m"),
    ("*/7 * * * *", "uneven-step", "", "*/6 and */10 divide the 60 minutes evenly"),
    ("0/40 * * * *", "uneven-step", "0, 40 and then at 0, 20 minutes later", "*/30 divides the 60"),
    ("*/25 * * * * *", "uneven-step", "seconds 0, 25, 50 and then at 0, 10 seconds", "@every 25s"),
    ("0 */5 * * *", "uneven-step", "hours 0, 5, 10, …, 20 and then at 0, 4 hours", "@every 5h"),
    ("0 0 1 */5 *", "uneven-step", "months 1, 6, 11 and then at 1, 2 months", "*/4 and */6"),
    ("*/90 * * * *", "step-too-large", "it fires at 0 only", "@every 1h30m"),
    ("0 0 */2 * *", "day-step", "days 1, 3, 5, …, 31 and then on day 1: the next day", "@every 48h"),
    ("0 0 */7 * *", "day-step", "days 1, 8, 15, …, 29 and then on day 1: 3 days later", "@every 168h"),
    ("0 0 * * */2", "day-step", "SUN, TUE, THU and SAT and then on SUN again, the next", "MON,WED"),
    ("0 0 31 * *", "short-month", "FEB, APR, JUN, SEP and NOV have no day 31", "write L"),
    ("0 0 15,30 * *", "short-month", "FEB has no day 30", "write L"),
    ("0 0 29 * *", "short-month", "FEB has a day 29 in leap years only", "write L"),
    ("0 0 31 3,4 *", "short-month", "APR has no day 31", "write L"),
    ("0 9 1 * MON", "either-day", "on day 1 of the month and on every MON", "MON#1"),
    ("* 2 * * *", "every-minute", "every minute of hour 2, 60 times", '"0 2 * * *"'),
    ("* 2,14 * * *", "every-minute", "hour 2,14, 120 times", '"0 2,14 * * *"'),
    ("0 * 2 * * *", "every-minute", "every minute of hour 2", '"0 0 2 * * *"'),
    ("* 30 2 * * *", "every-minute", "every second of minute 30", '"0 30 2 * * *"'),
]


@pytest.mark.parametrize(("schedule", "code", "message", "advice"), SCHEDULES)
def test_a_doubtful_schedule_has_a_warning_with_advice(
    schedule: str, code: str, message: str, advice: str
) -> None:
    [problem] = lint(schedule=schedule)
    assert (problem.path, problem.code) == ("schedules/0", code)
    assert message in problem.message
    assert advice in problem.advice


@pytest.mark.parametrize(
    "schedule",
    [
        "*/5 * * * *", "*/7 2 * * *", "*/7 8,10 * * *", "3/7 * * * * *", "0 */5 1 * *", "H/7 * * * *",
        "5-55/10 * * * *", "0 0 28-31 * *", "0 0 29 2 *", "0 0 L * *", "0 0 */2 1 *", "0 0 31 1,3 *",
        "* 9-17 * * MON-FRI", "* * * * *", "* * * * * *", "0 9 ? * MON", "0 0 * * */7", "@every 7m",
        "@monthly", "@reboot",
    ],
)  # fmt: skip
def test_a_clear_schedule_has_no_warning(schedule: str) -> None:
    assert lint(schedule=schedule) == []


POLICY = [
    ({"at": "2020-01-01T00:00Z"}, "past", "at"),
    ({"ends_at": "2026-07-01T00:00Z"}, "past", "ends_at"),
    (
        {"schedule": "*/5 * * * *", "policy": {"timeout_seconds": 600}},
        "timeout-over-interval",
        "policy/timeout_seconds",
    ),
    (
        {"schedule": "*/5 * * * *", "policy": {"retries": {"max_attempts": 10, "max_seconds": 120}}},
        "retries-over-interval",
        "policy/retries",
    ),
    ({"policy": {"start_deadline_seconds": 1}}, "short-deadline", "policy/start_deadline_seconds"),
    ({"policy": {"retries": {"on_exit_codes": [75]}}}, "no-retry", "policy/retries/on_exit_codes"),
    ({"schedules": ["0 9 * * MON-FRI", "@hourly"]}, "overlapping-schedules", "schedules/1"),
    ({"schedule": "@every 24h", "timezone": "Asia/Tokyo"}, "every-in-utc", "schedules/0"),
    ({"command": "serve &"}, "background", "command"),
    ({"command": "date +\\%F"}, "crontab-percent", "command"),
    (
        {"request": {"url": "http://example.org/x"}, "auth": {"secret_refs": ["env:KEY"]}},
        "signed-over-http",
        "request/url",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "code", "path"), POLICY)
def test_a_doubtful_job_has_a_warning_with_a_path_and_advice(
    fields: dict[str, Any], code: str, path: str
) -> None:
    [problem] = lint(**fields)
    assert (problem.code, problem.path) == (code, path)
    assert problem.message
    assert problem.advice


@pytest.mark.parametrize(
    "fields",
    [
        {"schedule": "*/5 * * * *", "policy": {"timeout_seconds": 300}},
        {"schedule": "*/5 * * * *", "policy": {"timeout_seconds": 600, "concurrency": "Queue"}},
        {"schedule": "*/5 * * * *", "policy": {"timeout_seconds": 600, "max_running": 2}},
        {"schedule": "@every 5s", "policy": {"timeout_seconds": 600}},
        {"policy": {"retries": {"max_attempts": 2, "on_exit_codes": [75]}}},
        {"schedules": ["0 9 * * *", "30 9 * * *"]},
        {"schedule": "@every 24h"},
        {"schedule": "@every 2h", "timezone": "Asia/Tokyo"},
        {"command": "serve &", "children": "leave"},
        {"command": "a && b"},
        {"command": "a 2>&1"},
        {"request": {"url": "http://example.org/x"}},
        {"request": {"url": "http://app:8000/x"}, "auth": {"secret_refs": ["env:KEY"]}},
        {"at": "2027-01-01T00:00Z"},
    ],
)
def test_a_job_with_intended_settings_has_no_warning(fields: dict[str, Any]) -> None:
    assert lint(**fields) == []


def test_a_manifest_of_version_1_is_advised_what_it_can_do() -> None:
    request = {"request": REQUEST, "policy": {"timeout_seconds": 600}}
    [month] = lint(version=1, request=REQUEST, schedule="0 0 31 * *")
    assert "version 2" in month.advice
    [timeout] = lint(version=1, schedule="*/5 * * * *", **request)
    assert "Queue" not in timeout.advice


def test_the_example_gives_no_warning() -> None:
    assert lints(read_document(EXAMPLE)[0]) == []


def test_twenty_ordinary_jobs_give_no_warning() -> None:
    schedules = [
        "* * * * *", "*/5 * * * *", "*/15 8-18 * * MON-FRI", "0 * * * *", "17 * * * *", "25 6 * * *",
        "47 6 * * 7", "52 6 1 * *", "0 3 * * *", "30 4 * * SUN", "0 0 1 1 *", "0 9,17 * * *", "0 */6 * * *",
        "5-55/10 * * * *", "@hourly", "@daily", "@every 10m", "0 0 L * *", "0 7 * * MON#1", "H H * * *",
    ]  # fmt: skip
    jobs = [
        {"name": f"job-{i}", "schedule": schedule, "timezone": "Europe/Berlin", "command": f"run {i}"}
        for i, schedule in enumerate(schedules)
    ]
    assert len(jobs) == 20
    assert lints({"version": 2, "app": "a", "jobs": jobs}) == []
    for job in jobs:
        del job["command"]
        job["request"] = REQUEST
    assert lints({"version": 2, "app": "a", "jobs": jobs}) == []


@given(step=st.integers(2, 59))
def test_a_step_is_called_uneven_exactly_when_its_instants_are(step: int) -> None:
    instants = [*parse_schedule(f"*/{step} * * * *").between(NOW, NOW + timedelta(hours=5))]
    is_uneven = len({later - earlier for earlier, later in pairwise(instants)}) > 1
    assert codes(schedule=f"*/{step} * * * *") == (["uneven-step"] if is_uneven else [])


@given(days=st.sets(st.integers(1, 31), min_size=1, max_size=3))
def test_a_day_is_called_missing_exactly_when_a_month_has_none_of_its_days_after_the_28th(
    days: set[int],
) -> None:
    schedule = f"0 0 {','.join(map(str, sorted(days)))} * *"
    lacking = [
        month
        for month, length in enumerate((31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31), 1)
        if any(day > length for day in days) and length not in days
    ]
    assert codes(schedule=schedule) == (["short-month"] if lacking else [])


# Changes of offset.


def local_year(zone: ZoneInfo, hour: int, minute: int) -> list[tuple[datetime, str]]:
    """Each day of the coming year on which a time of the wall clock is skipped or shown twice."""
    found = []
    for day in range(367):
        date = (NOW + timedelta(days=day)).date()
        first = datetime(date.year, date.month, date.day, hour, minute, tzinfo=zone)
        second = first.replace(fold=1)
        if not NOW < first.astimezone(UTC) <= NOW + timedelta(days=366):
            continue
        if first.utcoffset() != second.utcoffset():
            exists = first.astimezone(UTC).astimezone(zone).replace(tzinfo=zone) == first
            found.append((first, "happens twice" if exists else "does not exist"))
    return found


@settings(max_examples=20)
@given(
    zone=st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Tokyo", "UTC"]),
    hour=st.integers(0, 4),
    minute=st.integers(0, 59),
    rule=st.sampled_from(["vixie", "skip", "twice", "utc"]),
)
def test_a_clock_change_is_reported_exactly_if_it_skips_or_repeats_a_fire_time(
    zone: str, hour: int, minute: int, rule: str
) -> None:
    found = lint(schedule=f"{minute} {hour} * * *", timezone=zone, policy={"dst": rule})
    met = [] if rule == "utc" else local_year(ZoneInfo(zone), hour, minute)
    assert [problem.code for problem in found] == (["dst-change"] if met else [])
    for at, what in met:
        assert f"on {at:%Y-%m-%d %H:%M} {what}" in found[0].message


@pytest.mark.parametrize(
    ("schedule", "rule", "message"),
    [
        ("30 2 * * *", "vixie", "on 2027-03-28 02:30 does not exist, it fires at 03:00 instead"),
        ("30 2 * * *", "vixie", "on 2026-10-25 02:30 happens twice, it fires the first time only"),
        ("30 2 * * *", "skip", "on 2027-03-28 02:30 does not exist, it does not fire that day"),
        ("30 2 * * *", "twice", "on 2026-10-25 02:30 happens twice, it fires twice"),
    ],
)
def test_the_lint_of_a_clock_change_agrees_with_the_schedule(schedule: str, rule: str, message: str) -> None:
    [problem] = lint(schedule=schedule, timezone="Europe/Berlin", policy={"dst": rule})
    assert message in problem.message


def test_a_clock_change_after_the_end_of_a_schedule_is_not_reported() -> None:
    night = {"schedule": "30 2 * * *", "timezone": "Europe/Berlin"}
    assert codes(**night, ends_at="2026-10-20T00:00Z") == []
    assert codes(**night, starts_at="2030-01-01T00:00Z") == ["dst-change"]


# Parts.


@settings(max_examples=20)
@given(
    one=st.sampled_from(["*/6 * * * *", "3-59/6 * * * *", "0 */3 * * *", "@every 35m", "15 9 * * *"]),
    other=st.sampled_from(["*/10 * * * *", "5/20 * * * *", "0 7 * * *", "@every 21m", "15 * * * MON"]),
)
def test_schedules_share_an_instant_exactly_where_their_instants_do(one: str, other: str) -> None:
    first, second = parse_schedule(one), parse_schedule(other)
    until = NOW + timedelta(days=20)
    both = {*first.between(NOW, until)} & {*second.between(NOW, until)}
    assert shared_instant(first, second, NOW) == min(both, default=None)


def test_waits_between_attempts_are_added_up_as_settling_makes_them() -> None:
    assert total_wait_s({"min_seconds": 1, "max_seconds": 60, "max_attempts": 3}) == 1 + 2
    assert total_wait_s({"min_seconds": 10, "max_seconds": 25, "max_attempts": 5}) == 10 + 20 + 25 + 25
    assert total_wait_s({"min_seconds": 5, "max_seconds": 5, "max_attempts": 1}) == 0


@given(st.integers(1, 10**6))
def test_a_duration_is_written_as_every_takes_it(seconds: int) -> None:
    timetable = parse_schedule(f"@every {period_text(seconds)}")
    first = timetable.after(NOW)
    assert first and (timetable.after(first) or NOW) - first == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("host", "near"),
    [
        ("localhost", True), ("127.0.0.1", True), ("[::1]", True), ("10.1.2.3", True), ("172.20.0.1", True),
        ("192.168.1.1", True), ("app", True), ("web.shop.svc", True), ("printer.local", True),
        ("example.org", False), ("172.40.0.1", False), ("8.8.8.8", False), ("[2001:db8::1]", False),
    ],
)  # fmt: skip
def test_private_hosts_are_recognised(host: str, near: bool) -> None:
    assert is_private_host(host) is near


def test_secrets_in_plain_text_are_found_and_not_repeated() -> None:
    auth = {"secret_refs": ["env:KEY", "raw:hunter2", "raw:${KEY}"]}
    document = {
        "secrets": {"a": "hunter2", "b": "env:B", "c": "file:/c", "d": "${D}", "e": "raw:hunter2"},
        "defaults": {"auth": auth},
        "jobs": [{"auth": auth}, {"name": "x"}],
    }
    found = [*lint_secrets(document)]
    assert [problem.path for problem in found] == [
        "secrets/a", "secrets/e", "jobs/0/auth/secret_refs/1", "defaults/auth/secret_refs/1",
    ]  # fmt: skip
    assert "hunter2" not in str(found)
    assert {problem.code for problem in found} == {"plain-secret"}
