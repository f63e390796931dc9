"""Two nodes share a Redis: each instant is launched once, and the fires of a killed node are taken over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from tests.equipment.fleet import Fleet, wait_for
from tests.equipment.redis_server import RedisServer

from detent.clock import instant

WHILE_S = 8.0


class RedisFleet(Fleet):
    """A fleet whose store is a Redis of its own."""

    def __init__(self, directory: Path, server: RedisServer) -> None:
        super().__init__(directory)
        self.server = server
        self.env |= {"XDG_STATE_HOME": str(directory / "state")}

    @property
    def url(self) -> str:
        return self.server.url


@pytest.fixture
def redis_fleet(tmp_path: Path) -> Iterator[RedisFleet]:
    server = RedisServer(tmp_path / "redis")
    fleet = RedisFleet(tmp_path, server)
    try:
        yield fleet
    finally:
        fleet.clear_up()
        server.end()
    fleet.assert_quiet()


def test_each_instant_is_launched_once_by_two_nodes(redis_fleet: RedisFleet) -> None:
    fleet = redis_fleet
    jobs = fleet.job("tick", "sleep", "0.1"), fleet.job("long", "sleep", "100")
    fleet.write(*jobs, node={"drain_seconds": 0})
    nodes = [fleet.start(), fleet.start()]
    began = time.time()

    held = fleet.witness.wait_start("long")
    killed = fleet.node_of(held.node)
    killed.kill()
    lost = fleet.wait_over(held.key)
    assert lost.outcome is not None and lost.outcome.kind == "lost"
    assert fleet.witness.wait_start("long", after=1).fence > held.fence

    wait_for(lambda: time.time() > began + WHILE_S, WHILE_S + 1)
    assert all(node.end() == 0 for node in nodes if node is not killed)
    assert all(node.events("store-weak") == [] for node in nodes), "its settings are strong enough"

    rows = fleet.due("tick", instant(began + WHILE_S - 1))
    assert len(rows) >= WHILE_S - 3
    seconds = [row.fire.due_at for row in rows]
    assert all(later - earlier == timedelta(seconds=1) for earlier, later in pairwise(seconds))
    assert {row.state for row in rows} == {"over"}
    fleet.witness.assert_launched_once()
    fleet.witness.assert_no_overlap()


def test_nodes_survive_a_store_that_is_killed_and_restarted(redis_fleet: RedisFleet) -> None:
    fleet, server = redis_fleet, redis_fleet.server
    fleet.write(fleet.job("tick", "sleep", "0", policy={"claim_seconds": 3}))
    node = fleet.start()
    fleet.witness.wait_start("tick", after=1)
    server.end()
    node.wait("store-unavailable")
    server.start()
    node.wait("store-back")
    before = len(fleet.witness.starts("tick"))
    fleet.witness.wait_start("tick", after=before)
    assert len(node.events("store-unavailable")) == len(node.events("store-back")) == 1
    assert node.end() == 0
    fleet.witness.assert_launched_once()
