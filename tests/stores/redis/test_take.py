"""Plain messages that are claimed in one call get the records, versions and fences that the engine would
give.  `test_store` runs the whole suite of the stores with this call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.equipment.redis_server import RedisServer

from detent.model import Ask, Fire, Grants, Policy
from detent.stores.engine.driver import Fires
from detent.stores.engine.engine import Engine
from detent.stores.engine.record import Record
from detent.stores.engine.unit import Unit
from detent.stores.redis.store import RedisStore
from detent.stores.redis.taking import take
from detent.testing.stores.fixtures import AGAIN, DONE, TTL_S, Asker, FakeClock, finish, fire, keys

LONG_S = 500.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis", "--appendfsync", "no")
    yield server
    server.end()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(server: RedisServer, clock: FakeClock) -> Iterator[RedisStore]:
    store = RedisStore(server.url, wall=clock.wall, elapsed=clock.monotonic)
    yield store
    store.close()


def _message(name: str, **fields: Any) -> Fire:
    policy = Policy("Allow", claim_s=fields.pop("claim_s", TTL_S))
    return fire(f"a.{name}", origin="push", policy=policy, **fields)


def _taken(store: RedisStore, number: int, **fields: Any) -> tuple[Grants, Sequence[Record]]:
    whole = {"limit": 9, "queues": ("default", "later")} | fields
    found = take(store._session, Ask("a", "n1", number, **whole))
    assert found, "the call was refused"
    return found


def _is_refused(store: RedisStore, number: int) -> bool:
    return take(store._session, Ask("a", "n1", number, limit=9)) is None


def test_it_grants_and_writes_what_the_engine_would(
    server: RedisServer, store: RedisStore, clock: FakeClock
) -> None:
    other = RedisStore(server.url, "other:", wall=clock.wall, elapsed=clock.monotonic)
    for one in (store, other):
        one.put([_message("b@1"), _message("c@1", claim_s=LONG_S), _message("b@2", queue="later")])
        finish(one, *Asker(one, "n0").claim(limit=1), verdict=DONE)
    clock.pass_time(1.25)  # Lua writes whole numbers without a fraction
    grants, records = _taken(store, 1)
    expected = Engine.claim(other, Ask("a", "n1", 1, limit=9, queues=("default", "later")))
    assert keys(grants.claims) == ["a.c@1", "a.b@2"]
    assert grants == expected._replace(epoch=grants.epoch)
    for name in ("states", "taken:default", "taken:later", "due:p:default", "due:p:later", "asks"):
        ours, theirs = (_content(server, f"{prefix}{{detent:a}}:{name}") for prefix in ("", "other:"))
        assert ours == theirs, name
    unit = Unit(store.driver, "a")
    (kept,) = unit.look(Fires(tuple(one.fire.key for one in records)))
    assert [vars(one) for one in kept] == [vars(one) for one in records]
    other.close()


def _content(server: RedisServer, key: str) -> Any:
    if server.call("TYPE", key) == b"hash":
        return server.call("HGETALL", key)
    return server.call("ZRANGE", key, 0, -1, "WITHSCORES")


def test_the_claim_knows_when_its_job_last_succeeded(store: RedisStore, clock: FakeClock) -> None:
    store.put([_message("b@1"), _message("b@2"), _message("c@1")])
    finish(store, *Asker(store, "n0").claim(limit=1), verdict=DONE)
    clock.pass_time(1)
    grants, _ = _taken(store, 1)
    success = {claim.fire.key: claim.previous_success_at for claim in grants.claims}
    assert success["a.b@2"] is not None and success["a.c@1"] is None


def test_the_ttl_of_the_ask_goes_first_and_its_limit_holds_for_all_queues(
    store: RedisStore, clock: FakeClock
) -> None:
    store.put([_message("b@1"), *(_message(f"c@{n}", queue="later") for n in range(5))])
    grants, _ = _taken(store, 1, limit=3, ttl_s=2 * TTL_S)
    assert keys(grants.claims) == ["a.b@1", "a.c@0", "a.c@1"]
    assert {claim.ttl_s for claim in grants.claims} == {2 * TTL_S}
    assert _taken(store, 2, limit=0)[0].claims == ()
    clock.pass_time(1.5 * TTL_S)
    assert store.renew(grants.claims) == [None, None, None]


def test_an_attempted_message_needs_a_decision(store: RedisStore, clock: FakeClock) -> None:
    store.put([_message("b@1")])
    finish(store, *_taken(store, 1)[0].claims, verdict=AGAIN)
    clock.pass_time(AGAIN.again_in_s or 0)
    assert _is_refused(store, 2)
    assert Asker(store, "n2").claim_one().attempt == 2


def test_a_repeated_ask_and_one_that_is_late_are_refused(store: RedisStore) -> None:
    store.put([_message("b@1"), _message("b@2")])
    first, _ = _taken(store, 5, limit=1)
    assert _is_refused(store, 5) and _is_refused(store, 4)
    again = store.claim(Ask("a", "n1", 5, limit=9))
    assert [(one.fire, one.fence) for one in again.claims] == [(one.fire, one.fence) for one in first.claims]


def test_a_new_epoch_waits_for_the_longest_claim_and_grants_nothing_before(
    store: RedisStore, server: RedisServer, clock: FakeClock
) -> None:
    store.put([_message("b@1", claim_s=TTL_S), _message("b@2")])
    _taken(store, 1, limit=1, ttl_s=LONG_S)
    server.new_epoch()
    assert _is_refused(store, 2), "the claims of the old epoch may be live"
    clock.pass_time(LONG_S - TTL_S)
    assert _is_refused(store, 2)
    clock.pass_time(TTL_S)
    assert Asker(store, "n2").claim(), "all old claims have expired"
