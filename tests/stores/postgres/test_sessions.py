"""Concurrent sessions of the PostgreSQL store: locks and wake-ups."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from random import Random
from typing import Any

import psycopg
import pytest
from psycopg import Pipeline
from tests.equipment.postgres_server import (
    PATIENCE_S,
    ClockedStore,
    Server,
    Session,
    held,
    schema_of,
    wait_until,
)

from detent.clock import monotonic
from detent.model import Ask, Outcome, Policy, Query, Report, Verdict
from detent.rules.outcomes import CLAIM_GONE, lane_taken, node_lost
from detent.stores.base import PAUSE
from detent.stores.postgres.store import PostgresStore
from detent.testing.stores.fixtures import (
    DONE,
    TTL_S,
    Asker,
    FakeClock,
    Planner,
    dispositions,
    finish,
    fire,
    found,
    keys,
    renew,
)
from detent.testing.stores.races import Launch, judge_launches

THREADS = 8


# Round trips.


@pytest.mark.parametrize("fires", [1, 500])
def test_new_messages_and_ends_take_two_round_trips_for_each_call(
    clocked: ClockedStore, monkeypatch: pytest.MonkeyPatch, fires: int
) -> None:
    """While the clock stands still: four times a second, a call also records that it was made."""
    clocked.put([fire("a.b@0")])
    first, trips, leave = Asker(clocked).claim_one(), list[object](), Pipeline.__exit__
    monkeypatch.setattr(Pipeline, "__exit__", lambda *given: trips.append(leave(*given)))
    clocked.put([fire(f"a.b@{n}") for n in range(1, fires + 1)])
    assert len(trips) == 2
    finish(clocked, first)
    assert len(trips) == 4


# Other sessions.


@pytest.mark.parametrize("exclusively", [False, True])
def test_a_client_that_stopped_while_it_sent_statements_does_not_keep_its_locks(
    server: Server, store: PostgresStore, exclusively: bool
) -> None:
    """The server limits a transaction only when all statements of a round trip have arrived."""
    store.put([fire("a.b@1")])
    with store.driver.hand("a"):
        store.driver.look("a", [])
        lock, _ = store.driver._mine.open.session.lock_world(exclusively=exclusively)
    name = store._links.look("SELECT current_setting('application_name')")
    with closing(psycopg.connect(server.url, application_name=name)) as stopped:
        client = stopped.pgconn
        client.enter_pipeline_mode()
        for statement in ("BEGIN", f'SET LOCAL search_path TO "{schema_of(store)}"', lock):
            client.send_query_params(statement.encode(), [])
        assert client.flush() == 0
        locked = (
            f"SELECT 1 FROM pg_locks WHERE pid = {client.backend_pid} AND locktype = 'advisory' AND granted"
        )
        wait_until(lambda: server.sql(locked))
        store.note("a", PAUSE + "b", "by hand")
        assert [one.text for one in store.notes("a", PAUSE)] == ["by hand"]


def test_a_commit_that_waits_for_a_record_does_not_keep_others_from_theirs(
    server: Server, store: PostgresStore
) -> None:
    """Else a slow node would stop all others, when a commit that changes the controls comes between."""
    store.put([fire("a.b@1", Policy(unique_s=60.0)), fire("a.b@2")])
    with closing(PostgresStore(server.url, schema_of(store))) as other, ThreadPoolExecutor(1) as pool:
        slow = Session(server, store)
        slow.sql("SELECT key FROM fires WHERE key = 'a.b@1' FOR UPDATE")
        waits = pool.submit(store.cancel, "a.b@1")
        wait_until(lambda: held(server))
        other.note("a", PAUSE + "b", "by hand")
        assert not waits.done()
        slow.close()
        assert waits.result(PATIENCE_S)


@pytest.mark.parametrize("concurrency", ["Forbid", "Queue"])
def test_a_lane_that_another_call_has_locked_is_skipped(
    server: Server, store: PostgresStore, concurrency: Any
) -> None:
    node = Asker(store)
    store.put([fire("a.a@1")])
    node.claim_one()  # whatever is done once for an app is done now
    store.put([fire(f"a.{job}@0", concurrency) for job in "bc"])
    for claim in node.claim():
        finish(store, claim)  # now their lanes have cells
    store.put([fire(f"a.b@{n}", concurrency) for n in (1, 2)])
    store.put([fire("a.b@3", concurrency, queue="db"), fire("a.c@1", concurrency, queue="db")])
    with closing(Session(server, store)) as other:
        other.store.claim(Ask("a", "other", 1, ttl_s=TTL_S))
        granted = node.ask(queues=("default", "db"))
        assert keys(granted.claims) == ["a.c@1"]
        assert granted.next_in_s <= 0.05
    running = [claim.fire.key for claim in node.claim(queues=("db",)) if claim.disposition is None]
    assert running == []


def test_a_running_renewal_keeps_its_lane(server: Server, clocked: ClockedStore, clock: FakeClock) -> None:
    clocked.put([fire("a.b@1", "Forbid")])
    holder = Asker(clocked).claim_one()
    clocked.put([fire("a.b@2", "Forbid")])
    clock.pass_time(TTL_S - 1)
    with closing(Session(server, clocked)) as other:
        other.store.renew([holder])
        clock.pass_time(2)
        node = Asker(clocked, "n2")
        assert node.ask().claims == ()
    assert dispositions(node.claim()) == {"a.b@2": lane_taken("a.b@1")}
    assert renew(clocked, holder) is None


def test_a_finish_that_waited_for_a_renewal_is_recorded(server: Server, store: PostgresStore) -> None:
    store.put([fire(f"a.b@{n}") for n in (1, 2, 3)])
    claims = Asker(store).claim()
    with closing(Session(server, store)) as other, ThreadPoolExecutor(1) as pool:
        other.store.renew([claims[1]])
        call = pool.submit(store.finish, [Report(claim, DONE) for claim in claims])
        wait_until(lambda: held(server))
        other.commit()
        assert call.result(PATIENCE_S) == [DONE] * 3
    rows = store.find(Query(state="over"))
    assert [[one.number for one in row.attempts] for row in rows] == [[1]] * 3


def test_a_finish_that_waited_while_another_claimed_its_fire_is_refused(
    server: Server, clocked: ClockedStore, clock: FakeClock
) -> None:
    clocked.put([fire("a.b@1")])
    late = Asker(clocked).claim_one()
    clock.pass_time(TTL_S + 1)
    with closing(Session(server, clocked)) as other, ThreadPoolExecutor(1) as pool:
        other.store.claim(Ask("a", "n2", 1, ttl_s=TTL_S))
        call = pool.submit(clocked.finish, [Report(late, DONE)])
        wait_until(lambda: held(server))
        other.commit()
        assert call.result(PATIENCE_S) == [None]
    (row,) = clocked.find(Query(state="claimed"))
    assert (row.node, row.attempts) == ("n2", ())


def test_a_renewal_reads_the_clock_after_it_has_its_row(
    server: Server, clocked: ClockedStore, clock: FakeClock
) -> None:
    """The claim expired meanwhile, and others may have seen that.  The clock is a row, which changes during
    the call."""
    clocked.put([fire("a.b@1")])
    holder = Asker(clocked).claim_one()
    clock.pass_time(TTL_S - 10)
    server.sql(f"CREATE TABLE {clocked.schema}.now AS SELECT {clock.wall()!r}::float8 AS wall")
    try:
        _set_clock(server, clocked, f"SELECT wall FROM {clocked.schema}.now")
        with closing(Session(server, clocked)) as other, ThreadPoolExecutor(1) as pool:
            other.sql("SELECT FROM fires FOR UPDATE")
            call = pool.submit(clocked.renew, [holder])
            wait_until(lambda: held(server))
            server.sql(f"UPDATE {clocked.schema}.now SET wall = wall + 20")
            clock.pass_time(20)
            other.commit()
            assert call.result(PATIENCE_S) == [CLAIM_GONE]
    finally:
        _set_clock(server, clocked, "SELECT current_setting('detent.wall')::float8")
        server.sql(f"DROP TABLE {clocked.schema}.now")


def _set_clock(server: Server, store: ClockedStore, body: str) -> None:
    head = f"CREATE OR REPLACE FUNCTION {store.schema}.clock() RETURNS float8"
    server.sql(f"{head} LANGUAGE sql VOLATILE AS $${body}$$")


def test_claimers_of_mixed_lanes_never_deadlock_or_overlap(server: Server, store: PostgresStore) -> None:
    before = deadlocks(server, store)

    def live(number: int) -> list[Launch]:
        chance, launches = Random(number), list[Launch]()
        for turn in range(1, 13):
            kinds = [("Forbid", 1), ("Queue", 1), ("Replace", 1), ("Allow", 1)]
            chance.shuffle(kinds)
            keys = [f"a.{kind.lower()}@{turn}-{n}" for kind, _ in kinds for n in range(4)]
            chance.shuffle(keys)
            policies = {kind.lower(): kind for kind, _ in kinds}
            store.put([fire(key, policies[key[2:].partition("@")[0]]) for key in keys])  # type: ignore[arg-type]
            claims = store.claim(Ask("a", f"n{number}", turn, limit=chance.randint(0, 9), ttl_s=TTL_S)).claims
            start = monotonic()
            stops = dict(zip(keys_of(claims), store.renew(claims), strict=True))
            store.cancel(chance.choice(keys))
            launches += [launch_of(claim, start) for claim in claims]
            store.finish([Report(claim, verdict_of(claim, stops)) for claim in claims])
        return launches

    with ThreadPoolExecutor(THREADS) as pool:
        launches = [one for seen in pool.map(live, range(THREADS)) for one in seen]
    assert len(launches) > 50
    judge_launches(launches)
    assert deadlocks(server, store) == before


def test_puts_of_the_same_keys_in_another_order_do_not_deadlock(server: Server, store: PostgresStore) -> None:
    before = deadlocks(server, store)
    store.put([fire("a.b@0")])
    with closing(Session(server, store)) as other, ThreadPoolExecutor(1) as pool:
        other.store.put([fire("a.b@1")])
        call = pool.submit(store.put, [fire("a.b@2"), fire("a.b@1")])
        wait_until(lambda: held(server))
        other.store.put([fire("a.b@2")])
        other.commit()
        assert call.result(PATIENCE_S) == [False, False]
    assert deadlocks(server, store) == before


def deadlocks(server: Server, store: PostgresStore) -> int:
    """The server's count of deadlocks; a session reports its own when it ends."""
    store.close()
    ours = f"application_name = '{schema_of(store)}'"
    wait_until(lambda: server.sql(f"SELECT pid FROM pg_stat_activity WHERE {ours}") == [])
    return int(server.sql("SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'")[0][0])


