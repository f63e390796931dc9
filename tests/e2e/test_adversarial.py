"""Attempts to break the guarantees: work that evades the warden, another app in the store, a blocked log."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import pytest
from tests.equipment.fleet import NEVER, Fleet, NodeProcess, wait_for

from detent.clock import instant
from detent.errors import StoreUnavailable
from detent.rules.outcomes import WARDEN_DIED
from detent.warden.program.cgroups import find_cgroup, mounted_at

TAKEOVER_S = 2.0  # what we promise, after kill -9 on one host
CLAIM_S = 6

# su and sudo move to the cgroup of the login session, and the work is their child.
_ELSEWHERE = """
import os, subprocess, sys
with open(sys.argv[1], "w") as members: members.write("0")
sys.exit(subprocess.call(sys.argv[2:]))
"""


def test_a_lane_is_not_free_while_work_runs_that_left_its_cgroup(fleet: Fleet) -> None:
    mount = mounted_at()
    if not mount or not find_cgroup():
        pytest.skip("needs a cgroup (v2) that this user may write to")
    words = [sys.executable, "-I", "-c", _ELSEWHERE, f"{mount}/cgroup.procs"]
    job = fleet.job("su", "deaf", "30", kill_after_seconds=1, policy={"timeout_seconds": 1})
    fleet.write(job | {"command": words + job["command"]})
    fleet.start()
    following = fleet.witness.wait_start("su", after=1)
    assert following.free


def test_a_stopped_warden_of_a_killed_node_does_not_let_two_fires_run_together(fleet: Fleet) -> None:
    fleet.write(fleet.job("long", "sleep", "60", policy={"claim_seconds": CLAIM_S}))
    node = fleet.start()
    fleet.witness.wait_start("long")
    warden = node.warden
    fleet.start()
    os.kill(warden, signal.SIGSTOP)
    try:
        node.kill()
        following = fleet.witness.wait_start("long", after=1)
    finally:
        _go_on(warden)
    assert following.free


def test_another_app_in_the_store_does_not_delay_the_takeover_from_a_dead_node(fleet: Fleet) -> None:
    job = fleet.job("hold", "sleep", "60", schedule=NEVER, policy={"concurrency": "Queue"})
    fleet.write(job, app="u")
    fleet.start()
    fleet.write(job)
    dying = fleet.start()
    fleet.fire("hold")
    start = fleet.witness.wait_start("hold")
    heir = fleet.start()
    asked = wait_for(lambda: _asks(fleet, heir), what="its first ask")
    fleet.fire("hold")
    wait_for(lambda: _asks(fleet, heir) > asked, what="its look at what was fired")

    _stop_between_calls(fleet, heir)  # so that the neighbour finds the dead node first
    dying.kill()
    wait_for(lambda: not (fleet.instances / f"{start.node}.lock").exists(), what="the removal of its lock")
    heir.send(signal.SIGCONT)
    assert fleet.witness.wait_start("hold", after=1, within_s=TAKEOVER_S).free


def _asks(fleet: Fleet, node: NodeProcess) -> int:
    with closing(sqlite3.connect(fleet.database)) as db:
        found = db.execute("SELECT number FROM asks WHERE node = ?", (node.instance,)).fetchone()
    return int(found[0]) if found else 0


def _stop_between_calls(fleet: Fleet, node: NodeProcess) -> None:
    """A node that is stopped in a transaction keeps the store from all others."""
    while True:
        node.send(signal.SIGSTOP)
        try:
            fleet.is_planned_until("hold", instant(0))
            return
        except StoreUnavailable:
            node.send(signal.SIGCONT)


def test_a_fire_that_was_to_stop_when_its_node_died_keeps_its_attempt(fleet: Fleet) -> None:
    fleet.write(fleet.job("deaf", "deaf", "60", schedule=NEVER, kill_after_seconds=30))
    node = fleet.start()
    key = fleet.fire("deaf")
    start = fleet.witness.wait_start("deaf")
    fleet.ask("kill", key)
    wait_for(lambda: fleet.row(key).stop, what="the request to stop it")
    node.kill()
    fleet.start()

    over = fleet.wait_over(key)
    assert over.outcome is not None and over.outcome.kind == "cancelled"
    assert [(one.number, one.fence) for one in over.attempts] == [(1, start.fence)]


def test_a_log_without_a_reader_does_not_stop_the_node(fleet: Fleet) -> None:
    fleet.write(fleet.job("tick", "sleep", "0"))
    reader, writer = os.pipe()
    words = [sys.executable, "-m", "detent", "run", "-f", str(fleet.file), "--store", fleet.url]
    node = subprocess.Popen(words, env=fleet.env, stdin=subprocess.DEVNULL, stdout=writer, stderr=writer)
    os.close(writer)
    try:
        fleet.witness.wait_start("tick")
        os.close(reader)
        fleet.witness.wait_start("tick", after=len(fleet.witness.starts()) + 2)
        node.terminate()
        assert node.wait(30) == 0
    finally:
        node.kill()
        node.wait()


def test_a_command_that_kills_its_warden_ends_only_what_that_warden_had(fleet: Fleet) -> None:
    deed = {"name": "parricide", "schedule": NEVER, "command": "kill -9 $PPID; sleep 60"}
    fleet.write(fleet.job("tick", "sleep", "0"), deed)
    node = fleet.start()
    key = fleet.fire("parricide")
    over = fleet.wait_over(key)
    assert over.outcome == WARDEN_DIED
    fleet.witness.wait_start("tick", after=len(fleet.witness.starts()))
    assert len(node.events("warden-died")) == 1


def test_work_of_a_node_that_is_stopped_with_its_warden_ends_before_another_runs(fleet: Fleet) -> None:
    fleet.write(fleet.job("long", "sleep", "60", policy={"claim_seconds": CLAIM_S}))
    node = fleet.start()
    fleet.witness.wait_start("long")
    stopped = (node.warden, node.pid)
    fleet.start()
    with _without_writers(fleet):
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
    try:
        following = fleet.witness.wait_start("long", after=1)
    finally:
        _go_on(*stopped)
    assert following.free


@contextmanager
def _without_writers(fleet: Fleet) -> Iterator[None]:
    """A node that is stopped while it writes would keep the lock of the file."""
    with closing(sqlite3.connect(fleet.database, timeout=60, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")


def _go_on(*pids: int) -> None:
    """The processes that another node has not killed yet."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
