"""The verbs about hosts, on a cluster and on EventBridge: round trips, refusals, taking over."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cli.cli_world import Detent
from tests.equipment.api_server import api_server
from tests.hosts.eventbridge_world import (
    CREDENTIALS,
    FUNCTION,
    QUEUE,
    ROLE,
    Group,
    eventbridge_world,
    moto_server,
)
from tests.hosts.kubernetes_world import FOREIGN, IMAGE, Object, add, edit, kubernetes_world
from tests.hosts.schedule_texts import PATIENT

from detent.testing import check_host as suite
from detent.testing.check_host import HostWorld

MANIFEST = """
version: 2
app: shop
store: redis://redis.example.org
jobs:
  - {name: backup, schedule: "30 2 * * *", timezone: Europe/Berlin, command: 'echo "100% done"'}
  - {name: report, schedules: ["0 9 13 * MON-FRI", "@every 7m"], request: {url: "https://example.org/r"}}
  - {name: resting, schedule: "@daily", command: 'true', enabled: false}
"""


class Place(NamedTuple):
    """A host, as the options that choose it, and as others see it."""

    options: tuple[str, ...]
    world: HostWorld
    add_alike: Callable[[str], None]  # add an entry of another owner that does the same as shop.backup
    store_elsewhere: tuple[str, ...]  # how to let the host name the store
    disown: Callable[[str], None]  # take the mark from one of ours, and change its fire time
    names: tuple[str, ...]  # of what the manifest makes

    @property
    def where(self) -> tuple[str, ...]:
        """The options that are enough to find what is there."""
        return self.options[:6] if "eventbridge" in self.options else self.options[:4]


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with moto_server() as url:
        yield url


@pytest.fixture
def cluster(folder: Path) -> Iterator[Place]:
    with api_server(folder) as (objects, kubeconfig):

        def add_alike(at: str) -> None:
            made = json.loads(json.dumps(FOREIGN))
            made["metadata"]["name"] = "old"
            made["spec"] |= {"schedule": f"{at} * * *", "timeZone": "Europe/Berlin"}
            pod = made["spec"]["jobTemplate"]["spec"]["template"]["spec"]
            pod["containers"][0]["command"] = ["/bin/sh", "-c", 'echo "100% done"']
            add(objects, made)

        yield Place(
            options=("--host", "kubernetes", "--kubeconfig", str(kubeconfig), "--image", IMAGE),
            world=kubernetes_world(folder, objects, kubeconfig),
            add_alike=add_alike,
            store_elsewhere=("--store-secret", "stores:url"),
            disown=lambda name: edit(objects, name, _take_mark),
            names=(
                "configmap/detent-shop.backup",
                "cronjob/detent-shop.backup-0",
                "cronjob/detent-shop.backup-1",
                "configmap/detent-shop.report",
                "cronjob/detent-shop.report-0",
                "cronjob/detent-shop.report-1",
            ),
        )


def _take_mark(live: Object) -> None:
    live["metadata"] |= {"annotations": {}, "labels": {}}
    live["spec"]["schedule"] = "1 1 * * *"


@pytest.fixture
def scheduler(folder: Path, moto: str, monkeypatch: pytest.MonkeyPatch) -> Place:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    group = Group(moto, f"g-{uuid.uuid4().hex[:12]}")
    arns = ("--target-arn", FUNCTION, "--role-arn", ROLE, "--dead-letter-arn", QUEUE)
    target_input = json.dumps({"detent": {"job": "shop.backup", "spec": {}}})

    def add_alike(at: str) -> None:
        expression, zone = f"cron({at} * * ? *)", "Europe/Berlin"
        group.add("old", expression, target_input, ScheduleExpressionTimezone=zone)

    return Place(
        options=("--host", "eventbridge", "--group", group.name, "--endpoint-url", moto, *arns),
        world=eventbridge_world(folder, group),
        add_alike=add_alike,
        store_elsewhere=("--lambda-store",),
        disown=lambda name: group.edit(name, Description="mine", ScheduleExpression="cron(1 1 * * ? *)"),
        names=(
            *(f"detent-shop.backup-{index}" for index in range(2)),
            *(f"detent-shop.report-{index}" for index in range(3)),
        ),
    )


@pytest.fixture(params=["cluster", "scheduler"])
def place(request: pytest.FixtureRequest, folder: Path) -> Place:
    (folder / "detent.yaml").write_text(MANIFEST)
    found: Place = request.getfixturevalue(request.param)
    return found


def test_from_plan_to_unapply_and_back(place: Place, detent: Detent, folder: Path) -> None:
    place.world.add_foreign()
    foreign = dict(place.world.look())
    planned = detent("plan", *place.options, "-o", "json")
    assert (planned.code, place.world.look()) == (0, foreign)
    assert tuple(change["name"] for change in planned.json) == place.names
    assert detent("apply", *place.options, "-o", "json").json == planned.json
    applied = dict(place.world.look())
    assert foreign.items() <= applied.items() and len(applied) == len(foreign) + len(place.names)
    again = detent("apply", *place.options)
    assert (again.code, again.out, again.err) == (0, "", "") and place.world.look() == applied
    assert {one["name"] for one in detent("list", *place.where, "-o", "json").json} == set(place.names)
    assert detent("drift", *place.options, "--exit-on-drift").code == 0
    place.world.edit(place.names[-1])
    drifted = detent("drift", *place.options, "--exit-on-drift", "-o", "json")
    assert (drifted.code, [one["state"] for one in drifted.json]) == (5, ["edited"])
    assert f"updated {place.names[-1]}" in detent("apply", *place.options).out
    assert detent("drift", *place.options, "--exit-on-drift").code == 0
    assert dict(place.world.look()) == applied
    assert len(detent("unapply", *place.where).out.splitlines()) == len(place.names)
    assert place.world.look() == foreign
    verbs = [one["verb"] for one in detent("history", *place.options[:2], "-n", "50", "-o", "json").json]
    assert verbs == ["unapply"] * 6 + ["apply"] * 7 or verbs == ["unapply"] * 5 + ["apply"] * 6


def test_a_job_that_is_gone_goes_and_a_changed_one_is_outdated(
    place: Place, detent: Detent, folder: Path
) -> None:
    detent("apply", *place.options)
    kept = [line for line in MANIFEST.splitlines() if "name: report" not in line]
    (folder / "detent.yaml").write_text("\n".join(kept).replace("30 2", "45 5"))
    done = {one["name"]: one["state"] for one in detent("apply", *place.options, "-o", "json").json}
    assert done == {
        name: "surplus" if "report" in name or (name.endswith("backup-1")) else "outdated"
        for name in place.names
    }  # 05:45 in Berlin lies in no gap and no fold
    assert not any("report" in name for name in place.world.look())


@pytest.mark.parametrize(
    ("store", "message"),
    [
        ("", "no shared store"),
        ("store: sqlite:///fires.db", "a file of one machine"),
        ("store: 'postgresql://me:hunter2@db/shop'", "the password of its store"),
    ],
)
def test_without_a_shared_store_nothing_is_applied(
    place: Place, detent: Detent, folder: Path, store: str, message: str
) -> None:
    (folder / "detent.yaml").write_text(MANIFEST.replace("store: redis://redis.example.org", store))
    refused = detent("apply", *place.options)
    assert refused.code == 1 and refused.err.count(message) == 2 and "nothing was changed" in refused.err
    assert "hunter2" not in refused.err and place.store_elsewhere[0] in refused.err
    assert place.world.look() == {}
    applied = detent("apply", *place.options, *place.store_elsewhere)
    assert applied.code == 0, applied.err
    assert not any(word in str(place.world.look()) for word in ("hunter2", "fires.db"))


def test_readable_secrets_and_unsupported_jobs_are_refused(
    place: Place, detent: Detent, folder: Path
) -> None:
    jobs = """
  - {name: loud, schedule: "@daily", request: {url: "https://x.org"}, auth: {secret_refs: ["raw:s3cret"]}}
  - {name: all, schedule: "@daily", command: 'true', run_on: every}
  - {name: alerts, schedule: "@daily", command: 'true', on_failure: "mailto://a:s3cret@h"}
