"""SIGTERM, SIGINT and SIGQUIT: a node lets work finish, stops the rest and settles it."""

import signal
import subprocess
import time

import pytest
from tests.equipment.fleet import NEVER, Fleet, NodeProcess, alive

from detent.model import Outcome

STOPS = [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT]


def test_work_that_outlives_the_drain_is_lost_and_runs_again_if_declared(fleet: Fleet) -> None:
    fleet.write(
        fleet.job("again", "sleep", "60", schedule=NEVER, policy={"on_lost": "rerun"}),
        fleet.job("once", "sleep", "60", schedule=NEVER),
        node={"drain_seconds": 1},
    )
    node = fleet.start()
    again, once = fleet.fire("again"), fleet.fire("once")
    first = fleet.witness.wait_start("again")
    fleet.witness.wait_start("once")

    assert node.end() == 0
    _assert_nothing_is_left(fleet, node)
    settled, waiting = fleet.row(once), fleet.row(again)
    assert settled.outcome is not None and settled.outcome == Outcome("lost", "shutdown", "shutdown")
    assert waiting.state == "pending" and waiting.attempts[0].outcome == Outcome(
        "lost", "shutdown", "shutdown"
    )

    fleet.start()
    second = fleet.witness.wait_start("again", after=1)
    assert (second.key, second.run_id, second.attempt) == (again, first.run_id, 2)
    assert second.free and second.fence > first.fence
    assert len(fleet.witness.starts("once")) == 1


@pytest.mark.parametrize("signum", STOPS, ids=lambda signum: signum.name)
def test_work_may_end_while_its_node_drains(fleet: Fleet, signum: int) -> None:
    fleet.write(fleet.job("short", "sleep", "1.5", schedule=NEVER), fleet.job("tick", "sleep", "0"))
    node = fleet.start()
    key = fleet.fire("short")
    fleet.witness.wait_start("short")

    node.send(signum)
    assert key in node.wait("draining")["running"]
    launched = len(fleet.witness.starts("tick"))
    assert node.process.wait(30) == 0
    assert fleet.row(key).outcome == Outcome("succeeded")
    assert len(fleet.witness.starts("tick")) <= launched + 1, "it takes no more work"
    _assert_nothing_is_left(fleet, node)


def test_a_second_signal_skips_the_drain(fleet: Fleet) -> None:
    fleet.write(
        fleet.job("deaf", "deaf", "600", schedule=NEVER, kill_after_seconds=600),
        node={"drain_seconds": 600},
    )
    node = fleet.start()
    key = fleet.fire("deaf")
    fleet.witness.wait_start("deaf")

    node.send(signal.SIGTERM)
    node.wait("draining")
    with pytest.raises(subprocess.TimeoutExpired):
        node.process.wait(1)
    assert node.end() == 0
    assert fleet.row(key).outcome == Outcome("lost", "shutdown", "shutdown")
    _assert_nothing_is_left(fleet, node)


def test_a_second_signal_kills_work_that_is_already_stopping(fleet: Fleet) -> None:
    fleet.write(
        fleet.job("deaf", "deaf", "600", schedule=NEVER, kill_after_seconds=600),
        node={"drain_seconds": 0},
    )
    node = fleet.start()
    fleet.fire("deaf")
    fleet.witness.wait_start("deaf")

    node.send(signal.SIGTERM)
    node.wait("draining")
    with pytest.raises(subprocess.TimeoutExpired):
        node.process.wait(1)
    assert node.end() == 0
    _assert_nothing_is_left(fleet, node)


def test_a_stopping_node_frees_its_lanes_at_once(fleet: Fleet) -> None:
    fleet.write(fleet.job("job", "sleep", "60"), node={"drain_seconds": 0})
    fleet.start(), fleet.start()
    first = fleet.witness.wait_start("job")

    fleet.node_of(first.node).end()
    ended_at = time.clock_gettime(time.CLOCK_MONOTONIC)
    second = fleet.witness.wait_start("job", after=1)
    assert second.free and second.node != first.node
    assert second.at - ended_at < 3, "the next second, and not when a claim has expired"


def _assert_nothing_is_left(fleet: Fleet, node: NodeProcess) -> None:
    assert alive(DETENT_NODE=node.instance) == set()
    assert [path.name for path in fleet.instances.iterdir()] == ["lanes"]
    assert node.events()[-1]["event"] == "stopped"
