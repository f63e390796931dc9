"""The PostgreSQL store when the clock is set, and when the server restarts or is replaced."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest
from tests.equipment.postgres_server import (
    PATIENCE_S,
    ClockedStore,
    Server,
    Session,
    held,
    new_server,
    schema_of,
    shared_server,
    wait_until,
)

from detent.errors import StoreUnavailable
from detent.model import Rate
from detent.rules.outcomes import node_lost
from detent.stores.base import FENCE_SHIFT
from detent.stores.postgres.store import PostgresStore
from detent.stores.registry import promise_of, upkeep_of
from detent.testing.stores.fixtures import TTL_S, Asker, FakeClock, fire, keys, renew

# Clocks.


def another(store: ClockedStore, clock: FakeClock) -> ClockedStore:
    return ClockedStore(shared_server().url, store.schema, clock)


def test_a_new_client_after_a_step_of_the_servers_clock_expires_no_claim(
    clocked: ClockedStore, clock: FakeClock
) -> None:
    clocked.put([fire("a.b@1")])
    claim = Asker(clocked).claim_one()
    clock.step_wall(3600)
    with closing(another(clocked, clock)) as newcomer:
        node = Asker(newcomer, "n2")
        assert node.claim() == []
        clock.pass_time(TTL_S - 1)
        assert node.claim() == [], "it has a whole ttl from then on"
        clock.pass_time(2)
        assert node.claim_one().disposition == node_lost("n1")
    assert renew(clocked, claim) is not None


def test_new_clients_do_not_keep_a_dead_claim_alive(clocked: ClockedStore, clock: FakeClock) -> None:
    """Each trigger is a new client, and comes more than half a ttl after the last one."""
    clocked.put([fire("a.b@1")])
    Asker(clocked).claim_one()
    found = []
    for number in range(3):
        clock.pass_time(TTL_S * 0.7)
        with closing(another(clocked, clock)) as newcomer:
            found += Asker(newcomer, f"n{number + 2}").claim()
    [lost] = found
    assert lost.disposition == node_lost("n1")


def test_a_small_step_of_the_servers_clock_expires_no_claim(clocked: ClockedStore, clock: FakeClock) -> None:
    """The node may renew late, so the claim may have only its margin left."""
    clocked.put([fire("a.b@1")])
    claim = Asker(clocked).claim_one()
    with closing(another(clocked, clock)) as other:
        node = Asker(other, "n2")
        node.claim()
        clock.pass_time(TTL_S - 2)
        assert node.claim() == []
        clock.step_wall(3)
        assert node.claim() == []
        clock.pass_time(1.9)
        assert renew(clocked, claim) is None
        clock.pass_time(TTL_S + 1)
        assert node.claim_one().disposition == node_lost("n1")


def test_a_new_client_after_a_step_back_keeps_the_stores_time(
    clocked: ClockedStore, clock: FakeClock
) -> None:
    clocked.put([fire("a.b@1")])
    Asker(clocked).claim_one()
    clock.step_wall(-3600)
    with closing(another(clocked, clock)) as newcomer:
        node = Asker(newcomer, "n2")
        assert node.claim() == []
        clock.pass_time(TTL_S + 1)
        assert node.claim_one().disposition == node_lost("n1")


def test_a_client_whose_clock_stood_still_shortens_no_claim(clocked: ClockedStore, clock: FakeClock) -> None:
    """A client that was frozen takes the time that it missed for a step of the server's clock."""
    frozen = FakeClock()
    with closing(another(clocked, frozen)) as sleeper:
        for store in (clocked, sleeper):
            store.look("a")
        frozen.step_wall(61)
        frozen.pass_time(0.5)
        clock.pass_time(61.5)
        sleeper.put([fire("a.b@1")])
        claim = Asker(sleeper).claim_one()
        assert Asker(clocked, "n2").claim() == [], "whose time goes on, by 61 s at once"
        assert renew(sleeper, claim) is None


def test_a_client_whose_clock_stood_still_frees_no_place_of_a_rate(
    clocked: ClockedStore, clock: FakeClock
) -> None:
    frozen, rate = FakeClock(), Rate(3, 60.0)
    with closing(another(clocked, frozen)) as sleeper:
        for store in (clocked, sleeper):
            store.look("a")
        frozen.step_wall(61)
        frozen.pass_time(0.5)
        clock.pass_time(61.5)
        for used in (1, 2, 3):
            assert sleeper.charge("a", "sms", rate).used == used
        assert clocked.charge("a", "sms", rate).free_in_s > 0, "whose time goes on, by 61 s at once"


def test_a_new_client_after_a_step_of_the_servers_clock_frees_no_place_of_a_rate(
    clocked: ClockedStore, clock: FakeClock
) -> None:
    rate = Rate(1, 60.0)
    clocked.charge("a", "sms", rate)
    clock.step_wall(3600)
    with closing(another(clocked, clock)) as newcomer:
        assert newcomer.charge("a", "sms", rate).free_in_s > 59
        clock.pass_time(61)
        assert newcomer.charge("a", "sms", rate).free_in_s == 0


def test_a_rate_opens_again_even_if_every_client_is_new(clocked: ClockedStore, clock: FakeClock) -> None:
    rate = Rate(1, 60.0)
    clocked.charge("a", "sms", rate)
    waits = []
    for _ in range(6):
        clock.pass_time(20)
        with closing(another(clocked, clock)) as newcomer:
            waits.append(newcomer.charge("a", "sms", rate, 0).free_in_s)
    assert waits[-1] == 0, waits


