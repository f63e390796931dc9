"""A Redis whose Sentinels promote a replica: after a kill, and while the old master still answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.e2e.failover.launches import assert_sound, assert_unbroken, repeated, running
from tests.e2e.failover.redis_groups import REPLICAS, SENTINELS, Guarded, sentinel_url, until
from tests.equipment.proxy import Proxy
from tests.equipment.redis_server import RedisServer

from detent.errors import StoreMismatch, StoreUnavailable
from detent.stores.registry import open_store, promise_of
from detent.testing.stores.fixtures import Asker, fire, keys, renew


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Guarded]:
    group = Guarded(tmp_path)
    yield group
    group.end()


def test_nodes_follow_the_master_when_it_is_killed(group: Guarded, tmp_path: Path) -> None:
    with running(tmp_path, group.url, group.url) as fleet:
        group.servers[0].end()
        fleet.wait_all_say("new-epoch")
        fleet.wait_more(3)
        fleet.stop()
        assert_sound(fleet)
        assert_unbroken(fleet)


def test_launches_that_only_an_isolated_master_acknowledged_are_repeated_and_reported(
    group: Guarded, tmp_path: Path
) -> None:
    """One node reaches only the old master.  The Sentinels promote a replica: that node must stop."""
    ways = [Proxy(one.port) for one in group.sentinels]
    with running(tmp_path, sentinel_url(ways), group.url) as fleet:
        group.fronts[0].shut_out(REPLICAS)
        fleet.wait_more()
        group.fronts[0].shut_out(SENTINELS)
        for way in ways:
            way.swallow()
        fleet.nodes[0].wait("store-unavailable")
        until("a replica is promoted", group.is_promoted)
        fleet.nodes[1].wait("new-epoch")
        fleet.wait_more(3)
        assert fleet.nodes[0].events("store-back") == []
        group.fronts[0].let_in()
        for way in ways:
            way.restore()
        fleet.wait_all_say("new-epoch")
        fleet.wait_more(1)
        fleet.stop()
        assert repeated(fleet), "the old master acknowledged launches that no other server knew of"
        assert_sound(fleet)
        assert_unbroken(fleet)


def test_a_replicated_claim_survives_a_failover(group: Guarded) -> None:
    with closing(open_store(group.url, wait_replicas=1)) as store:
        store.put([fire("a.b@1"), fire("a.c@1")])
        claim = Asker(store).claim_one(limit=1, ttl_s=3.0)
        group.fronts[0].shut_out(REPLICAS)
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas acknowledged"):
            renew(store, claim)
        group.fronts[0].shut_out(SENTINELS)
        until("a replica is promoted", group.is_promoted)
        (row,) = [row for row in promise_of(group.url) if row.state != "ok"]
        assert (row.what, row.found) == ("failover", "no replica is connected")
        with closing(open_store(group.url)) as other:
            until("it answers", lambda: renew(other, claim) is None)
            node = Asker(other, "n2")
            assert node.ask().claims == (), "it must not grant yet"
            until("it grants", lambda: renew(other, claim) is None and node.claim())
            assert keys(node.claim(repeat=True)) == ["a.c@1"]


# More than half of the Sentinels.


def test_a_master_must_be_named_by_more_than_half(tmp_path: Path) -> None:
    servers = [RedisServer(tmp_path / f"redis-{number}") for number in range(2)]
    watched = [servers[0], servers[0], servers[1]]
    sentinels = [
        RedisServer(tmp_path / f"sentinel-{n}", watches=f"sentinel monitor main 127.0.0.1 {one.port} 2")
        for n, one in enumerate(watched)
    ]
    with closing(open_store(sentinel_url(sentinels))) as store:
        store.put([fire("a.b@1")])
        assert servers[0].call("EXISTS", "{detent:a}:world") == 1
        with pytest.raises(StoreUnavailable, match="do not agree who is the master"):
            open_store(sentinel_url(sentinels[1:])).put([fire("a.b@1")])
        sentinels[0].end()
        until("it is noticed", lambda: _raises(store, "do not agree"))
        sentinels[2].end()
        until("it is noticed", lambda: _raises(store, "1 of 3 answer, and more than half must name"))
        sentinels[1].end()
        until("it is noticed", lambda: _raises(store, "does not answer"))
    assert servers[1].call("DBSIZE") == 0
    for one in servers:
        one.end()


def test_sentinels_may_ask_for_a_user_of_their_own(tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "redis", "--requirepass", "ours")
    rights = "+@connection +sentinel|get-master-addr-by-name"
    settings = (
        f"sentinel auth-pass main ours\nuser default on nopass -@all +ping\nuser me on >theirs {rights}"
    )
    watches = f"sentinel monitor main 127.0.0.1 {server.port} 1\n{settings}"
    sentinel = RedisServer(tmp_path / "sentinel", watches=watches)
    url = sentinel_url([sentinel]).replace("//", "//:ours@") + "?sentinel_username=me&sentinel_password="
    with closing(open_store(f"{url}theirs")) as store:
        assert store.put([fire("a.b@1")]) == [True]
    with pytest.raises(StoreMismatch, match="refuses the user or the password"):
        open_store(f"{url}wrong").put([fire("a.b@1")])
    for one in (sentinel, server):
        one.end()


def _raises(store: object, what: str) -> bool:
    try:
        store.look("a")  # type: ignore[attr-defined]
    except StoreUnavailable as error:
        return what in str(error)
    return False
