"""Deploys: other lists of jobs, changed definitions, and jobs that no node holds any more.

A node decides the same on every store, and `check_store` checks what each store rewrites when a job changes.
So the nodes of these tests share a file.
"""

from __future__ import annotations

from datetime import UTC, datetime

from tests.e2e.fleets.hosts import wait_until_nodes_know_each_other
from tests.equipment.fleet import Fleet, NodeProcess, wait_for

from detent.rules.outcomes import JOB_REMOVED


def start_with(fleet: Fleet, file: str, *jobs: str) -> NodeProcess:
    """A node whose manifest, of this name, has these jobs."""
    fleet.file = fleet.directory / file
    fleet.write(*(fleet.job(name, "sleep", "0") for name in jobs))
    return fleet.start()


def test_two_manifests_with_one_app_name_both_run(fleet: Fleet) -> None:
    nodes = [start_with(fleet, "a.yaml", "one", "same"), start_with(fleet, "b.yaml", "two", "same")]
    for lane in ("one", "two"):
        fleet.witness.wait_start(lane, after=len(fleet.witness.starts(lane)) + 3)
    instances = {"one": nodes[0].instance, "two": nodes[1].instance}
    for lane, instance in instances.items():
        assert {start.node for start in fleet.witness.starts(lane)} == {instance}, "a node runs what it holds"
    assert not any(node.events("superseded") or node.events("claim-returned") for node in nodes)
    fleet.witness.assert_launched_once()


def test_a_job_that_no_living_node_holds_is_removed_with_a_reason(fleet: Fleet) -> None:
    staying, leaving = start_with(fleet, "a.yaml", "one"), start_with(fleet, "b.yaml", "two")
    fleet.witness.wait_start("two")
    wait_until_nodes_know_each_other(fleet, 2)  # else the staying node would look only once a minute
    leaving.end()
    starts = len(fleet.witness.starts("two"))
    assert staying.wait("deployed")["removed"] == ["t.two"]
    removed = JOB_REMOVED
    wait_for(lambda: removed in [row.outcome for row in fleet.find(job="t.two")], what="a cancelled fire")
    assert len(fleet.witness.starts("two")) == starts
    fleet.witness.wait_start("one", after=len(fleet.witness.starts("one")) + 1)


def test_a_newer_definition_supersedes_an_older_one_until_no_living_node_holds_it(fleet: Fleet) -> None:
    older = start_with(fleet, "a.yaml", "one")
    fleet.witness.wait_start("one")
    fleet.file = fleet.directory / "b.yaml"
    fleet.write(fleet.job("one", "sleep", "0.01"))
    newer = fleet.start()
    assert newer.wait("deployed")["changed"] == ["t.one"]
    assert older.wait("superseded")["jobs"] == ["t.one"]
    fleet.witness.wait_start("one", after=len(fleet.witness.starts("one")) + 1)
    wait_until_nodes_know_each_other(fleet, 2)  # else the older node would look only once a minute
    newer.end()
    starts = len(fleet.witness.starts("one"))
    assert older.wait("deployed")["changed"] == ["t.one"]
    assert fleet.witness.wait_start("one", after=starts).node == older.instance


def test_a_fire_that_an_older_definition_planned_runs_under_the_new_policy(fleet: Fleet) -> None:
    """The node dies with fires of an `Allow` job planned; the next node's definition says `Forbid`."""
    fleet.write(fleet.job("beat", "sleep", "0", policy={"concurrency": "Allow", "catch_up": "all"}))
    old = fleet.start()
    fleet.witness.wait_start("beat")
    old.kill()
    killed_at = datetime.now(UTC)
    planned = [row for row in fleet.find(job="t.beat", state="pending") if row.fire.due_at > killed_at]
    wait_for(lambda: planned[2].fire.due_at < datetime.now(UTC), what="fires that came due meanwhile")
    policy = {"concurrency": "Forbid", "catch_up": "all", "timeout_seconds": 7}
    fleet.write(fleet.job("beat", "sleep", "1.5", policy=policy))
    new = fleet.start()
    row = fleet.wait_over(planned[2].fire.key)
    assert (row.fire.policy.concurrency, row.fire.policy.timeout_s) == ("Forbid", 7.0)
    fleet.witness.wait_start("beat", after=len(fleet.witness.starts("beat")) + 2)
    ours = [start for start in fleet.witness.starts("beat") if start.node == new.instance]
    assert all(start.free for start in ours), "no two fires of a job that is now Forbid overlap"
