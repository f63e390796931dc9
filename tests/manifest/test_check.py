"""What becomes of a sound manifest: jobs, defaults, variables, hooks, settings, warnings."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from detent.manifest.check import Machine, Manifest, check_machine, check_manifest, for_host, jobs_on
from detent.model import Call, Command, Job, Policy, Request, Retries
from detent.rules.trust import time_away_s

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def load(*jobs: dict[str, Any], **top: Any) -> Manifest:
    named = [{"name": f"j{i}", "schedule": "0 2 * * *", **job} for i, job in enumerate(jobs)]
    return check_manifest(
        {"version": 2, "app": "demo", "jobs": named, **top}, variables={"HOME": "/h", "NO": ""}
    )


def one(**fields: Any) -> Job:
    return load(fields).jobs[0]


def test_a_request_has_the_defaults_of_version_1_in_both_versions() -> None:
    job = {"name": "a", "schedule": "@daily", "request": {"url": "http://h/x"}}
    for version in (1, 2):
        made = check_manifest({"version": version, "app": "demo", "jobs": [job]}).jobs[0]
        assert made.name == "demo.a"
        assert made.work == Request(url="http://h/x", method="POST")
        assert made.policy == Policy(timeout_s=60.0, retries=Retries(max_attempts=3, min_s=1.0, max_s=60.0))
        assert made.schedule.after(NOON) == datetime(2030, 1, 2, tzinfo=UTC)


def test_a_command_has_no_timeout_and_one_attempt() -> None:
    made = one(command="echo hello")
    assert made.work == Command(words=("/bin/sh", "-c", "echo hello"))
    assert made.policy == Policy(timeout_s=0.0, retries=Retries(max_attempts=1))


def test_a_list_of_words_needs_no_shell() -> None:
    work = one(
        command=["printf", "%s", "; rm -rf $HOME", ""], user="www", work_dir="/srv", env={"B": "2", "A": "1"}
    ).work
    assert work == Command(
        words=("printf", "%s", "; rm -rf $HOME", ""),
        user="www",
        work_dir="/srv",
        env=(("A", "1"), ("B", "2")),
    )


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("${HOME}/x", "/h/x"),
        ("${NOPE:-d}/x", "d/x"),
        ("${NOPE:-}", ""),
        ("${NO:-empty counts as unset}", "empty counts as unset"),
        ("[${NO}]", "[]"),
        ("$HOME", "$HOME"),
        ("$$", "$"),
        ("$${HOME}", "${HOME}"),
        ("$$$$x", "$$x"),
        ("a$", "a$"),
        ("$(date) $1", "$(date) $1"),
    ],
)
def test_variables_are_filled_in(text: str, expanded: str) -> None:
    assert one(command=["x", text]).work == Command(words=("x", expanded))


def test_defaults_are_merged_into_a_job_field_by_field() -> None:
    defaults = {
        "timezone": "Europe/Berlin",
        "env": {"A": "1", "B": "2"},
        "policy": {"timeout_seconds": 5, "retries": {"max_attempts": 4, "max_seconds": 9}},
    }
    made = load(
        {"command": "x", "env": {"B": "3"}, "policy": {"retries": {"max_attempts": 2}}}, defaults=defaults
    ).jobs[0]
    assert made.work == Command(words=("/bin/sh", "-c", "x"), env=(("A", "1"), ("B", "3")))
    assert made.policy == Policy(timeout_s=5.0, retries=Retries(max_attempts=2, max_s=9.0))
    assert made.schedule.after(NOON) == datetime(2030, 1, 2, 1, tzinfo=UTC)


def test_a_jobs_own_work_and_schedule_replace_defaults_of_another_kind() -> None:
    defaults = {
        "request": {"url": "http://h/x", "method": "PUT"},
        "auth": {"secret_refs": ["key"]},
        "schedules": ["@hourly"],
        "kill_after_seconds": 3,
    }
    made = load({"command": "x"}, {"request": {"body": "b"}}, defaults=defaults).jobs
    assert made[0].work == Command(words=("/bin/sh", "-c", "x"), kill_after_s=3.0)
    assert made[1].work == Request(url="http://h/x", method="PUT", body="b", secret_refs=("key",))
    assert [job.schedule.after(NOON) for job in made] == [datetime(2030, 1, 2, 2, tzinfo=UTC)] * 2


def test_hooks_have_names_and_run_where_the_command_runs() -> None:
    made = one(command="x", user="www", on_failure=["mail", ["notify", "-x"], "https://h/y"], on_success="ok")
    assert made.policy.hooks == ("on_success", "on_failure", "on_failure.1", "on_failure.2")
    assert made.hooks == {
        "on_success": Command(words=("/bin/sh", "-c", "ok"), user="www"),
        "on_failure": Command(words=("/bin/sh", "-c", "mail"), user="www"),
        "on_failure.1": Command(words=("notify", "-x"), user="www"),
        "on_failure.2": Request(url="https://h/y", method="POST"),
    }


def test_a_shell_runs_the_texts_of_a_job_and_no_list_of_words() -> None:
    bash = ["/bin/bash", "-o", "pipefail", "-c"]
    made = load(
        {"command": "x", "shell": bash, "on_failure": ["y", ["z"]]},
        {"command": ["x"]},
        {"call": "a:b", "on_failure": "y"},
        defaults={"shell": ["/bin/dash", "-c"]},
    ).jobs
    assert made[0].work == Command(words=(*bash, "x"))
    assert made[0].hooks == {"on_failure": Command(words=(*bash, "y")), "on_failure.1": Command(words=("z",))}
    assert made[1].work == Command(words=("x",))
    assert made[2].hooks == {"on_failure": Command(words=("/bin/sh", "-c", "y"))}


def test_the_default_shell_is_left_out_of_the_canonical_form() -> None:
    plain, bash = {"command": "x"}, {"command": "x", "shell": ["/bin/bash", "-c"]}
    said = load(plain, {**plain, "shell": ["/bin/sh", "-c"]}, bash).canonical
    assert ["shell" in text for text in said.values()] == [False, False, True]


def test_a_webhook_is_a_request_and_its_canonical_form_is_ordered() -> None:
    headers = {"b": "2", "a": "1"}
    webhook = {"body": '{"text": "{{fire}}"}', "headers": headers, "url": "http://h/x"}
    manifest = load({"command": "x", "on_failure": [webhook, {"url": "http://h/y", "body": ""}]})
    hooks = manifest.jobs[0].hooks
    assert hooks["on_failure"] == Request(
        "http://h/x", headers=(("a", "1"), ("b", "2")), body='{"text": "{{fire}}"}'
    )
    assert hooks["on_failure.1"] == Request("http://h/y")
    first, second = json.loads(manifest.canonical["demo.j0"])["on_failure"]
    assert [*first] == ["url", "headers", "body"] and [*first["headers"]] == ["a", "b"]
    assert second == {"url": "http://h/y"}


def test_on_late_is_called_after_a_minute_unless_said_otherwise() -> None:
    assert one(command="x", on_late="y").policy.late_after_s == 60.0
    assert one(command="x", on_late="y", late_after_seconds=2.5).policy.late_after_s == 2.5
    assert one(command="x").policy.late_after_s == 0.0


def test_every_field_of_a_policy_arrives() -> None:
    policy = {
        "concurrency": "Queue",
        "max_running": 2,
        "timeout_seconds": 7,
        "catch_up": "all",
        "start_deadline_seconds": 8,
        "on_lost": "rerun",
        "claim_seconds": 40,
        "retries": {"max_attempts": 5, "min_seconds": 2, "max_seconds": 3, "jitter": 0.5, "on_status": [429]},
    }
    made = load({"command": "x", "policy": policy, "queue": "db"}, node={"grace_seconds": 6}).jobs[0]
    assert made.queue == "db"
    assert made.policy == Policy(
        concurrency="Queue",
        max_running=2,
        timeout_s=7.0,
        retries=Retries(max_attempts=5, min_s=2.0, max_s=3.0, jitter=0.5, on_status=(429,)),
        catch_up="all",
        start_deadline_s=8.0,
        on_lost="rerun",
        claim_s=40.0,
        grace_s=6.0,
    )


def test_a_job_fires_once_or_between_two_instants() -> None:
    job = {"name": "o", "command": "x", "at": "2030-12-24T18:00+01:00"}
    once = check_manifest({"version": 2, "app": "a", "jobs": [job]}).jobs[0].schedule
    assert once.after(NOON) == datetime(2030, 12, 24, 17, tzinfo=UTC)
    assert once.after(datetime(2030, 12, 24, 17, tzinfo=UTC)) is None
    bounded = one(command="x", starts_at="2030-02-01T00:00Z", ends_at="2030-02-01T02:00Z").schedule
    assert bounded.after(NOON) == datetime(2030, 2, 1, 2, tzinfo=UTC)
    assert bounded.after(datetime(2030, 2, 1, 2, tzinfo=UTC)) is None


def test_a_job_that_is_disabled_is_checked_and_named_but_not_run() -> None:
    manifest = load({"command": "x", "enabled": False}, {"command": "y"})
    assert [job.name for job in manifest.jobs] == ["demo.j1"]
    assert manifest.disabled == ("demo.j0",)


def test_a_job_for_every_host_has_the_name_of_the_host() -> None:
    manifest = load({"command": "x", "run_on": "every"}, {"command": "y"})
    assert manifest.everywhere == {"demo.j0"}
    assert [job.name for job in jobs_on(manifest, "web-1")] == ["demo.j0/web-1", "demo.j1"]
    assert for_host(manifest.jobs[1], "h").name == "demo.j1/h"


def test_a_manifests_settings_win_over_the_machines_field_by_field() -> None:
    machine = check_machine(
        {
            "store": {"url": "redis://h", "key_prefix": "p"},
            "node": {"id": "m", "drain_seconds": 1},
            "secrets": {"k": "env:A"},
        }
    )
    job = {"name": "a", "schedule": "@daily", "command": "x"}
    document = {"version": 2, "app": "demo", "jobs": [job], "node": {"id": "n"}, "secrets": {"l": "env:B"}}
    manifest = check_manifest(document, machine=machine)
    assert (manifest.node.id, manifest.node.drain_s, manifest.node.max_running) == ("n", 1, 32)
    assert (manifest.store.url, manifest.store.key_prefix) == ("redis://h", "p")
    assert manifest.secrets == {"k": "env:A", "l": "env:B"}
    assert check_manifest({**document, "store": "sqlite:///x"}, machine=machine).store.url == "sqlite:///x"
    assert check_machine(None) == Machine()


def test_equal_policies_and_schedules_are_one_object() -> None:
    made = load(
        *({"command": f"x{i}", "policy": {"timeout_seconds": 5}, "tags": ["t"]} for i in range(3))
    ).jobs
    assert len({id(job.policy) for job in made}) == len({id(job.schedule) for job in made}) == 1
    assert len({id(job.tags) for job in made}) == 1


def test_jobs_with_h_have_instants_of_their_own() -> None:
    made = load(*({"command": "x", "schedule": "H H * * *"} for _ in range(20))).jobs
    assert len({job.schedule.after(NOON) for job in made}) > 10


WARNED = [
    ("a short claim", {"policy": {"claim_seconds": 10}}, "jobs/0/policy/claim_seconds", "15 s are advised"),
    ("days by step", {"schedule": "0 0 */2 * 1"}, "jobs/0/schedule", "both day fields must match"),
    (
        "width with Allow",
        {"policy": {"concurrency": "Allow", "max_running": 2}},
        "jobs/0/policy/max_running",
        "no effect",
    ),
    ("late without hook", {"late_after_seconds": 5}, "jobs/0/late_after_seconds", "without `on_late`"),
]


@pytest.mark.parametrize(
    ("fields", "path", "fragment"), [row[1:] for row in WARNED], ids=[row[0] for row in WARNED]
)
def test_valid_but_unlikely_settings_have_a_warning(fields: dict[str, Any], path: str, fragment: str) -> None:
    warnings = load({"command": "x", **fields}).warnings
    assert [warning.path for warning in warnings] == [path]
    assert fragment in warnings[0].message


def test_the_default_claim_bears_a_store_that_is_away_for_fifteen_seconds() -> None:
    assert time_away_s(ttl_s=30, kill_after_s=10) == pytest.approx(17)
    assert time_away_s(ttl_s=26, kill_after_s=10) < 15
    assert load({"command": "x", "kill_after_seconds": 60}).warnings == ()


def test_a_headers_name_in_two_spellings_is_warned_about() -> None:
    warnings = load({"request": {"url": "http://h", "headers": {"Accept": "a", "accept": "b"}}}).warnings
    assert [warning.path for warning in warnings] == ["jobs/0/request/headers/accept"]


def test_a_call_has_arguments_an_environment_and_the_policy_of_a_command() -> None:
    call = {
        "call": "billing.jobs:send",
        "args": {"b": ["${V}", 1.5, None], "a": {"y": True, "x": "$$"}},
        "work_dir": "/srv",
        "env": {"A": "1"},
        "user": "nobody",
        "kill_after_seconds": 3,
        "on_failure": "mail",
    }
    document = {"version": 2, "app": "demo", "jobs": [{"name": "a", "schedule": "@daily", **call}]}
    (job,) = check_manifest(document, variables={"V": "value"}).jobs
    assert job.work == Call(
        function="billing.jobs:send",
        args='{"a": {"x": "$", "y": true}, "b": ["value", 1.5, null]}',
        work_dir="/srv",
        env=(("A", "1"),),
        user="nobody",
        kill_after_s=3.0,
    )
    assert (job.policy.timeout_s, job.policy.retries.max_attempts) == (0.0, 1)
    assert job.hooks["on_failure"] == Command(
        ("/bin/sh", "-c", "mail"), work_dir="/srv", env=(("A", "1"),), user="nobody"
    )


def test_defaults_for_processes_are_put_aside_by_a_call_that_has_none() -> None:
    document = {
        "version": 2,
        "app": "demo",
        "defaults": {"work_dir": "/srv", "env": {"A": "1"}, "args": {"a": 1, "b": 2}, "isolation": "thread"},
        "jobs": [
            {"name": "inside", "schedule": "@daily", "call": "x:y", "args": {"b": 3}},
            {"name": "apart", "schedule": "@daily", "call": "x:y", "isolation": "process", "args": []},
            {"name": "other", "schedule": "@daily", "command": ["true"]},
        ],
    }
    inside, apart, other = (job.work for job in check_manifest(document).jobs)
    assert inside == Call("x:y", '{"a": 1, "b": 3}', "thread")
    assert apart == Call("x:y", "[]", "process", "/srv", (("A", "1"),))
    assert other == Command(("true",), "/srv", (("A", "1"),))
