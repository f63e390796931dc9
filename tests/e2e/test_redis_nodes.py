"""A node on a Redis that is killed and comes back with its data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.equipment.fleet import Fleet
from tests.equipment.redis_server import RedisServer


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


def test_a_node_survives_a_store_that_is_killed_and_restarted(redis_fleet: RedisFleet) -> None:
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
