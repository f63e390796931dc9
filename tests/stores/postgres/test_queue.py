"""Queues in the PostgreSQL store: messages in a user's transaction, and the cost of many messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from tests.equipment.postgres_server import (
    PATIENCE_S,
    Server,
    held,
    new_name,
    rows_read,
    schema_of,
    shared_server,
)

from detent.model import Ask, Fire, Policy, Query, Rate
from detent.rules.breakers import Circuit, circuit_text
from detent.rules.rates import rate_text
from detent.stores.base import BREAKER, RATE
from detent.stores.postgres.listen import LOOK_OFTEN_S
from detent.stores.postgres.store import PostgresStore
from detent.testing.stores.fixtures import DONE, OVER, TTL_S, Asker, finish, fire, found, keys, renew

MANY = 20_000


def message(key: str, queue: str = "default", **policy: Any) -> Fire:
    whole: dict[str, Any] = {"concurrency": "Allow", "claim_s": TTL_S} | policy
    return fire(key, origin="push", queue=queue, policy=Policy(**whole))


# In one push.


def test_of_many_similar_messages_each_key_is_new_once(server: Server, store: PostgresStore) -> None:
    store.put([message("a.b@2"), message("a.b@5")])
    many = [message(f"a.b@{n}") for n in (3, 2, 1, 3, 4)]
    assert store.put(many) == [True, False, True, False, True]
    with psycopg.connect(server.url) as db:
        assert store.put_in(db, [message(f"a.b@{n}") for n in (6, 5, 6)]) == [True, False, False]
    assert keys(Asker(store).claim()) == ["a.b@2", "a.b@5", *(f"a.b@{n}" for n in (1, 3, 4)), "a.b@6"]


def test_messages_that_differ_in_one_field_keep_it(store: PostgresStore) -> None:
    plain = message("a.b@1")
    others = [
        plain._replace(key="a.b@2", queue="mail"),
        plain._replace(key="a.b@3", policy=Policy("Allow", claim_s=7.0)),
        plain._replace(key="a.b@4", payload="4", run_id="r4"),
        plain._replace(key="a.b@5", due_at=plain.due_at + timedelta(seconds=1)),
    ]
    store.put([plain, *others])
    store.put([plain._replace(key=f"a.b@{n}", payload=str(n), run_id=f"r{n}") for n in (6, 7)])
    rows = {row.fire.key: row.fire for row in store.find(Query())}
    assert [rows[one.key] for one in (plain, *others)] == [plain, *others]
    assert [(rows[f"a.b@{n}"].payload, rows[f"a.b@{n}"].run_id) for n in (6, 7)] == [("6", "r6"), ("7", "r7")]


# In a transaction of the user's.


def test_a_message_is_recorded_when_the_users_transaction_commits(
    server: Server, store: PostgresStore
) -> None:
    with psycopg.connect(server.url, row_factory=dict_row) as db:
        assert store.put_in(db, [message("a.b@1"), message("a.b@2")]) == [True, True]
        assert found(store) == []
        assert Asker(store).claim() == []
        db.commit()
        assert store.put_in(db, [message("a.b@2"), message("a.b@3")]) == [False, True]
    assert keys(Asker(store, "n2").claim()) == ["a.b@1", "a.b@2", "a.b@3"]


def test_a_message_is_rolled_back_with_the_users_transaction(server: Server, store: PostgresStore) -> None:
    with psycopg.connect(server.url) as db:
        store.put_in(db, [message("a.b@1")])
        db.rollback()
    assert found(store) == []
    assert store.put([message("a.b@1")]) == [True]


def test_a_message_of_a_transaction_may_be_due_later(server: Server, store: PostgresStore) -> None:
    with psycopg.connect(server.url) as db:
        store.put_in(db, [message("a.b@1")], delay_s=60.0)
    granted = Asker(store).ask()
    assert granted.claims == ()
    assert 50 < granted.next_in_s <= 60


def test_a_message_of_a_transaction_has_a_lane(server: Server, store: PostgresStore) -> None:
    with psycopg.connect(server.url) as db:
        store.put_in(db, [fire(f"a.b@{n}", "Queue", origin="push") for n in (1, 2)])
    assert keys(Asker(store).claim()) == ["a.b@1"]


def test_an_asynchronous_connection_works(server: Server, store: PostgresStore) -> None:
    async def put() -> list[bool]:
        async with await psycopg.AsyncConnection.connect(server.url) as db:
            return await store.aput_in(db, [message("a.b@1")])

    assert asyncio.run(put()) == [True]
    assert found(store) == ["a.b@1"]


@pytest.mark.parametrize("is_deaf", [False, True], ids=["by a sound", "by looking"])
def test_a_waiter_is_woken_when_the_transaction_commits(
    server: Server, store: PostgresStore, is_deaf: bool
) -> None:
    store.wait("a", 0.01)
    store.listener.is_deaf = is_deaf
    if is_deaf:  # as behind a pooler
        store.listener._listening().value("UNLISTEN *")
    with psycopg.connect(server.url) as db, ThreadPoolExecutor(1) as pool:
        store.put_in(db, [message("a.b@1")])
        assert not store.wait("a", 3 * LOOK_OFTEN_S)
        woken = pool.submit(store.wait, "a", PATIENCE_S)
        db.commit()
        assert woken.result(PATIENCE_S)
    assert server.sql(f"SELECT count(*) FROM {schema_of(store)}.bells") == [(0,)]


def test_a_long_transaction_blocks_no_other_call(server: Server, store: PostgresStore) -> None:
    with psycopg.connect(server.url) as db:
        db.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        store.put_in(db, [fire("a.b@1", "Queue", origin="push")])
        store.put([fire("a.b@2", "Queue", origin="push"), message("a.c@1")])
        claim, other = Asker(store).claim()
        assert renew(store, claim) is None
        assert [finish(store, one) for one in (claim, other)] == [DONE, DONE]
        store.prune("a", 0.0, 0)
        assert held(server) == []
    assert keys(Asker(store, "n2").claim()) == ["a.b@1"]


def test_a_role_needs_the_rights_to_insert_and_to_wake(server: Server, store: PostgresStore) -> None:
    """The rights that docs/reference/stores.md lists."""
    store.put([message("a.b@1", unique_s=60.0)])
    finish(store, Asker(store).claim_one(), OVER)
    role, schema = new_name(), schema_of(store)
    server.sql(f"CREATE ROLE {role} LOGIN")
    url = server.url.replace("postgres@", f"{role}@")
    with psycopg.connect(url) as db, pytest.raises(psycopg.errors.InsufficientPrivilege):
        store.put_in(db, [message("a.b@1")])
    server.sql(
        f"GRANT USAGE ON SCHEMA {schema} TO {role};"
        f"GRANT USAGE ON SEQUENCE {schema}.versions, {schema}.fire_ids TO {role};"
        f"GRANT SELECT, INSERT ON {schema}.fires TO {role}; GRANT INSERT ON {schema}.bells TO {role}"
    )
    with psycopg.connect(url) as db:
        assert store.put_in(db, [message("a.b@2")]) == [True]
    server.sql(
        f"GRANT UPDATE, DELETE ON {schema}.fires TO {role};"
        f"GRANT SELECT, DELETE ON {schema}.attempts TO {role}"
    )
    with psycopg.connect(url) as db:
        assert store.put_in(db, [message("a.b@1", unique_s=60.0)]) == [True]
    assert keys(Asker(store, "n2").claim()) == ["a.b@2", "a.b@1"]


# What is forgotten.


def test_attempts_are_forgotten_with_their_fire(server: Server, store: PostgresStore) -> None:
    store.put([message(f"a.b@{n}", unique_s=60.0) for n in range(3)])
    for claim in Asker(store).claim():
        finish(store, claim, OVER)
    look = f"SELECT count(*) FROM {schema_of(store)}.attempts"
    assert server.sql(look) == [(3,)]
    store.put([message("a.b@0", unique_s=60.0)])
    assert server.sql(look) == [(2,)]
    store.forget(["a.b@1"])
    assert server.sql(look) == [(1,)]
    store.prune("a", 0.0, 0)
    assert server.sql(look) == [(0,)]


# Many messages.


def test_fires_behind_an_open_breaker_are_delayed_part_by_part(store: PostgresStore) -> None:
    store.put([message(f"a.b@{n:05}", breaker="smtp") for n in range(2_000)])
    store.put([message("a.c@1")])
    opened = store.look("a").now.timestamp()
    store.note("a", BREAKER + "smtp", circuit_text(Circuit(5, opened)))
    node = Asker(store)
    claims = node.claim(limit=10)
    assert keys(claims) == ["a.c@1"]
    finish(store, *claims)
    while (next_in_s := node.ask(limit=10).next_in_s) < 50:
        assert next_in_s <= 0.05
    assert next_in_s <= 60
    assert node.number > 2


def test_fires_that_wait_for_a_lane_do_not_block_the_queue(store: PostgresStore) -> None:
    store.put([fire(f"a.b@{n:05}", "Queue", origin="push") for n in range(2_000)])
    store.put([message("a.c@1")])
    node, claims, asks = Asker(store), list[str](), 0
    while len(claims) < 2:
        claims += keys(node.claim(limit=10))
        asks += 1
        assert asks < 100
    assert claims == ["a.b@00000", "a.c@1"]


@pytest.fixture(scope="module")
def full() -> Iterator[PostgresStore]:
    """A store with many finished messages, and many on an unserved queue."""
    with closing(PostgresStore(shared_server().url, new_name())) as one:
        one.put([message(f"a.b@{n:05}", "other") for n in range(MANY)])
        name = schema_of(one)
        shared_server().sql(
            f"UPDATE {name}.fires SET state = 'over', kind = 'succeeded', queue = 'mail' WHERE id % 2 = 0"
            f"; ANALYZE {name}.fires"
        )
        one.put([message("a.c@1", "mail"), message("a.d@1", "mail")])
        finish(one, Asker(one).claim_one(queues=("mail",), limit=1), OVER)
        yield one


def test_a_dead_letter_is_found_without_reading_other_messages(full: PostgresStore) -> None:
    query = Query(app="a", queues=("mail",), kinds=("failed", "lost"), state="over")
    assert [row.fire.key for row in full.find(query)] == ["a.c@1"]
    assert rows_read(full, lambda store: store.find(query)) < 50


def test_an_unserved_queue_does_not_slow_down_others(full: PostgresStore) -> None:
    ask = Ask("a", "n2", 1, 1, ("mail^high", "mail", "mail^low"))
    assert rows_read(full, lambda store: store.claim(ask)) < 50
    full.note("a", RATE + "mail", rate_text(Rate(1)))
    assert [claim.fire.key for claim in full.claim(ask).claims] == ["a.d@1"]
    assert rows_read(full, lambda store: store.claim(ask._replace(number=2))) < 50
