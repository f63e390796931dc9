"""On one host, a lane is also a kernel lock: a process that still has it keeps the lane."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from tests.equipment.fleet import NEVER, Fleet, wait_for

from detent.warden.program import host_locks

HELD = "a process of an earlier fire still runs on this host"


@contextmanager
def held(fleet: Fleet, job: str) -> Iterator[None]:
    """Hold the lock like a process that escaped its warden."""
    fd = host_locks.take_lane(str(fleet.instances / "lanes" / f"t.{job}"), places=1)
    assert fd is not None
    yield
    host_locks.release_lane(fd)


def test_the_lock_file_of_a_lane_exists_before_its_first_fire_is_due(fleet: Fleet) -> None:
    at = (datetime.now(UTC) + timedelta(seconds=90)).isoformat(timespec="seconds")
    elsewhere = {"name": "elsewhere", "at": at, "request": {"url": "http://127.0.0.1:1/"}}
    fleet.write({"name": "soon", "at": at, "command": "true"}, elsewhere)
    fleet.start()
    files = fleet.instances / "lanes"
    found = wait_for(lambda: [*files.glob("*")], what="a lane's file")
    assert found == [files / "t.soon.0"], "a request keeps no lane on this host"


def test_a_fire_is_skipped_if_a_process_still_holds_its_lane(fleet: Fleet) -> None:
    fleet.write(fleet.job("settle", "sleep", "0", schedule=NEVER))
    node = fleet.start()
    assert node.instance
    with held(fleet, "settle"):
        over = fleet.wait_over(fleet.fire("settle"))
        assert over.outcome is not None and over.outcome.kind == "skipped"
        assert over.outcome.reason == f"{HELD}: {os.getpid()}"
        assert over.attempts == (), "nothing was started"
        node.wait("skipped", fire=over.fire.key)
    after = fleet.wait_over(fleet.fire("settle"))
    assert after.outcome is not None and after.outcome.kind == "succeeded"


@pytest.mark.parametrize("concurrency", ["Queue", "Replace"])
def test_a_fire_that_waits_for_its_lane_waits_for_the_process_too(fleet: Fleet, concurrency: str) -> None:
    fleet.write(fleet.job("settle", "sleep", "0", schedule=NEVER, policy={"concurrency": concurrency}))
    node = fleet.start()
    assert node.instance
    with held(fleet, "settle"):
        key = fleet.fire("settle")
        node.wait("fire-started", count=2, fire=key)  # it was tried, given back, and tried again
        assert fleet.witness.starts() == []
    over = fleet.wait_over(key)
    assert over.outcome is not None and over.outcome.kind == "succeeded"
    assert [one.number for one in over.attempts] == [1]