def keys_of(claims: Any) -> list[str]:
    return [claim.fire.key for claim in claims]


def launch_of(claim: Any, start: float) -> Launch:
    kind = claim.disposition.kind if claim.disposition else ""
    return Launch(claim.fire.key, claim.fire.lane, claim.fence, kind, start, monotonic())


def verdict_of(claim: Any, stops: dict[str, Outcome | None]) -> Verdict:
    outcome = claim.disposition or stops[claim.fire.key]
    return Verdict(outcome) if outcome else DONE


def test_a_lost_late_hook_is_settled_even_if_its_fire_starts_in_the_same_ask(
    clocked: ClockedStore, clock: FakeClock
) -> None:
    planner = Planner(clocked, Policy("Queue", hooks=("on_late",), late_after_s=5.0))
    clocked.put([fire("a.b@by-hand", "Queue")])
    holder = Asker(clocked).claim_one(ttl_s=100.0)
    planner.advance(ahead_s=10)
    clock.pass_time(16)
    assert keys(Asker(clocked, "dead").claim()) == [planner.key(1) + "/on_late"]
    clocked.finish([Report(holder, DONE)])
    claims = dispositions(Asker(clocked, "n2").claim(dead=("dead",)))
    assert claims == {planner.key(1): None, planner.key(1) + "/on_late": node_lost("dead")}