"""
    (folder / "detent.yaml").write_text(MANIFEST + jobs)
    refused = detent("apply", *place.options)
    assert refused.code == 1 and "shop.loud" in refused.err and "shop.all" in refused.err
    assert "shop.alerts: the address of an alert contains a secret" in refused.err
    assert "s3cret" not in refused.err and place.world.look() == {}


def test_seconds_are_refused_before_anything_is_written(place: Place, detent: Detent, folder: Path) -> None:
    (folder / "detent.yaml").write_text(MANIFEST.replace("30 2 * * *", "*/10 * * * * *"))
    refused = detent("apply", *place.options)
    assert refused.code == 1 and "shop.backup" in refused.err and "whole minutes" in refused.err
    assert place.world.look() == {}


def test_equal_entries_are_adopted_and_different_ones_are_not(
    place: Place, detent: Detent, folder: Path
) -> None:
    assert detent("adopt", *place.options).code == 7
    place.add_alike("45 3")
    before = dict(place.world.look())
    diverged = detent("adopt", *place.options)
    assert diverged.code == 6 and "30 2 * * *" in diverged.out and place.world.look() == before
    assert detent("adopt", *place.options, "--force").code == 0
    left = place.world.look()
    assert not any(name.endswith("old") for name in left) and any("shop.backup-0" in name for name in left)
    detent("unapply", *place.where)
    place.add_alike("30 2")
    taken = detent("adopt", *place.options, "-o", "json")
    assert (taken.code, [one["differences"] for one in taken.json]) == (0, [[]]), taken.err
    backups = [path.name for path in (folder / "state" / "detent" / "hosts" / "backups").iterdir()]
    assert any("old" in name for name in backups)


def test_an_entry_with_another_account_or_role_is_adopted_only_with_force(
    place: Place, detent: Detent
) -> None:
    """Our pods have no account unless one is named, and a role is always named: neither is root's."""
    place.add_alike("30 2")
    is_cluster = "--role-arn" not in place.options
    other = ("--service-account", "admin") if is_cluster else ("--role-arn", f"{ROLE}-of-admins")
    words = tuple(place.options) + other if is_cluster else _replaced(place.options, *other)
    diverged = detent("adopt", *words)
    message = (
        "the service account default, the job as the service account admin" if is_cluster else "-of-admins"
    )
    assert diverged.code == 6 and "it runs as the " in diverged.out and message in diverged.out
    assert detent("adopt", *words, "--force").code == 0


