"""The MySQL store when the clock of its server is set, when it loses data, and in `detent doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.equipment.mysql_server import ClockedStore, new_server, shared_databases, shared_mysql

from detent.rules.outcomes import node_lost
from detent.stores.base import FENCE_SHIFT
from detent.stores.registry import promise_of, upkeep_of
from detent.testing.stores.fixtures import TTL_S, Asker, FakeClock, fire, renew


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def clocked(clock: FakeClock) -> Iterator[ClockedStore]:
    with closing(shared_databases().open(clock)) as one:
        yield one


def another(store: ClockedStore) -> ClockedStore:
    return shared_databases().open_again(store)


def test_a_new_client_after_a_step_of_the_clock_expires_no_claim(
    clocked: ClockedStore, clock: FakeClock
) -> None:
    clocked.put([fire("a.b@1")])
    claim = Asker(clocked).claim_one()
    clock.step_wall(3600)
    with closing(another(clocked)) as newcomer:
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
    for number in range(4):
        clock.pass_time(TTL_S * 0.7)
        with closing(another(clocked)) as newcomer:
            found += Asker(newcomer, f"n{number + 2}").claim()
    [lost] = found
    assert lost.disposition == node_lost("n1")


def test_a_client_whose_clock_stood_still_shortens_no_claim(clocked: ClockedStore, clock: FakeClock) -> None:
    frozen = FakeClock()
    with closing(ClockedStore(shared_mysql(), clocked.schema, frozen)) as sleeper:
        for store in (clocked, sleeper):
            store.look("a")
        frozen.step_wall(61)
        frozen.pass_time(0.5)
        clock.pass_time(61.5)
        sleeper.put([fire("a.b@1")])
        claim = Asker(sleeper).claim_one()
        assert Asker(clocked, "n2").claim() == [], "whose time goes on, by 61 s at once"
        assert renew(sleeper, claim) is None


def test_a_restored_backup_begins_a_new_epoch(clocked: ClockedStore, clock: FakeClock) -> None:
    """A node that saw a newer state notices it, although the server is the same."""
    clocked.put([fire("a.b@1"), fire("a.c@1")])
    first = Asker(clocked).claim_one(limit=1)
    ((backup,),) = shared_mysql().sql("SELECT seen FROM world", database=clocked.schema)
    for _ in range(3):
        clock.pass_time(1)
        clocked.note("a", "some", "text")
    epoch = clocked.look("a").epoch
    shared_mysql().sql("UPDATE world SET seen = %s", backup, database=clocked.schema)
    assert clocked.look("a").epoch != epoch
    assert Asker(clocked, "n2").claim() == [], "it is in quarantine"
    clock.pass_time(TTL_S + 1)
    claims = Asker(clocked, "n3").claim()
    assert claims
    assert min(claim.fence for claim in claims) >= first.fence + (1 << FENCE_SHIFT)


def test_doctor_reports_a_server_that_does_not_sync(clocked: ClockedStore) -> None:
    url = shared_mysql().url(clocked.schema)
    durable, failover = promise_of(url)
    assert (durable.state, failover.state) == ("weak", "ok")
    assert "innodb_flush_log_at_trx_commit = 0" in durable.found
    assert "set innodb_flush_log_at_trx_commit = 1" in durable.advice
    assert upkeep_of(url) == ()


def test_doctor_reports_a_durable_server_and_one_without_connections() -> None:
    server = new_server("--innodb-buffer-pool-size=64M", "--max-connections=10")
    try:
        server.make()
        server.start()
        durable, failover = promise_of(server.url("mysql"))
        assert (durable.state, failover.state) == ("ok", "ok")
        (connections,) = upkeep_of(server.url("mysql"))
        assert connections.advice == "raise max_connections"
    finally:
        server.remove()


def test_doctor_says_what_it_cannot_find_out() -> None:
    url = "mysql://me:s3cret@127.0.0.1:1/x"
    (unknown,) = promise_of(url)
    assert unknown.state == "weak"
    assert "s3cret" not in unknown.found
    assert upkeep_of(url) == ()
