"""Searches in the Redis store: how many commands one takes, as nobody else is served meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.equipment.redis_server import RedisServer

from detent.model import Query
from detent.stores.base import LOOK_MAX
from detent.stores.redis.store import RedisStore
from detent.testing.stores.fixtures import Asker, Planner, fire, later

AHEAD = 3_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"), "--appendfsync", "no")
    yield server
    server.end()


@pytest.fixture
def store(server: RedisServer, tmp_path: Path) -> Iterator[RedisStore]:
    store = RedisStore(server.url, f"{tmp_path.name}:")
    yield store
    store.close()


def test_running_fires_are_found_without_reading_planned_ones(server: RedisServer, store: RedisStore) -> None:
    planner = Planner(store, beat_s=1)
    store.put([fire("a.c@1")])
    Asker(store).claim_one()
    store.advance("a", [planner.covering(1, AHEAD)])
    before = server.commands_run()
    assert [row.fire.key for row in store.find(Query(app="a", state="claimed"))] == ["a.c@1"]
    assert server.commands_run() - before < 50


def test_a_search_without_a_match_takes_few_commands(server: RedisServer, store: RedisStore) -> None:
    for start in range(0, LOOK_MAX + 1000, 3000):
        store.put([fire(f"a.b@{n:05}", due_at=later(n)) for n in range(start, start + 3000)])
    before = server.commands_run()
    found = store.find(Query(app="a", kinds=("failed", "succeeded")))
    assert found == [] and found.before is not None
    assert server.commands_run() - before < LOOK_MAX / 8


def test_listing_apps_takes_few_commands(server: RedisServer, store: RedisStore) -> None:
    store.put([fire("a.b@1"), fire("z.b@1")])
    before = server.commands_run()
    assert store.apps() == ["a", "z"]
    assert server.commands_run() - before < 10
