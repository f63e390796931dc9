"""The host eventbridge keeps the rules of hosts on moto's server, and says what the service must know."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as settings_
from hypothesis import strategies as st
from tests.hosts.eventbridge_world import (
    CREDENTIALS,
    FUNCTION,
    OPTIONS,
    QUEUE,
    ROLE,
    Group,
    eventbridge_world,
    moto_server,
)
from tests.hosts.hosts_world import settings
from tests.hosts.schedule_texts import PATIENT

from detent.errors import HostError, UsageError
from detent.hosts.eventbridge import schedules
from detent.hosts.eventbridge.service import Service
from detent.hosts.reconcile import Change, Found
from detent.hosts.registry import open_host
from detent.manifest.check import check_manifest
from detent.manifest.spec import Spec, specs_of
from detent.testing import check_host as suite
from detent.testing.check_host import CHECKS, Check, run_check


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with moto_server() as url:
        yield url


@pytest.fixture
def group(server: str, monkeypatch: pytest.MonkeyPatch) -> Group:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return Group(server, f"g-{uuid.uuid4().hex[:12]}")


@pytest.mark.parametrize("check", CHECKS, ids=[check.__name__ for check in CHECKS])
def test_a_schedule_group_keeps_a_rule_of_hosts(check: Check, tmp_path: Path, group: Group) -> None:
    run_check(check, eventbridge_world(tmp_path, group))


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        ("no seal", suite.a_manual_edit_is_drift_and_is_repaired),
        ("a name is cut without a hash", suite.the_longest_names_stay_distinct),
        ("nothing is taken away", suite.only_a_job_that_is_no_longer_declared_is_removed),
    ],
)
def test_a_planted_fault_is_found(
    fault: str, rule: Check, tmp_path: Path, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    match fault:
        case "no seal":
            monkeypatch.setattr(schedules, "seal", lambda *parts: "0" * 12)
        case "a name is cut without a hash":
            cut = lambda job, index, most: f"detent-{job}"[:most]  # noqa: E731
            monkeypatch.setattr(schedules, "resource_name", cut)
        case "nothing is taken away":
            monkeypatch.setattr(Service, "delete", lambda service, name: None)
    with pytest.raises((AssertionError, HostError)):
        run_check(rule, eventbridge_world(tmp_path, group))


def specs(**job: Any) -> list[Spec]:
    made = {"name": "backup", "schedule": "30 2 * * *", "command": "true", **job}
    return specs_of(check_manifest({"version": 2, "app": "shop", "store": "redis://r", "jobs": [made]}))


def test_a_schedule_has_all_fields_of_the_service(tmp_path: Path) -> None:
    host = open_host("eventbridge", settings(tmp_path, "shop", **OPTIONS))
    [made, around] = [json.loads(one.content) for one in host.render(specs(timezone="Europe/Berlin"))]
    assert made["ScheduleExpression"] == "cron(30 2 * * ? *)"
    assert made["ScheduleExpressionTimezone"] == "Europe/Berlin"
    assert around["ScheduleExpressionTimezone"] == "UTC"
    assert made["FlexibleTimeWindow"] == {"Mode": "OFF"} and made["State"] == "ENABLED"
    target = made["Target"]
    assert (target["Arn"], target["RoleArn"], target["DeadLetterConfig"]) == (FUNCTION, ROLE, {"Arn": QUEUE})
    assert target["RetryPolicy"]["MaximumRetryAttempts"] == 0
    assert "<aws.scheduler.scheduled-time>" in target["Input"]


def test_an_input_over_the_limit_of_lambda_is_refused(tmp_path: Path) -> None:
    host = open_host("eventbridge", settings(tmp_path, "shop", **OPTIONS))
    with pytest.raises(UsageError, match="262,144 bytes"):
        host.render(specs(env=dict.fromkeys("ABC", "x" * 90_000)))


def test_missing_resources_and_options_are_reported(tmp_path: Path, group: Group) -> None:
    host = eventbridge_world(tmp_path, group).open("shop")
    [wanted] = host.render(specs())
    gone = Found(wanted.name, "{}", wanted.job)
    with pytest.raises(HostError, match=r"ResourceNotFoundException.*create-schedule-group"):
        host.change([Change(wanted.name, "outdated", gone, wanted)])
    host.change([Change(wanted.name, "surplus", gone)])  # another client was quicker
    with pytest.raises(UsageError, match="--target-arn"):
        open_host("eventbridge", settings(tmp_path, "shop")).render(specs())
    with pytest.raises(UsageError, match="--role-arn"):
        open_host("eventbridge", settings(tmp_path, "shop", role_arn="x"))


NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,62}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)
ODD = st.one_of(
    TEXTS, st.sampled_from(['"}},{"detent":{"job":"x.y"', "<aws.scheduler.execution-id>", "\x7f\x85"])
)


@settings_(PATIENT, max_examples=15)
@given(app=NAMES, job=NAMES, text=ODD, more=ODD)
def test_whatever_a_job_contains_exactly_our_schedule_comes_back(
    app: str, job: str, text: str, more: str
) -> None:
    work = {"command": ["echo", text.replace("$", "$$")], "env": {"ODD": more.replace("$", "$$")}}
    made = {"name": job, "schedule": "@daily", **work}
    document = {"version": 2, "app": app, "store": "redis://r", "jobs": [made]}
    host = open_host("eventbridge", settings(Path("/nowhere"), app, **OPTIONS))
    wanted = specs_of(check_manifest(document))
    [schedule] = [json.loads(one.content) for one in host.render(wanted)]
    assert len(schedule["Name"]) <= 64 and re.fullmatch(r"[0-9a-zA-Z_.-]+", schedule["Name"])
    target_input = schedule["Target"]["Input"]
    assert target_input.count("<") == 1  # the service fills in what stands in angle brackets
    said = json.loads(target_input)["detent"]
    assert said["job"] == f"{app}.{job}"
    [loaded] = check_manifest(said["spec"]).jobs
    assert loaded.work.words == ("echo", text) and loaded.revision == wanted[0].revision