@pytest.mark.parametrize("is_hook_first", [False, True])
def test_a_late_hook_that_is_returned_with_the_end_of_its_fire_has_its_verdict(
    clocked: ClockedStore, clock: FakeClock, is_hook_first: bool
) -> None:
    planner = Planner(clocked, Policy("Queue", hooks=("on_late",), late_after_s=5.0))
    clocked.put([fire("a.b@by-hand", "Queue")])
    Asker(clocked).claim_one(ttl_s=100.0)
    planner.advance(ahead_s=10)
    clock.pass_time(16)
    (hook,) = Asker(clocked, "n2").claim()
    clocked.set_jobs("a", 1, {})
    (ended,) = Asker(clocked, "n3").claim()
    assert ended.disposition and hook.fire.key == f"{ended.fire.key}/on_late"
    returned = Verdict(Outcome("lost", "not started"), 0.0, counts=False)
    reports = [Report(ended, Verdict(ended.disposition)), Report(hook, returned)]
    verdicts = clocked.finish(reports[::-1] if is_hook_first else reports)
    assert verdicts[0 if is_hook_first else 1] == returned
    assert (hook.fire.key in found(clocked)) != is_hook_first, "reports count in their order"


# Wake-ups.


def waits(store: PostgresStore, act: Callable[[], object]) -> bool:
    """Whether an action wakes a waiter."""
    assert not store.wait("a", 0.01)  # it listens from now on
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(store.wait, "a", PATIENCE_S)
        act()
        return call.result()