def test_a_slow_call_is_not_taken_for_a_step_of_the_clock(clocked: ClockedStore, clock: FakeClock) -> None:
    clocked.put([fire("a.b@1")], delay_s=20.0)
    clock.pass_time(0.25)
    readings = iter([clock.monotonic(), clock.monotonic() + 12])  # when it was asked, and answered
    clocked.driver.boottime = lambda: next(readings)
    clocked.notes("a")
    clock.pass_time(12)
    clocked.driver.boottime = clock.monotonic
    assert clocked.notes("a") == []
    clock.pass_time(7.75)
    assert keys(Asker(clocked).claim()) == ["a.b@1"]


def test_a_claim_of_a_delayed_call_has_its_full_ttl(clocked: ClockedStore, clock: FakeClock) -> None:
    """The server may have been frozen.  The next caller knows how much time has passed."""
    clocked.put([fire("a.b@1")])
    with closing(another(clocked, clock)) as other:
        node = Asker(other, "n2")
        other.notes("a")
        clock.pass_time(6)
        clocked.driver.boottime = lambda: clock.monotonic() - 6  # when it was sent
        claim = Asker(clocked).claim_one()
        clocked.driver.boottime = clock.monotonic
        assert node.claim() == []
        clock.pass_time(TTL_S - 3)
        assert node.claim() == []
        assert renew(clocked, claim) is None


def test_the_clock_is_not_corrected_while_a_call_uses_it(
    server: Server, clocked: ClockedStore, clock: FakeClock
) -> None:
    """The writes of that call are not visible yet, so the correction could not move them."""
    clocked.put([fire("a.b@1")])
    claim = Asker(clocked).claim_one()
    with closing(Session(server, clocked)) as other, ThreadPoolExecutor(1) as pool:
        other.store.note("a", "n", "written")
        clock.step_wall(-3600)
        call = pool.submit(renew, clocked, claim)
        wait_until(lambda: held(server))
        assert not call.done()
        other.commit()
        assert call.result(PATIENCE_S) is None


# A server that goes away, and another one that takes over.


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Server, Server]]:
    primary, standby = new_server("fsync=on"), new_server("fsync=on", "hot_standby=on")
    try:
        primary.make()
        primary.start()
        standby.copy(primary)
        standby.start()
        yield primary, standby
    finally:
        standby.remove()
        primary.remove()


def test_a_promotion_begins_a_new_epoch_and_a_restart_does_not(pair: tuple[Server, Server]) -> None:
    primary, standby = pair
    store = PostgresStore(primary.url)
    store.put([fire("a.b@1"), fire("a.c@1")])
    first = Asker(store).claim_one(limit=1)
    epoch = store.look("a").epoch

    (durable, failover), rows = promise_of(primary.url), upkeep_of(primary.url)
    assert (durable.state, failover.state, rows) == ("ok", "weak", ())
    assert "1 standby, none synchronous" in failover.found
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
    primary.sql("SELECT pg_reload_conf()")
    wait_until(lambda: promise_of(primary.url)[1].state == "ok")

    refused = pytest.raises(StoreUnavailable, match="read-only standby: name the primary")
    with closing(PostgresStore(standby.url)) as reader, refused:
        reader.put([fire("a.b@2")])

    primary.stop()
    with pytest.raises(StoreUnavailable):
        store.put([fire("a.b@2")])
    primary.start()
    assert renew(store, first) is None
    assert store.look("a").epoch == epoch
    assert Asker(store, "n2").claim_one(limit=1).fence > first.fence

    store.put([fire("a.d@1")])  # with a synchronous standby: it is there, too
    primary.stop()
    standby.promote()
    with closing(PostgresStore(standby.url)) as other:
        wait_until(lambda: _answers(other))
        assert other.look("a").epoch != epoch
        assert renew(other, first) is None, "what is remembered goes on"
        calm = Asker(other, "n3").ask()
        assert calm.claims == ()
        assert 0 < calm.next_in_s <= TTL_S
        standby.sql("UPDATE detent.world SET quarantined_until = 0")
        claim = Asker(other, "n4").claim_one()
        assert claim.fire.key == "a.d@1"
        assert claim.fence >= first.fence + (1 << FENCE_SHIFT)
    store.close()


def _answers(store: PostgresStore) -> bool:
    try:
        store.look("a")
    except StoreUnavailable:
        return False
    return True


def test_an_epoch_belongs_to_a_cluster_and_its_timeline(server: Server, store: PostgresStore) -> None:
    """A session reads the id of the cluster once; without that right, it uses the timeline alone."""
    store.notes("a")
    schema = schema_of(store)
    ((number,),) = server.sql("SELECT system_identifier FROM pg_control_system()")
    assert server.sql(f"SELECT system FROM {schema}.world") == [(f"{number}/00000001",)]
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute(f"SET search_path TO {schema}")
        answers = [db.execute("SELECT cluster()").fetchone() for _ in range(2)]
        assert answers == 2 * [(f"{number}/",)]
        db.execute("SET detent.cluster TO 'unknown'")
        assert db.execute("SELECT cluster()").fetchone() == ("",)


def test_a_server_without_fsync_is_reported(server: Server) -> None:
    durable, failover = promise_of(server.url)
    assert (durable.state, failover.state) == ("weak", "ok")
    assert "fsync = off" in durable.found
    (unknown,) = promise_of("postgresql://me:s3cret@127.0.0.1:1/x")
    assert unknown.state == "weak"
    assert upkeep_of("postgresql://me:s3cret@127.0.0.1:1/x") == ()