def _replaced(words: tuple[str, ...], name: str, value: str) -> tuple[str, ...]:
    at = words.index(name)
    return (*words[: at + 1], value, *words[at + 2 :])


def test_a_foreign_resource_with_our_name_blocks_until_it_is_adopted(place: Place, detent: Detent) -> None:
    detent("apply", *place.options)
    own = next(name for name in place.names if "backup-0" in name)
    there = set(place.world.look())
    place.disown(own)
    refused = detent("apply", *place.options)
    assert refused.code == 1 and "was not written by detent" in refused.err
    assert detent("adopt", *place.options).code == 6
    assert detent("adopt", *place.options, "--force").code == 0
    assert set(place.world.look()) == there
    assert detent("drift", *place.options, "--exit-on-drift").code == 0


JOBS = st.dictionaries(
    st.sampled_from(["out", "out-1", "a"]),
    st.lists(st.sampled_from(["30 2 * * *", "0 0 13 * FRI", "@every 7m", "@hourly"]), min_size=1, max_size=2),
    min_size=1,
)
STEPS = st.lists(st.tuples(st.sampled_from(["pay", "pay-out"]), JOBS), min_size=1, max_size=3)


def test_any_sequence_of_applies_agrees_and_changes_no_other_app(place: Place) -> None:
    world = place.world
    world.add_foreign()
    foreign = dict(world.look())

    @settings(PATIENT, max_examples=4, database=None)
    @given(STEPS)
    def check(steps: list[tuple[str, dict[str, list[str]]]]) -> None:
        applied = {}
        for app, jobs in steps:
            made = [{"name": name, "schedules": texts, "command": "true"} for name, texts in jobs.items()]
            applied[app] = {"version": 2, "app": app, "jobs": made}
            suite.apply(world, applied[app])
            for document in applied.values():
                assert set(suite.states(world, document).values()) == {"unchanged"}
        for app in applied:
            suite.prune(world, app)
        assert world.look() == foreign

    check()
