"""Deploys: other lists of jobs, changed definitions, and jobs that no node holds any more.

A node decides the same on every store, and `check_store` checks the calls that it makes.  So each behaviour
runs on SQLite, and those that depend on what the store rewrites run on a server too.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.e2e.fleets.hosts import hosts_on, wait_until_nodes_know_each_other
from tests.equipment.fleet import Fleet, NodeProcess, wait_for

from detent.rules.outcomes import JOB_REMOVED

on_file_and_server = pytest.mark.parametrize("any_fleet", ["sqlite", "redis"], indirect=True)
on_sqlite = pytest.mark.parametrize("any_fleet", ["sqlite"], indirect=True)


@pytest.fixture
def any_fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    if request.param != "sqlite":
        with hosts_on(request.param, tmp_path) as hosts:
            yield hosts
        return
    fleet = Fleet(tmp_path)
    try:
        yield fleet
    finally:
        fleet.clear_up()
    fleet.assert_quiet()


def start_with(fleet: Fleet, file: str, *jobs: str) -> NodeProcess:
    """A node whose manifest, of this name, has these jobs."""
    fleet.file = fleet.directory / file
    fleet.write(*(fleet.job(name, "sleep", "0") for name in jobs))
    return fleet.start()


@on_sqlite
def test_two_manifests_with_one_app_name_both_run(any_fleet: Fleet) -> None:
    nodes = [start_with(any_fleet, "a.yaml", "one", "same"), start_with(any_fleet, "b.yaml", "two", "same")]
    for lane in ("one", "two"):
        any_fleet.witness.wait_start(lane, after=len(any_fleet.witness.starts(lane)) + 3)
    instances = {"one": nodes[0].instance, "two": nodes[1].instance}
    for lane, instance in instances.items():
        assert {start.node for start in any_fleet.witness.starts(lane)} == {instance}, (
            "a node runs what it holds"
        )
    assert not any(node.events("superseded") or node.events("claim-returned") for node in nodes)
    any_fleet.witness.assert_launched_once()


@on_sqlite
def test_a_job_that_no_living_node_holds_is_removed_with_a_reason(any_fleet: Fleet) -> None:
    staying, leaving = start_with(any_fleet, "a.yaml", "one"), start_with(any_fleet, "b.yaml", "two")
    any_fleet.witness.wait_start("two")
    wait_until_nodes_know_each_other(any_fleet, 2)  # else the staying node would look only once a minute
    leaving.end()
    starts = len(any_fleet.witness.starts("two"))
    assert staying.wait("deployed")["removed"] == ["t.two"]
    removed = JOB_REMOVED
    wait_for(lambda: removed in [row.outcome for row in any_fleet.find(job="t.two")], what="a cancelled fire")
    assert len(any_fleet.witness.starts("two")) == starts
    any_fleet.witness.wait_start("one", after=len(any_fleet.witness.starts("one")) + 1)


@on_file_and_server
def test_a_newer_definition_supersedes_an_older_one_until_no_living_node_holds_it(any_fleet: Fleet) -> None:
    older = start_with(any_fleet, "a.yaml", "one")
    any_fleet.witness.wait_start("one")
    any_fleet.file = any_fleet.directory / "b.yaml"
    any_fleet.write(any_fleet.job("one", "sleep", "0.01"))
    newer = any_fleet.start()
    assert newer.wait("deployed")["changed"] == ["t.one"]
    assert older.wait("superseded")["jobs"] == ["t.one"]
    any_fleet.witness.wait_start("one", after=len(any_fleet.witness.starts("one")) + 1)
    wait_until_nodes_know_each_other(any_fleet, 2)  # else the older node would look only once a minute
    newer.end()
    starts = len(any_fleet.witness.starts("one"))
    assert older.wait("deployed")["changed"] == ["t.one"]
    assert any_fleet.witness.wait_start("one", after=starts).node == older.instance


@on_file_and_server
def test_a_fire_that_an_older_definition_planned_runs_under_the_new_policy(any_fleet: Fleet) -> None:
    """The node dies with fires of an `Allow` job planned; the next node's definition says `Forbid`."""
    any_fleet.write(any_fleet.job("beat", "sleep", "0", policy={"concurrency": "Allow", "catch_up": "all"}))
    old = any_fleet.start()
    any_fleet.witness.wait_start("beat")
    old.kill()
    killed_at = datetime.now(UTC)
    planned = [row for row in any_fleet.find(job="t.beat", state="pending") if row.fire.due_at > killed_at]
    wait_for(lambda: planned[2].fire.due_at < datetime.now(UTC), what="fires that came due meanwhile")
    policy = {"concurrency": "Forbid", "catch_up": "all", "timeout_seconds": 7}
    any_fleet.write(any_fleet.job("beat", "sleep", "1.5", policy=policy))
    new = any_fleet.start()
    row = any_fleet.wait_over(planned[2].fire.key)
    assert (row.fire.policy.concurrency, row.fire.policy.timeout_s) == ("Forbid", 7.0)
    any_fleet.witness.wait_start("beat", after=len(any_fleet.witness.starts("beat")) + 2)
    ours = [start for start in any_fleet.witness.starts("beat") if start.node == new.instance]
    assert all(start.free for start in ours), "no two fires of a job that is now Forbid overlap"
