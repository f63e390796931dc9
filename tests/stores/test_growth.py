"""Lanes, removed jobs and ended instances leave nothing in a store."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from tests.equipment.postgres_server import ClockedStore, Session, held, schema_of, shared_server, wait_until
from tests.equipment.redis_server import RedisServer

from detent.model import Ask, Report
from detent.rules.outcomes import lane_taken
from detent.stores.base import Store
from detent.stores.redis.store import RedisStore
from detent.testing.stores.fixtures import DONE, Asker, FakeClock, dispositions, finish, fire

MONTH_S = 31 * 86_400.0


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis")
    yield server
    server.end()


def _live(store: Store, name: str) -> None:
    """A host that comes and goes, with its own jobs, instance and heartbeat."""
    jobs = [f"a.b/{name}-{number}" for number in range(20)]
    watermarks = store.look("a")
    store.set_jobs("a", watermarks.generation, dict.fromkeys(jobs, "1"))
    store.put([fire(f"{job}@1", "Forbid", origin="schedule") for job in jobs])
    store.note("a", f"node/{name}", "here", ttl_s=30.0)
    claims = Asker(store, name).claim(limit=50)
    assert len(claims) == 20
    store.finish([Report(claim, DONE) for claim in claims])
    store.set_jobs("a", watermarks.generation + 1, {})


def test_hosts_that_come_and_go_leave_no_rows_in_postgresql(clocked: ClockedStore, clock: FakeClock) -> None:
    tables = ("fires", "attempts", "cells", "asks", "jobs")
    left = []
    for number in range(3):
        _live(clocked, f"host-{number}")
        clock.pass_time(MONTH_S)
        for _ in range(2):  # what is known of a job outlives the last of its fires
            clocked.prune("a", 86_400, 1000)
        look = " UNION ALL ".join(
            f"SELECT '{name}', count(*) FROM {clocked.schema}.{name}" for name in tables
        )
        left.append({name: count for name, count in shared_server().sql(look) if count})
    assert left == [{}, {}, {}]


def test_hosts_that_come_and_go_leave_no_keys_in_redis(redis_server: RedisServer, clock: FakeClock) -> None:
    """Only keys that expire: tallies, which the server deletes by its own clock."""
    left = []
    with closing(RedisStore(redis_server.url, wall=clock.wall, elapsed=clock.monotonic)) as store:
        for number in range(3):
            _live(store, f"host-{number}")
            clock.pass_time(MONTH_S)
            for _ in range(2):
                store.prune("a", 86_400, 1000)
            keys = [key for key in redis_server.call("KEYS", "*") if redis_server.call("TTL", key) < 0]
            left.append(sorted(key.rpartition(b":")[2].decode() for key in keys))
    assert left == [["apps", "wakeups", "world"]] * 3
    for number in range(450):
        store.note("a", "pause/a.b", str(number))
    assert redis_server.call("XLEN", "{detent:a}:wakeups") <= 200, "the server trims it by the hundred"
    store.close()


def test_an_open_fire_keeps_its_lane(clocked: ClockedStore, clock: FakeClock) -> None:
    clocked.set_jobs("a", 0, {"a.b": "1"})
    clocked.put([fire("a.b@1", "Forbid"), fire("a.c@1", "Forbid"), fire("a.d@1", "Forbid")])
    for claim in Asker(clocked).claim(limit=3)[:2]:
        finish(clocked, claim)
    clock.pass_time(10)
    clocked.prune("a", 1, 1000)
    kept = shared_server().sql(f"SELECT name FROM {clocked.schema}.cells ORDER BY name")
    assert kept == [("lane/a.d",)]


def test_a_lane_that_was_pruned_while_its_fire_was_recorded_is_restored(
    clocked: ClockedStore,
) -> None:
    server = shared_server()
    clocked.put([fire("a.a@1")])
    Asker(clocked).claim_one()  # whatever is done once for an app is done now
    clocked.put([fire("a.b@1", "Forbid")])
    clocked.put([fire("a.b@2", "Forbid", queue="db")])
    server.sql(f"DELETE FROM {schema_of(clocked)}.cells")
    node = Asker(clocked, "n2")
    with closing(Session(server, clocked)) as other, ThreadPoolExecutor(1) as pool:
        grants = other.store.claim(Ask("a", "other", 1))
        assert [one.fire.key for one in grants.claims] == ["a.b@1"]
        call = pool.submit(node.claim, queues=("db",))
        wait_until(lambda: held(server))
        other.commit()
        assert call.result() == []
    assert dispositions(node.claim(queues=("db",))) == {"a.b@2": lane_taken("a.b@1")}
