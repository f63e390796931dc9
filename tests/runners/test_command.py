"""What a command is started with, and what its end means: tables."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.model import Claim, Command, End, Fire, Outcome, Policy
from detent.rules.outcomes import CLAIM_EXPIRED, replaced_by
from detent.runners.command import (
    NO_BASE_ENV,
    VARIABLE_MAX,
    ProcessExit,
    end_of,
    fire_env,
    inherited_env,
    spec_of,
)

DUE = datetime(2026, 3, 1, 2, tzinfo=UTC)
FIRE = Fire(key="shop.backup@2026-03-01T02:00:00Z", job="shop.backup", due_at=DUE, run_id="01-run")
CLAIM = Claim(fire=FIRE, node="host/life", fence=77, attempt=2, ttl_s=30.0, expires_at=DUE)
FACTS = {
    "hook": "on_failure",
    "fire": "shop.backup@2026-03-01T02:00:00Z",
    "due": "2026-03-01T02:00:00Z",
    "outcome": "failed",
    "reason": "exit 3",
    "exit_code": 3,
    "duration_ms": 1500,
    "output_tail": "no\0 space\n",
}
STOPPED = replaced_by("a newer fire")


def hook(**facts: Any) -> Claim:
    fire = FIRE._replace(
        key=f"{FIRE.key}/on_failure", run_id="02-run", origin="hook", payload=json.dumps(facts)
    )
    return CLAIM._replace(fire=fire, attempt=1)


# The environment.


def test_a_command_gets_its_fire_as_variables() -> None:
    assert fire_env(CLAIM, Command(("true",))) == {
        "DETENT_APP": "shop",
        "DETENT_JOB": "backup",
        "DETENT_FIRE": "shop.backup@2026-03-01T02:00:00Z",
        "DETENT_RUN_ID": "01-run",
        "DETENT_DUE": "2026-03-01T02:00:00Z",
        "DETENT_ATTEMPT": "2",
        "DETENT_FENCE": "77",
        "DETENT_NODE": "host/life",
    }


def test_a_job_that_runs_on_every_host_has_the_name_from_its_manifest() -> None:
    claim = CLAIM._replace(fire=FIRE._replace(job="shop.backup/web.1"))
    assert fire_env(claim, Command(("true",)))["DETENT_JOB"] == "backup"


@pytest.mark.parametrize(
    ("base", "command", "secrets", "name", "value"),
    [
        ({"PATH": "/bin"}, Command(()), (), "PATH", "/bin"),
        ({"PATH": "/bin"}, Command((), env=(("PATH", "/opt"),)), (), "PATH", "/opt"),
        ({"DETENT_STORE": "redis://secret@host"}, Command(()), (), "DETENT_STORE", None),
        ({"DETENT_NODE": "outer"}, Command(()), (), "DETENT_NODE", "host/life"),
        ({}, Command((), env=(("DETENT_FENCE", "1"),)), (), "DETENT_FENCE", "77"),
        ({}, Command((), env=(("DETENT_LEVEL", "1"),)), (), "DETENT_LEVEL", "1"),
        ({"SIGNING_KEY": "hush"}, Command(()), ("SIGNING_KEY",), "SIGNING_KEY", None),
        ({"SIGNING_KEY": "hush"}, Command(()), (), "SIGNING_KEY", "hush"),
        ({"K": "hush"}, Command((), env=(("K", "mine"),)), ("K",), "K", "mine"),
        ({"HOME": "/root"}, Command(()), (), "HOME", "/root"),
        ({"HOME": "/root"}, Command((), user="www"), (), "HOME", None),
        ({"HOME": "/root"}, Command((), user="www", env=(("HOME", "/srv"),)), (), "HOME", "/srv"),
        ({}, Command((), children="leave"), (), "DETENT_CHILDREN", "leave"),
        ({}, Command(()), (), "DETENT_CHILDREN", None),
        ({}, Command(()), (), "DETENT_OUTCOME", None),
    ],
)
def test_a_variable_comes_from_the_node_the_job_or_the_fire(
    base: dict[str, str], command: Command, secrets: tuple[str, ...], name: str, value: str | None
) -> None:
    env = inherited_env(base, secrets, is_other=bool(command.user)) | fire_env(CLAIM, command)
    assert env.get(name) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DETENT_FIRE", "shop.backup@2026-03-01T02:00:00Z"),
        ("DETENT_DUE", "2026-03-01T02:00:00Z"),
        ("DETENT_RUN_ID", "02-run"),
        ("DETENT_OUTCOME", "failed"),
        ("DETENT_REASON", "exit 3"),
        ("DETENT_EXIT_CODE", "3"),
        ("DETENT_DURATION_MS", "1500"),
        ("DETENT_OUTPUT_TAIL", "no space\n"),
    ],
)
def test_a_hook_gets_the_outcome_of_the_fire(name: str, value: str) -> None:
    assert fire_env(hook(**FACTS), Command(("true",)))[name] == value


def test_a_hook_of_a_fire_without_a_status_has_an_empty_exit_code() -> None:
    env = fire_env(hook(**{**FACTS, "exit_code": None}), Command(("true",)))
    assert env["DETENT_EXIT_CODE"] == ""


@given(st.text())
def test_the_end_of_any_output_fits_into_a_variable(text: str) -> None:
    tail = text * 3 + "ü" * VARIABLE_MAX + text
    passed = fire_env(hook(**{**FACTS, "output_tail": tail}), Command(()))["DETENT_OUTPUT_TAIL"]
    assert len(passed.encode()) <= VARIABLE_MAX
    assert "\0" not in passed
    assert tail.replace("\0", "").endswith(passed)
    assert len(passed.encode()) > VARIABLE_MAX - 4


# What is started.


def test_a_spec_has_the_command_and_its_policy() -> None:
    command = Command(("a", "b"), work_dir="/srv", user="www", kill_after_s=3.0, children="leave")
    claim = CLAIM._replace(fire=FIRE._replace(policy=Policy(timeout_s=60.0)))
    spec = spec_of(claim, command, {"A": "1"}, "/out", "/lanes/a.b")
    assert spec._asdict() == {
        "id": "01-run.2.77",
        "words": ("a", "b"),
        "env": {"A": "1"},
        "ttl_s": 30.0,
        "work_dir": "/srv",
        "user": "www",
        "timeout_s": 60.0,
        "kill_after_s": 3.0,
        "children": "leave",
        "output_path": "/out",
        "lane": "/lanes/a.b",
        "places": 1,
        "base": NO_BASE_ENV,
    }


# What its end means.


@pytest.mark.parametrize(
    ("gone", "stopped", "outcome"),
    [
        (ProcessExit(0), None, Outcome("succeeded")),
        (ProcessExit(3), None, Outcome("failed", "exit 3")),
        (ProcessExit(-11), None, Outcome("failed", "killed by SIGSEGV")),
        (ProcessExit(-40), None, Outcome("failed", "killed by signal 40")),
        (ProcessExit(-15, "timeout"), None, Outcome("timed-out", "after 5 s")),
        (ProcessExit(0, "timeout"), None, Outcome("timed-out", "after 5 s")),
        (ProcessExit(-9, "trust"), None, CLAIM_EXPIRED),
        (ProcessExit(-15, "stop"), STOPPED, STOPPED),
        (ProcessExit(0, "stop"), STOPPED, STOPPED),
        (ProcessExit(0), STOPPED, Outcome("succeeded")),
        (ProcessExit(1, "timeout"), STOPPED, Outcome("timed-out", "after 5 s")),
        (
            ProcessExit(127, "error", 'command not found: "x"'),
            None,
            Outcome("failed", 'command not found: "x"'),
        ),
    ],
)
def test_a_process_exit_becomes_an_outcome(
    gone: ProcessExit, stopped: Outcome | None, outcome: Outcome
) -> None:
    gone = gone._replace(took_s=1.5, tail=b"tail")
    assert end_of(gone, 5.0, stopped) == End(outcome, status=gone.status, took_s=1.5, tail=b"tail")
