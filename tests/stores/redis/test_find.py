"""Searches in the Redis store: how many commands one takes, because it blocks the server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.equipment.redis_server import RedisServer

from detent.model import Query
from detent.stores.base import LOOK_MAX
from detent.stores.redis.requests import TALLY_S
from detent.stores.redis.store import RedisStore
from detent.testing.stores.fixtures import Asker, Planner, finish, fire, later

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
    for start in range(0, LOOK_MAX + 1000, 500):
        store.put([fire(f"a.b@{n:05}", due_at=later(n)) for n in range(start, start + 500)])
    before = server.commands_run()
    found = store.find(Query(app="a", kinds=("failed", "succeeded")))
    assert found == [] and found.before is not None
    assert server.commands_run() - before < LOOK_MAX / 8
    before = server.commands_run()
    never = store.find(Query(app="a", kinds=("failed", "lost")))
    assert never == [] and never.before is None
    assert server.commands_run() - before < 50, "it has an index"


def test_newest_fires_and_tallies_take_few_commands(server: RedisServer, store: RedisStore) -> None:
    store.put([fire(f"a.{job}@{n}", due_at=later(n)) for job in "bc" for n in range(200)])
    before = server.commands_run()
    found = store.newest("a", ["a.b", "a.c"])
    assert [one.fire.key for one in found["a.c"]] == [f"a.c@{n}" for n in range(199, 179, -1)]
    assert server.commands_run() - before < 15
    assert store.tally("a", found["a.c"][0].fire.due_at, later(3600)) == []
    assert server.commands_run() - before < 100


def test_the_numbers_of_ended_fires_are_kept_for_two_days(server: RedisServer, store: RedisStore) -> None:
    store.put([fire("a.b@1")])
    finish(store, Asker(store).claim_one())
    now = store.look("a").now
    (one,) = store.tally("a", now - timedelta(minutes=1), now + timedelta(minutes=1))
    assert (one.job, one.kind, one.fires) == ("a.b", "succeeded", 1)
    (name,) = server.call("KEYS", "*:tally:*")
    assert TALLY_S - 60 < server.call("TTL", name) <= TALLY_S


def test_listing_apps_takes_few_commands(server: RedisServer, store: RedisStore) -> None:
    store.put([fire("a.b@1"), fire("z.b@1")])
    before = server.commands_run()
    assert store.apps() == ["a", "z"]
    assert server.commands_run() - before < 10
