"""Node and warden are gone, or one is gone and the other stopped: their work dies all the same, and at once.

The test does not start the node again, because a node of another host could not kill the work of this one.
"""

from __future__ import annotations

import os
import signal

import pytest
from tests.equipment.fleet import Fleet, alive, wait_for


@pytest.mark.parametrize("deed", ["sleep", "daemon"])
def test_nothing_outlives_a_node_and_a_warden_that_are_killed_at_once(either_fleet: Fleet, deed: str) -> None:
    fleet = either_fleet
    fleet.write(fleet.job("long", deed, "1000"))
    node = fleet.start()
    started = fleet.witness.wait_start("long")
    if deed == "daemon":
        wait_for(lambda: fleet.witness.seen("daemon"), what="its grandchild")
    instance, warden = node.instance, node.warden
    wait_for(started.alive, what="its processes")

    for pid in (warden, node.pid):
        os.kill(pid, signal.SIGKILL)
    node.process.wait()
    wait_for(lambda: not started.alive(), what="the end of its work")
    wait_for(lambda: not alive(DETENT_NODE=instance), what="the end of everything of that instance")


def test_nothing_outlives_a_warden_that_is_killed_while_its_node_is_stopped(either_fleet: Fleet) -> None:
    fleet = either_fleet
    fleet.write(fleet.job("long", "sleep", "1000"), node={"drain_seconds": 0})
    node = fleet.start()
    started = fleet.witness.wait_start("long")
    warden = node.warden
    node.send(signal.SIGSTOP)
    os.kill(warden, signal.SIGKILL)
    wait_for(lambda: not started.alive(), what="the end of its work")
    node.send(signal.SIGCONT)
    node.wait("warden-died")
    fleet.witness.wait_start("long", after=1)
    assert node.end() == 0
