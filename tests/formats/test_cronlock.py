"""A cronlock file: its defaults, its texts, its durations, and what it refuses."""

from typing import Any

import pytest

from detent.errors import UsageError
from detent.formats.base import Converted, LocalContext
from detent.formats.cronlock.convert import convert_cronlock, is_cronlock
from detent.formats.cronlock.texts import parse_duration
from detent.manifest.check import Manifest, check_manifest
from detent.manifest.problems import ManifestError
from detent.model import Command, Job

JOB = {"name": "a", "schedule": "@hourly", "command": "true"}


def convert(*jobs: dict[str, Any], variables: dict[str, str] | None = None, **top: Any) -> Converted:
    return convert_cronlock(
        {"jobs": list(jobs), **top}, {}, LocalContext("Europe/Berlin", variables=variables or {})
    )


def load(*jobs: dict[str, Any], variables: dict[str, str] | None = None, **top: Any) -> Manifest:
    converted = convert(*jobs, variables=variables, **top)
    return check_manifest(converted.document, variables=variables or {})


def job(variables: dict[str, str] | None = None, **fields: Any) -> Job:
    return load({**JOB, **fields}, variables=variables).jobs[0]


def command(variables: dict[str, str] | None = None, **fields: Any) -> Command:
    work = job(variables, **fields).work
    assert isinstance(work, Command)
    return work


def problems_of(*jobs: dict[str, Any], **top: Any) -> list[str]:
    """What is wrong with the file."""
    with pytest.raises(ManifestError) as error:
        convert(*jobs, **top)
    return [problem.message for problem in error.value.problems]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("300ms", 0.3),
        ("1m0.5s", 60.5),
        (".5s", 0.5),
        ("2us", 2e-6),
        ("2µs", 2e-6),
        ("5m3h", 11_100),  # Go takes units in any order
        ("-5s", -5),
        ("+5s", 5),
        ("0", 0),
        (0, 0),
        ("", None),
        (None, None),
    ],
)
def test_durations_are_Gos(text: Any, seconds: float | None) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("given", [30, "30", 1.5, -3, "5 s", "1d", "fast", [], True])
def test_an_invalid_duration_is_refused(given: Any) -> None:
    with pytest.raises(UsageError):
        parse_duration(given)


def test_a_number_without_a_unit_is_suspiciously_small() -> None:
    (message,) = problems_of({**JOB, "timeout": 30})
    assert message.startswith("jobs[0].timeout is 30 without a unit") and "suspiciously small" in message
    assert message.endswith("write 30s for seconds")


def test_defaults_are_cronlocks() -> None:
    manifest = load(JOB)
    (made,) = manifest.jobs
    assert manifest.app == "default" and manifest.node.grace_s == 5 and manifest.store.url == ""
    assert made.name == "default.a" and made.work == Command(("/bin/sh", "-c", "true"))
    policy = made.policy
    assert (policy.concurrency, policy.catch_up, policy.timeout_s) == ("Forbid", "skip", 0)
    assert (policy.claim_s, policy.grace_s, policy.retries.max_attempts) == (30, 5, 1)


@pytest.mark.parametrize(
    ("fields", "claim_s"),
    [
        ({"lock_ttl": "10s"}, 10),
        ({"lock_ttl": "2h"}, 30),
        ({"lock_ttl": "0s"}, 30),
        ({"timeout": "5s"}, 30),
        ({"lock_ttl": "100ms"}, 2),
    ],
)
def test_lock_ttl_is_the_claims_length_up_to_30_s(fields: dict[str, Any], claim_s: float) -> None:
    assert job(**fields).policy.claim_s == claim_s


def test_a_job_is_converted_with_all_its_fields() -> None:
    fields = {
        "timeout": "90s",
        "work_dir": "/srv",
        "env": {"A": "1", "N": 2, "B": True},
        "on_success": "ok",
        "on_failure": "alert now",
    }
    made = job(**fields)
    env = (("A", "1"), ("B", "true"), ("N", "2"))
    assert made.policy.timeout_s == 90 and made.work == Command(
        ("/bin/sh", "-c", "true"), work_dir="/srv", env=env
    )
    assert made.hooks["on_failure"] == Command(("/bin/sh", "-c", "alert now"), work_dir="/srv", env=env)
    assert made.hooks["on_success"] == Command(("/bin/sh", "-c", "ok"), work_dir="/srv", env=env)
    assert load(JOB, {**JOB, "name": "b", "enabled": False}).disabled == ("default.b",)


