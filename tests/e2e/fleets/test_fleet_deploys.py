"""Deploys on every store: other lists of jobs, changed definitions, and jobs that nobody holds any more."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.e2e.fleets.hosts import STORES, hosts_on
from tests.equipment.fleet import Fleet, NodeProcess, wait_for

from detent.rules.outcomes import JOB_REMOVED


@pytest.fixture(params=["sqlite", *STORES])
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


def test_two_manifests_with_one_app_name_both_run(any_fleet: Fleet) -> None:
    nodes = [start_with(any_fleet, "a.yaml", "one", "same"), start_with(any_fleet, "b.yaml", "two", "same")]
    for lane in ("one", "two"):
        any_fleet.witness.wait_start(lane, after=len(any_fleet.witness.starts(lane)) + 3)
    lives = {"one": nodes[0].life, "two": nodes[1].life}
    for lane, life in lives.items():
        assert {start.node for start in any_fleet.witness.starts(lane)} == {life}, "a node runs what it holds"
    assert not any(node.events("superseded") or node.events("claim-returned") for node in nodes)
    any_fleet.witness.assert_launched_once()


def test_a_job_that_no_living_node_holds_is_removed_with_a_reason(any_fleet: Fleet) -> None:
    staying, leaving = start_with(any_fleet, "a.yaml", "one"), start_with(any_fleet, "b.yaml", "two")
    any_fleet.witness.wait_start("two")
    leaving.end()
    starts = len(any_fleet.witness.starts("two"))
    assert staying.wait("deployed")["removed"] == ["t.two"]
    removed = JOB_REMOVED
    wait_for(lambda: removed in [row.outcome for row in any_fleet.find(job="t.two")], what="a cancelled fire")
    assert len(any_fleet.witness.starts("two")) == starts
    any_fleet.witness.wait_start("one", after=len(any_fleet.witness.starts("one")) + 1)


def test_a_node_that_deploys_another_definition_says_so_and_so_does_the_other(any_fleet: Fleet) -> None:
    older = start_with(any_fleet, "a.yaml", "one")
    any_fleet.witness.wait_start("one")
    any_fleet.file = any_fleet.directory / "b.yaml"
    any_fleet.write(any_fleet.job("one", "sleep", "0.01"))
    newer = any_fleet.start()
    assert newer.wait("deployed")["changed"] == ["t.one"]
    assert older.wait("superseded")["jobs"] == ["t.one"]


def test_an_older_definition_is_in_force_again_once_no_living_node_holds_the_newer_one(
    any_fleet: Fleet,
) -> None:
    older = start_with(any_fleet, "a.yaml", "one")
    any_fleet.witness.wait_start("one")
    any_fleet.file = any_fleet.directory / "b.yaml"
    any_fleet.write(any_fleet.job("one", "sleep", "0.01"))
    newer = any_fleet.start()
    older.wait("superseded")
    any_fleet.witness.wait_start("one", after=len(any_fleet.witness.starts("one")) + 1)
    newer.end()
    starts = len(any_fleet.witness.starts("one"))
    assert older.wait("deployed")["changed"] == ["t.one"]
    assert any_fleet.witness.wait_start("one", after=starts).node == older.life


def test_a_fire_that_an_older_definition_planned_runs_under_the_new_policy(any_fleet: Fleet) -> None:
    """A second's job that overlaps itself is killed with what it planned; it may not overlap any more."""
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
    ours = [start for start in any_fleet.witness.starts("beat") if start.node == new.life]
    assert all(start.free for start in ours), "no two of a job that is now Forbid run together"
