"""A store with settings too weak for the guarantees: logged once, refused with `require: full`, and always
refused if it cannot keep any of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.equipment.fleet import Fleet
from tests.equipment.postgres_server import shared_server
from tests.equipment.redis_server import RedisServer


class ServerFleet(Fleet):
    def __init__(self, directory: Path, url: str) -> None:
        super().__init__(directory)
        self._url = url
        self.env |= {"XDG_STATE_HOME": str(directory / "state")}

    @property
    def url(self) -> str:
        return self._url

    def write_with(self, **store: object) -> None:
        self.write(self.job("idle", "sleep", "0", schedule="0 0 1 1 *"), store={"url": self._url, **store})

    def refusal(self) -> str:
        """What `detent run` says when it ends by itself."""
        words = [sys.executable, "-m", "detent", "run", "-f", str(self.file)]
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1, done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.end()


@pytest.fixture
def fleet(tmp_path: Path, server: RedisServer) -> Iterator[ServerFleet]:
    fleet = ServerFleet(tmp_path, server.url)
    yield fleet
    fleet.clear_up()
    for name, value in (("appendfsync", "always"), ("maxmemory-policy", "noeviction")):
        server.call("CONFIG", "SET", name, value)


def test_the_weakness_of_a_redis_is_reported_once(fleet: ServerFleet, server: RedisServer) -> None:
    server.call("CONFIG", "SET", "appendfsync", "everysec")
    fleet.write_with()
    node = fleet.start()
    assert node.end() == 0
    (weak,) = node.events("store-weak")
    assert weak["level"] == "WARN"
    assert "appendfsync everysec: a crash of its host may lose the last second" in weak["error"]
    rows = {row["what"]: row for row in json.loads(fleet.ask("doctor", "--output", "json"))}
    assert (rows["durability"]["state"], rows["eviction"]["state"], rows["failover"]["state"]) == (
        "weak",
        "ok",
        "ok",
    )


def test_a_weak_redis_is_refused_if_full_is_required(fleet: ServerFleet, server: RedisServer) -> None:
    server.call("CONFIG", "SET", "appendfsync", "everysec")
    fleet.write_with(require="full")
    assert "too weak for `store.require: full`: appendfsync everysec" in fleet.refusal()
    server.call("CONFIG", "SET", "appendfsync", "always")
    node = fleet.start()
    assert (node.events("store-weak"), node.end()) == ([], 0)


def test_a_server_that_evicts_keys_is_always_refused(fleet: ServerFleet, server: RedisServer) -> None:
    server.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    fleet.write_with()
    assert "has maxmemory-policy allkeys-lru, which deletes records" in fleet.refusal()


def test_a_read_only_replica_is_always_refused(server: RedisServer, tmp_path: Path) -> None:
    replica = RedisServer(tmp_path / "replica", "--replicaof", f"127.0.0.1 {server.port}")
    fleet = ServerFleet(tmp_path, replica.url)
    fleet.write_with()
    assert "is a read-only replica: name its master" in fleet.refusal()
    replica.end()


def test_a_postgresql_without_fsync_is_refused_if_full_is_required(tmp_path: Path) -> None:
    fleet = ServerFleet(tmp_path, shared_server().url)
    fleet.write_with(require="full", key_prefix="refused")
    assert "too weak for `store.require: full`: PostgreSQL" in fleet.refusal()
