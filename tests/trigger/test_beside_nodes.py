"""Triggers and nodes on one store: each runs only its own fires, and together they keep the guarantees."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.equipment.fleet import Fleet, NodeProcess, wait_for
from tests.equipment.redis_server import RedisServer
from tests.trigger.trigger_world import TriggerProcess

from detent.model import Row

QUEUED = {"concurrency": "Queue", "concurrency_scope": "global"}
FORBID = {"concurrency": "Forbid", "concurrency_scope": "global", "claim_seconds": 10}
BESIDE = {"concurrency": "Allow", "concurrency_scope": "global", "catch_up": "all"}
ROUNDS = 4


class SharedFleet(Fleet):
    """Nodes, and triggers of the same manifest, on one store."""

    def __init__(self, directory: Path, url: str) -> None:
        super().__init__(directory)
        self._url = url
        self.env |= {"XDG_STATE_HOME": str(directory / "state"), "DETENT_LOCK_DIR": str(directory / "locks")}
        self.triggers: list[TriggerProcess] = []

    @property
    def url(self) -> str:
        return self._url or super().url

    def trigger(self, name: str, *words: str) -> TriggerProcess:
        line = [sys.executable, "-m", "detent", "trigger", f"t.{name}", "-f", str(self.file), *words]
        process = TriggerProcess(
            [*line, "--store", self.url], self.env, self.directory / f"trigger-{len(self.triggers)}.log"
        )
        self.triggers.append(process)
        return process

    def clear_up(self) -> None:
        for process in self.triggers:
            process.clear_up()
        super().clear_up()


@pytest.fixture(params=["sqlite", "redis"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SharedFleet]:
    url = ""
    if request.param == "redis":
        server = RedisServer(tmp_path / "redis")
        request.addfinalizer(server.end)
        url = server.url
    fleet = SharedFleet(tmp_path, url)
    try:
        yield fleet
    finally:
        fleet.clear_up()
    fleet.assert_quiet()


def due_and_pending(fleet: Fleet, name: str) -> list[Row]:
    return fleet.find(job=f"t.{name}", state="pending", until=datetime.now(UTC))


def full_node(fleet: SharedFleet) -> NodeProcess:
    """A node that runs a backup, has no room for more, and has fires of two jobs that wait for it."""
    fleet.write(
        fleet.job("backup", "sleep", "300", policy=QUEUED),
        fleet.job("other", "sleep", "300", policy=BESIDE),
        node={"max_running": 1, "drain_seconds": 0},
    )
    node = fleet.start()
    fleet.witness.wait_start("backup")
    wait_for(lambda: due_and_pending(fleet, "backup") and due_and_pending(fleet, "other"), what="a backlog")
    return node


def test_a_trigger_does_not_run_the_fire_of_a_full_node(fleet: SharedFleet) -> None:
    full_node(fleet)
    [waiting] = due_and_pending(fleet, "backup")
    said = fleet.trigger("backup", "--due", f"{waiting.fire.due_at:%Y-%m-%dT%H:%M:%SZ}").over()
    assert (said.code, said.names) == (4, ["already-launched"])
    assert said.one("already-launched")["fire"] == waiting.fire.key
    assert len(fleet.witness.starts()) == 1, "the trigger ran something"
    assert {row.attempt for row in due_and_pending(fleet, "other")} == {0}
    assert len(fleet.find(state="claimed")) == 1, "a claim has no work"


def test_a_lane_that_a_trigger_holds_is_busy_for_nodes(fleet: SharedFleet) -> None:
    fleet.write(fleet.job("backup", "sleep", "300", policy=FORBID), node={"drain_seconds": 0})
    due = f"{datetime.now(UTC).replace(microsecond=0, year=2025):%Y-%m-%dT%H:%M:%SZ}"
    process = fleet.trigger("backup", "--due", due)
    held = fleet.witness.wait_start("backup")
    node = fleet.start()
    skipped = node.wait("skipped", job="backup")
    assert (skipped["cause"], skipped["reason"]) == ("lane", f"{held.key} is still running")
    assert fleet.trigger("backup").over().names[-1] in ("already-launched", "lock-contended", "nothing-due")
    process.process.send_signal(signal.SIGTERM)
    assert process.over().code == 128 + signal.SIGTERM
    assert fleet.witness.wait_start("backup", after=1).node == node.instance


def test_triggers_and_a_node_launch_each_instant_once_and_as_its_own_job(fleet: SharedFleet) -> None:
    jobs = fleet.job("quick", "sleep", "0.1", policy=FORBID), fleet.job("slow", "sleep", "2.5", policy=FORBID)
    fleet.write(*jobs, node={"max_running": 1, "drain_seconds": 0})
    fleet.trigger("quick").over()  # the first to know the job
    node = fleet.start()
    for number in range(ROUNDS):
        triggers = [fleet.trigger("quick"), fleet.trigger("slow")]
        if number == ROUNDS // 2:
            os.kill(triggers[1].pid, signal.SIGKILL)
        for process in triggers:
            assert process.over().code in (0, 4, -signal.SIGKILL)
    assert node.end() == 0
    for seen in fleet.witness.starts():
        assert seen.key.startswith(f"t.{seen.lane}@"), "a command ran under another job's fire"
    fleet.witness.assert_launched_once()
    fleet.witness.assert_no_overlap()