def test_a_wakeup_of_another_connection_arrives(server: Server, store: PostgresStore) -> None:
    with closing(PostgresStore(server.url, schema_of(store))) as other:
        other.put([fire("a.b@0")])
        assert not store.wait("a", 0.01)
        other.put([fire("a.b@1")])
        assert store.wait("a", PATIENCE_S)
        other.put([fire("z.b@1")])
        assert not store.wait("a", 0.3), "that was for another app"
    assert not store.listener.is_deaf


def test_a_notified_wakeup_is_not_counted_as_missed(
    server: Server, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detent.stores.postgres.listen.LOOK_SELDOM_S", 0.01)
    with closing(PostgresStore(server.url, schema_of(store))) as other:
        for number in range(3):
            assert waits(store, lambda number=number: other.put([fire(f"a.b@{number}")]))
            for _ in range(3):
                assert not store.wait("a", 0.02)
    assert not store.listener.is_deaf


def test_without_notifications_a_waiter_polls(
    server: Server, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detent.stores.postgres.listen.LOOK_SELDOM_S", 0.1)
    assert not store.wait("a", 0.01)
    link = store.listener._link
    assert link is not None
    link.value("UNLISTEN *")  # as behind a pooler, where LISTEN is of another session
    assert waits(store, lambda: store.put([fire("a.b@1")]))
    assert store.listener.is_deaf
    assert waits(store, lambda: store.put([fire("a.b@2")]))


def test_close_ends_a_wait(store: PostgresStore) -> None:
    assert not store.wait("a", 0.01)
    with ThreadPoolExecutor(1) as pool:
        began, call = monotonic(), pool.submit(store.wait, "a", 60.0)
        wait_until(lambda: store.listener._waiting.locked())
        store.close()
        assert call.result(PATIENCE_S) is False
    assert monotonic() - began < PATIENCE_S