def test_commands_and_hooks_run_by_the_users_shell() -> None:
    made = job({"SHELL": "/bin/zsh"}, on_failure="x")
    assert isinstance(made.work, Command) and made.work.words == ("/bin/zsh", "-c", "true")
    assert made.hooks["on_failure"] == Command(("/bin/zsh", "-c", "x"))


def test_a_hook_that_looks_like_a_URL_is_a_command_there() -> None:
    assert job(on_failure="https://x.example").hooks["on_failure"] == Command(
        ("/bin/sh", "-c", "https://x.example")
    )


@pytest.mark.parametrize(
    ("text", "variables", "expected"),
    [
        ("${A}", {"A": "1"}, "1"),
        ("${A}", {}, ""),
        ("${A:-x y}", {}, "x y"),
        ("${A:-x}", {"A": ""}, "x"),
        ("${A:-x}", {"A": "1"}, "1"),
        ("$A $$ ${A%/} $(id)", {"A": "1"}, "$A $$ ${A%/} $(id)"),
        ("$${A}", {"A": "1"}, "$1"),
    ],
)
def test_variables_of_a_command(text: str, variables: dict[str, str], expected: str) -> None:
    assert command(variables, command=f"echo {text}").words[2] == f"echo {expected}"


def test_a_bare_variable_is_expanded_outside_of_commands() -> None:
    made = command({"A": "1"}, work_dir="/srv/$A", env={"X": "$A-$B-5$"})
    assert made.work_dir == "/srv/1" and made.env == (("X", "1--5$"),)


def test_an_unset_variable_is_empty_with_a_warning() -> None:
    warnings = [one.message for one in convert({**JOB, "command": "echo ${NOT_SET}"}).warnings]
    assert any(text.startswith("jobs[0].command uses the variable NOT_SET") for text in warnings)


@pytest.mark.parametrize(
    ("given", "schedule", "timezone"),
    [
        ("0 2 * * *", "0 2 * * *", None),
        ("*/5 * * * * *", "*/5 * * * * *", None),
        ("CRON_TZ=Asia/Tokyo 0 9 * * *", "0 9 * * *", "Asia/Tokyo"),
        ("TZ=UTC  @daily", "@daily", "UTC"),
        ("0 ? * ? * MON", "0 * * * * MON", None),
        ("@every 1h30m10s", "@every 1h30m10s", None),
        ("@every 1.5h", "@every 1h30m", None),
        ("@every 90m", "@every 1h30m", None),
        ("@every 100ms", "@every 1s", None),
    ],
)
def test_schedules_are_robfigs(given: str, schedule: str, timezone: str | None) -> None:
    converted = convert({**JOB, "schedule": given})
    (made,) = converted.document["jobs"]
    assert (made["schedule"], made.get("timezone")) == (schedule, timezone)
    assert converted.document["defaults"]["timezone"] == "Europe/Berlin"


def test_all_problems_are_reported_together_in_the_form_of_cronlock() -> None:
    messages = problems_of(
        {**JOB, "name": "backup", "timeout": "-5s"},
        {**JOB, "name": "backup", "schedule": "61 * * * *"},
        {"name": "", "lock_ttl": "soon", "retries": 3},
        {**JOB, "name": "z", "schedule": "TZ=Mars/Base 0 0 * * *", "env": [], "enabled": "yes"},
        redis={"db": 16, "address": ""},
        node={"grace_period": "-1s", "name": "x"},
        extra=1,
    )
    expected = [
        "jobs[0].timeout must be non-negative, got -5s",
        'jobs[1].name "backup" is a duplicate of jobs[0]',
        'jobs[1].schedule: bad schedule "61 * * * *": minute 61 is not in 0–59',
        "jobs[2].name is required",
        "jobs[2].schedule is required",
        "jobs[2].command is required",
        'jobs[2].lock_ttl must be a duration like 30s, 5m or 1h30m, got "soon"',
        "jobs[2].retries is not a field",
        'jobs[3].schedule: bad timezone "Mars/Base"',
        "jobs[3].env must be a mapping",
        "jobs[3].enabled must be true or false",
        "redis.db must be between 0 and 15, got 16",
        "redis.address is empty",
        "node.grace_period must be non-negative, got -1s",
        "node.name is not a field",
        "extra is not a field",
    ]
    for start in expected:
        assert [text for text in messages if text.startswith(start)], start
    assert len(messages) == len(expected)


