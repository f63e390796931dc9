"""A PostgreSQL whose standby is promoted: with all acknowledged writes, and without some of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.e2e.failover.launches import assert_sound, assert_unbroken, repeated, running
from tests.equipment.postgres_server import Server, new_server, wait_until
from tests.equipment.proxy import Proxy

from detent.errors import StoreUnavailable
from detent.model import Policy
from detent.stores.registry import open_store, promise_of
from detent.testing.stores.fixtures import Asker, finish, fire, found, renew


class Pair(NamedTuple):
    primary: Server
    standby: Server
    way: Proxy  # from the standby to the primary

    @property
    def url(self) -> str:
        """The URL of the server that is no standby."""
        return f"postgresql://postgres@/postgres?host={self.primary.directory},{self.standby.directory}"

    def wait_for_standby(self) -> None:
        """No commit is acknowledged without it."""
        self.primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.primary.sql("SELECT pg_reload_conf()")
        look = "SELECT pid FROM pg_stat_replication WHERE sync_state = 'sync'"
        wait_until(lambda: self.primary.sql(look))

    def follows(self) -> bool:
        look = "SELECT pid FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()"
        return bool(self.primary.sql(look))

    def fail_over(self) -> None:
        self.primary.stop()
        self.standby.promote()


@pytest.fixture
def pair() -> Iterator[Pair]:
    primary, standby = new_server("fsync=on"), new_server()
    pair = Pair(primary, standby, Proxy(primary.socket))
    try:
        primary.make()
        primary.start()
        standby.copy(primary, pair.way.port)
        standby.start()
        wait_until(lambda: primary.sql("SELECT pid FROM pg_stat_replication"))
        yield pair
    finally:
        pair.way.close()
        standby.remove()
        primary.remove()


def test_with_a_synchronous_standby_nothing_is_launched_twice(pair: Pair, tmp_path: Path) -> None:
    pair.wait_for_standby()
    assert {row.state for row in promise_of(pair.url)} == {"ok"}
    with running(tmp_path, pair.url, pair.url) as fleet:
        assert all(node.events("store-weak") == [] for node in fleet.nodes)
        pair.fail_over()
        fleet.wait_all_say("new-epoch")
        fleet.wait_more(3)
        fleet.stop()
        fleet.witness.assert_launched_once()
        assert repeated(fleet) == []
        assert_sound(fleet)
        assert_unbroken(fleet)


def test_launches_that_a_standby_never_received_are_repeated_and_reported(pair: Pair, tmp_path: Path) -> None:
    with running(tmp_path, pair.url, pair.url) as fleet:
        assert all("none synchronous" in node.wait("store-weak")["error"] for node in fleet.nodes)
        wait_until(pair.follows)
        pair.way.swallow()
        fleet.wait_more()
        pair.fail_over()
        fleet.wait_all_say("new-epoch")
        fleet.wait_more(3)
        fleet.stop()
        assert repeated(fleet), "the primary acknowledged launches that its standby never heard of"
        assert_sound(fleet)
        assert_unbroken(fleet)


def test_a_lost_claim_is_granted_again_only_after_its_ttl(pair: Pair) -> None:
    with closing(open_store(pair.url)) as store:
        policy = Policy("Forbid", claim_s=3.0)
        store.put([fire(key, "Forbid", policy=policy) for key in ("a.b@1", "a.c@1")])
        node = Asker(store)
        known = node.claim_one(limit=1, ttl_s=3.0)
        wait_until(pair.follows)
        pair.way.swallow()
        forgotten = node.claim_one(limit=1, ttl_s=3.0)
        store.put([fire("a.d@1")])
        pair.fail_over()
        wait_until(lambda: _answers(store))
        assert renew(store, known) is None
        assert renew(store, forgotten) is not None
        other = Asker(store, "n2")
        grants = other.ask()
        assert grants.claims == () and 0 < grants.next_in_s <= 3.0
        (again,) = wait_until(lambda: renew(store, known) is None and other.claim())
        assert again.fire == forgotten.fire
        assert again.fence > forgotten.fence > known.fence
        assert finish(store, forgotten) is None
        assert finish(store, again) is not None
        assert found(store) == ["a.c@1", "a.b@1"], "what was put and forgotten is gone"


def _answers(store: object) -> bool:
    try:
        store.look("a")  # type: ignore[attr-defined]
    except StoreUnavailable:
        return False
    return True
