"""A node or its warden dies or is stopped while work runs that tries to survive it."""

import os
import signal
import time
from datetime import timedelta

from tests.equipment.fleet import NEVER, Fleet, wait_for

from detent.clock import instant
from detent.rules.outcomes import lane_taken
from detent.warden.program import kernel

GONE_S = 2.0  # what we promise, for all processes of a fire
CLAIM_S = 6


def test_no_process_outlives_a_killed_node_and_another_node_goes_on(either_fleet: Fleet) -> None:
    fleet = either_fleet
    fleet.write(fleet.job("nest", "daemon", "60"))
    fleet.start(), fleet.start()
    start = fleet.witness.wait_start("nest")
    wait_for(lambda: fleet.witness.seen("daemon"), what="the grandchild")

    fleet.node_of(start.node).kill()
    wait_for(lambda: not start.alive(), GONE_S, "the end of all processes")

    following = fleet.witness.wait_start("nest", after=1)
    assert following.free and following.node != start.node
    lost = fleet.wait_over(start.key)
    assert lost.outcome is not None and lost.outcome.kind == "lost"


def test_no_process_outlives_a_killed_warden_and_its_node_goes_on(either_fleet: Fleet) -> None:
    fleet = either_fleet
    fleet.write(fleet.job("nest", "daemon", "60"))
    node = fleet.start()
    start = fleet.witness.wait_start("nest")
    wait_for(lambda: fleet.witness.seen("daemon"), what="the grandchild")

    os.kill(node.warden, signal.SIGKILL)
    wait_for(lambda: not start.alive(), GONE_S, "the end of all processes")

    following = fleet.witness.wait_start("nest", after=1)
    assert following.free and following.node == start.node
    lost = fleet.wait_over(start.key)
    assert lost.outcome is not None and lost.outcome.kind == "lost"
    assert len(node.events("warden-died")) == 1


def test_the_next_start_cleans_up_after_node_and_warden_were_killed_together(either_fleet: Fleet) -> None:
    fleet = either_fleet
    fleet.write(fleet.job("nest", "daemon", "60"))
    node = fleet.start()
    start = fleet.witness.wait_start("nest")
    wait_for(lambda: fleet.witness.seen("daemon"), what="the grandchild")

    node.send(signal.SIGSTOP)  # so that it cannot notice that its warden is gone
    os.kill(node.warden, signal.SIGKILL)
    node.kill()
    fleet.start()

    following = fleet.witness.wait_start("nest", after=1)
    assert following.free
    assert start.alive() == set()


def test_processes_that_the_reaper_left_are_killed_before_the_fire_runs_again(either_fleet: Fleet) -> None:
    """Its node, its warden and their reaper are killed at once: the next node finds its processes alive."""
    fleet = either_fleet
    policy = {"concurrency": "Allow", "on_lost": "rerun"}
    fleet.write(fleet.job("left", "daemon", "60", schedule=NEVER, policy=policy))
    node = fleet.start()
    fleet.fire("left")
    start = fleet.witness.wait_start("left")
    wait_for(lambda: fleet.witness.seen("daemon"), what="the grandchild")
    warden = node.warden
    reapers = wait_for(lambda: kernel.children(warden) - start.alive(), what="the reaper")

    for number in (signal.SIGSTOP, signal.SIGKILL):  # so that none of them sees another die
        for pid in (node.pid, warden, *reapers):
            os.kill(pid, number)
    node.process.wait()
    assert start.alive()
    fleet.start()

    again = fleet.witness.wait_start("left", after=1)
    assert (again.key, again.attempt, again.free) == (start.key, 2, True)
    assert start.alive() == set()


def test_work_of_a_stopped_node_is_dead_before_its_claim_expires(fleet: Fleet) -> None:
    fleet.write(fleet.job("deaf", "deaf", "60", policy={"claim_seconds": CLAIM_S}))
    fleet.start(), fleet.start()
    start = fleet.witness.wait_start("deaf")
    stopped = fleet.node_of(start.node)

    stopped.send(signal.SIGSTOP)
    wait_for(lambda: not start.alive(), what="the end of the work")
    gone_at = time.time()

    following = fleet.witness.wait_start("deaf", after=1)
    assert following.free and following.node != start.node
    lost = fleet.wait_over(start.key)
    assert lost.outcome is not None and lost.outcome.kind == "lost"
    assert lost.over_at is not None and lost.over_at > instant(gone_at)
    skipped = fleet.due("deaf", lost.over_at - timedelta(seconds=1))[1:]
    assert skipped and {row.outcome for row in skipped} == {lane_taken(start.key)}

    stopped.send(signal.SIGCONT)
    stopped.wait("fenced", fire=start.key)
    assert len([node for node in fleet.nodes if node.events("lost", fire=start.key)]) == 1


def test_a_node_runs_nothing_by_a_superseded_definition(fleet: Fleet) -> None:
    def define(label: str) -> None:
        fleet.write({**fleet.job("both", "sleep", "0"), "command": fleet.witness.words(label, "sleep", "0")})

    define("old")
    newer, older = fleet.file, fleet.file.rename(fleet.directory / "older.yaml")
    fleet.file = older
    old = fleet.start()
    fleet.witness.wait_start("old")
    fleet.file = newer
    define("new")
    fleet.start()
    fleet.witness.wait_start("new")
    old.wait("superseded")
    known = fleet.witness.starts()
    fleet.witness.wait_start("new", after=len(fleet.witness.starts("new")) + 5)
    assert [one.lane for one in fleet.witness.starts()[len(known) + 1 :] if one.lane == "old"] == []