@pytest.mark.parametrize("jobs", [None, [], {}, "x"])
def test_a_file_without_jobs_is_refused(jobs: Any) -> None:
    with pytest.raises(ManifestError, match="jobs must be a list of at least one job"):
        convert_cronlock({"redis": {}, "jobs": jobs}, {}, LocalContext())


@pytest.mark.parametrize(
    "address",
    [
        "localhost:6379",
        "127.0.0.1:1",
        "[::1]:6379",
        ":6379",
        "localhost",
        "/run/redis.sock",
        "${HOST:-localhost}:1",
    ],
)
def test_a_Redis_of_this_host_that_does_not_answer_is_replaced_by_the_default_store(address: str) -> None:
    converted = convert(JOB, redis={"address": address})
    assert "store" not in converted.document
    assert "a SQLite file of this host" in converted.warnings[0].message


@pytest.mark.parametrize("address", ["redis:6379", "10.0.0.7:6379", "redis", "${HOST}:6379"])
def test_a_Redis_of_another_host_is_named_without_its_password(address: str) -> None:
    redis = {"address": address, "password": "geheim", "db": 2}
    converted = convert(JOB, redis=redis, variables={"HOST": "elsewhere"})
    assert converted.document["store"] == {
        "url": f"redis://{address.replace('}', ':-}')}/2",
        "key_prefix": "cronlock:",
    }
    assert "is used in detent's own format" in converted.warnings[0].message
    assert "geheim" not in repr(converted)


@pytest.mark.parametrize(
    ("document", "name", "is_one"),
    [
        ({"jobs": [JOB], "redis": {}}, "x.yaml", True),
        ({"jobs": [JOB], "node": {"grace_period": "5s"}}, "x.yaml", True),
        ({"jobs": [{**JOB, "lock_ttl": "5s"}]}, "x.yaml", True),
        ({"jobs": [JOB]}, "cronlock.toml", True),
        ({"jobs": [JOB]}, "detent.yaml", False),  # rather one of ours that lacks its version
        ({"jobs": [JOB], "version": 2, "redis": {}}, "cronlock.yaml", False),
        ({"jobs": [JOB], "app": "a", "redis": {}}, "cronlock.yaml", False),
        ({"jobs": "x"}, "cronlock.yaml", False),
        ([], "cronlock.yaml", False),
    ],
)
def test_a_cronlock_file_is_known_by_its_content(document: Any, name: str, is_one: bool) -> None:
    assert is_cronlock(document, name) == is_one


def test_the_app_is_named_after_the_key_prefix_or_the_file() -> None:
    def app_of(**redis: str) -> object:
        here = LocalContext(app="nightly")
        return convert_cronlock({"redis": redis, "jobs": [JOB]}, {}, here).document["app"]

    assert app_of(key_prefix="Shop:") == "shop"
    assert app_of(key_prefix="cronlock:") == app_of() == "nightly"


@pytest.mark.parametrize("address", ["localhost:6379", "127.0.0.1:7000"])
def test_a_Redis_of_this_host_is_used_if_it_answers(address: str) -> None:
    document = {"redis": {"address": address}, "jobs": [JOB]}
    assert "store" not in convert_cronlock(document, {}, LocalContext()).document
    asked: list[str] = []
    here = LocalContext(answers=lambda at: not asked.append(at))
    found = convert_cronlock(document, {}, here).document["store"]
    assert found["url"] == f"redis://{address}/0" and asked == [address]
