"""Faults of a Redis server: lost data, restarts, refusals, lost replies, a clock that is set."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.equipment.proxy import Proxy
from tests.equipment.redis_server import RedisServer, free_port

from detent.clock import monotonic
from detent.errors import StoreMismatch, StoreUnavailable
from detent.model import Query, Report
from detent.rules.outcomes import node_lost
from detent.stores.redis.link import script_of
from detent.stores.redis.store import RedisStore
from detent.testing.stores.fixtures import DONE, TTL_S, Asker, FakeClock, finish, fire, found, keys, renew

SKEW = Path(__file__).parents[2] / "equipment" / "skew.c"
PATIENCE_S = 60.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis")
    yield server
    server.end()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def opened(server: RedisServer, clock: FakeClock, **options: Any) -> RedisStore:
    return RedisStore(server.url, wall=clock.wall, elapsed=clock.monotonic, **options)


# It forgets.


def test_a_restart_with_its_data_is_a_new_epoch(server: RedisServer, clock: FakeClock) -> None:
    store = opened(server, clock)
    store.put([fire("a.b@1"), fire("a.c@1")])
    old, epoch = Asker(store).claim_one(limit=1), store.look("a").epoch
    server.restart()
    node = Asker(opened(server, clock), "n2")
    assert node.claim() == [], "it is in quarantine, although no client knew the older epoch"
    assert store.look("a").epoch != epoch
    assert renew(store, old) is None
    clock.pass_time(TTL_S + 1)
    lost, other = sorted(node.claim(), key=lambda claim: claim.fire.key)
    assert lost.disposition == node_lost("n1") and other.disposition is None
    assert min(lost.fence, other.fence) > old.fence + 2**21


def test_a_server_that_lost_everything_waits_until_old_claims_have_expired(
    server: RedisServer, clock: FakeClock
) -> None:
    store = opened(server, clock)
    store.put([fire("a.b@1")])
    old, epoch = Asker(store).claim_one(), store.look("a").epoch
    server.restart(forget=True)
    clock.pass_time(1)
    assert store.look("a").epoch != epoch
    newcomer = Asker(opened(server, clock), "n2")
    newcomer.store.put([fire("a.b@1")])
    assert newcomer.claim() == []
    assert 0 < newcomer.ask().next_in_s <= TTL_S
    clock.pass_time(TTL_S)
    (again,) = newcomer.claim()
    assert again.fence > old.fence
    assert finish(store, old) is None
    assert found(store) == ["a.b@1"], "the app is known again"


def test_a_flush_is_a_new_epoch_too(server: RedisServer, clock: FakeClock) -> None:
    store = opened(server, clock)
    epoch = store.look("a").epoch
    server.call("FLUSHALL")
    clock.pass_time(1)
    assert store.look("a").epoch != epoch


# It loses an answer.


def test_a_lost_reply_loses_no_claim(server: RedisServer) -> None:
    proxy = Proxy(server.port)
    store, direct = RedisStore(proxy.url), RedisStore(server.url)
    node = Asker(store)
    node.claim()
    direct.put([fire("a.b@1"), fire("a.c@1")])
    proxy.lose(to=script_of("commit").sha.encode())
    with pytest.raises(StoreUnavailable):
        node.claim()
    assert proxy.lost == 1, "it was sent once, and not again by the client"
    (first, second) = node.claim(repeat=True)
    assert [first.attempt, second.attempt] == [1, 1]
    assert Asker(direct, "n2").claim() == []
    proxy.lose()
    with pytest.raises(StoreUnavailable):
        finish(store, first)
    assert finish(store, first) == DONE
    assert [len(row.attempts) for row in direct.find(Query(key="a.b@1"))] == [1]
    proxy.close()


def test_the_error_of_an_unreachable_server_has_no_password() -> None:
    store = RedisStore(f"redis://me:secret@127.0.0.1:{free_port()}")
    with pytest.raises(StoreUnavailable, match=r"the Redis at 127\.0\.0\.1:.* does not answer") as error:
        store.look("a")
    assert "secret" not in str(error.value)


def test_a_call_to_a_server_that_does_not_answer_times_out(server: RedisServer) -> None:
    store = RedisStore(f"{server.url}?socket_timeout=0.2")
    store.look("a")
    server.call("CLIENT", "PAUSE", 700, "ALL")
    with pytest.raises(StoreUnavailable):
        store.look("a")


# It refuses.


def test_a_user_with_minimal_rights_is_enough(server: RedisServer) -> None:
    rights = ["+@read", "+@write", "+@scripting", "+@connection", "+info", "+time", "+wait", "~shop:*"]
    server.call("ACL", "SETUSER", "me", "on", ">secret", "resetchannels", *rights)
    url = server.url.replace("//", "//me:secret@")
    store = RedisStore(url, "shop:")
    store.put([fire("a.b@1")])
    assert keys(Asker(store).claim()) == ["a.b@1"]
    assert not store.wait("a", 0.05)
    with pytest.raises(StoreMismatch, match="denies a command that a store needs"):
        RedisStore(url).put([fire("a.b@1")])


def test_a_wrong_password_is_an_error_that_does_not_show_it(server: RedisServer) -> None:
    server.call("CONFIG", "SET", "requirepass", "right")
    store = RedisStore(server.url.replace("//", "//:secret@"))
    with pytest.raises(StoreMismatch, match="refuses the user or the password") as error:
        store.look("a")
    assert "secret" not in str(error.value)


def test_an_evicting_server_is_refused(server: RedisServer) -> None:
    server.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    with pytest.raises(StoreMismatch, match=r"maxmemory-policy allkeys-lru, .* set it to noeviction"):
        RedisStore(server.url).look("a")


def test_a_full_server_is_unavailable_and_leaves_no_partial_write(server: RedisServer) -> None:
    store = RedisStore(server.url)
    store.put([fire("a.b@1")])
    server.call("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(StoreUnavailable, match="is full"):
        store.put([fire("a.c@1")])
    server.call("CONFIG", "SET", "maxmemory", "0")
    assert found(store) == ["a.b@1"]
    assert store.put([fire("a.c@1")]) == [True]


@pytest.mark.parametrize("other", ["99 and more", "\xd9\x50x"])
def test_another_schema_is_refused(server: RedisServer, other: str) -> None:
    store = RedisStore(server.url)
    store.look("a")
    server.call("SET", "{detent:a}:world", other)
    with pytest.raises(StoreMismatch, match="incompatible version of detent: upgrade the older one"):
        store.look("a")


# It has replicas.


def test_a_read_only_replica_is_refused(server: RedisServer, tmp_path: Path) -> None:
    replica = RedisServer(tmp_path / "replica", "--replicaof", f"127.0.0.1 {server.port}")
    with pytest.raises(StoreMismatch, match="is a read-only replica: name its master"):
        RedisStore(replica.url).look("a")
    replica.end()


def test_a_write_that_too_few_replicas_acknowledged_fails(server: RedisServer, tmp_path: Path) -> None:
    replica = RedisServer(tmp_path / "replica", "--replicaof", f"127.0.0.1 {server.port}")
    store = RedisStore(server.url, wait_replicas=1)
    _until(lambda: replica.call("INFO", "replication")["master_link_status"] == "up")
    assert store.put([fire("a.b@1")]) == [True]
    assert replica.call("HEXISTS", "{detent:a}:texts", "a.b@1")
    replica.end()
    with pytest.raises(StoreUnavailable, match="0 of 1 replicas acknowledged"):
        store.put([fire("a.c@1")])
    assert found(store) == ["a.c@1", "a.b@1"], "unknown is not undone"


def test_a_repeated_call_waits_for_what_the_first_one_wrote(
    server: RedisServer, clock: FakeClock, tmp_path: Path
) -> None:
    """The first call took effect, but its replica is stopped; the second writes nothing new."""
    replica = RedisServer(tmp_path / "replica", "--replicaof", f"127.0.0.1 {server.port}")
    _until(lambda: replica.call("INFO", "replication")["master_link_status"] == "up")
    opened(server, clock, wait_replicas=1).put([fire("a.b@1")])
    os.kill(replica.process.pid, signal.SIGSTOP)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas acknowledged"):
            opened(server, clock, wait_replicas=1).put([fire("a.c@1")])
    os.kill(replica.process.pid, signal.SIGCONT)
    assert opened(server, clock, wait_replicas=1).put([fire("a.c@1")]) == [False]
    replica.end()


# It is shared.


def test_stores_with_different_prefixes_are_separate(server: RedisServer) -> None:
    ours, theirs = RedisStore(server.url, "ours:"), RedisStore(server.url, "theirs:")
    ours.put([fire("a.b@1")])
    assert (found(ours), found(theirs)) == (["a.b@1"], [])
    assert Asker(theirs).claim() == []
    assert all(key.startswith((b"ours:", b"theirs:")) for key in server.call("KEYS", "*"))


def test_a_dead_instance_loses_its_claims_in_every_app(server: RedisServer) -> None:
    store = RedisStore(server.url)
    store.put([fire("a.b@1"), fire("z.b@1")])
    Asker(store, "dead", app="z").claim_one()
    Asker(store, "n2").claim(dead=("dead",))
    assert Asker(store, "n3", app="z").claim_one().disposition == node_lost("dead")


def test_a_waiter_is_woken_by_another_process(server: RedisServer) -> None:
    waiter, other = RedisStore(server.url), RedisStore(server.url)
    waiter.wait("a", 0.01)
    other.put([fire("a.b@1")])
    assert waiter.wait("a", PATIENCE_S), "it was woken between two waits"
    assert not waiter.wait("a", 0.01)


def test_close_ends_a_wait(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detent.stores.redis.session.BLOCK_S", 600.0)
    store, answers = RedisStore(f"{server.url}?socket_timeout=600"), []
    waiter = threading.Thread(target=lambda: answers.append(store.wait("a", 600)), daemon=True)
    waiter.start()
    _until(lambda: server.call("INFO", "clients")["blocked_clients"] == 1)
    store.close()
    waiter.join(PATIENCE_S)
    assert answers == [False]


def test_pruning_leaves_no_keys_behind(server: RedisServer, clock: FakeClock) -> None:
    store = opened(server, clock)
    for turn in range(3):
        node = Asker(store, f"life-{turn}")
        policy = fire("a.x@0", "Forbid").policy._replace(grace_s=1.0)
        store.put([fire(f"a.b{n}@{turn}", lane=f"a.b{n}", policy=policy, queue=f"q{n}") for n in range(20)])
        claims = node.claim(limit=20, queues=tuple(f"q{n}" for n in range(20)))
        assert len(claims) == 20
        store.note("a", f"node/{turn}", "here", ttl_s=5.0)
        for claim in claims:
            finish(store, claim, tail=b"output", result="1")
        clock.pass_time(90_000)
        assert store.prune("a", 10, 1000) == 20
    kept = {key.rpartition(b":")[2].decode() for key in server.call("KEYS", "*") if b":tally:" not in key}
    assert kept == {"world", "succeeded", "wakeups", "apps"}  # tallies expire by themselves


def test_more_fires_than_one_call_examines_are_pruned_and_found(
    server: RedisServer, clock: FakeClock
) -> None:
    store = opened(server, clock)
    store.put([fire(f"a.b@{n:04}") for n in range(1200)])
    node = Asker(store)
    store.finish([Report(claim, DONE) for _ in range(2) for claim in node.claim(limit=600)])
    assert len(found(store, limit=5000)) == 1200
    assert found(store, job="a.b", limit=450) == [f"a.b@{n:04}" for n in range(1199, 749, -1)]
    assert store.prune("a", 10, keep=30) == 1170
    assert found(store) == [f"a.b@{n:04}" for n in range(1199, 1169, -1)]


# Its clock is set.


def test_a_new_client_after_a_silence_extends_each_claim_by_one_ttl(
    server: RedisServer, clock: FakeClock
) -> None:
    """It cannot tell a silence from a step of the clock, and must not expire the claims of running work."""
    store = opened(server, clock)
    store.put([fire("a.b@1")])
    Asker(store).claim_one()
    clock.pass_time(TTL_S * 10)
    assert Asker(opened(server, clock), "n2").claim() == []
    clock.pass_time(TTL_S * 0.9)
    assert Asker(opened(server, clock), "n3").claim() == []
    clock.pass_time(TTL_S * 0.9)
    assert Asker(opened(server, clock), "n4").claim_one().disposition == node_lost("n1")


def test_a_claim_of_a_delayed_call_has_its_full_ttl(server: RedisServer, clock: FakeClock) -> None:
    """The server may have been frozen.  The next caller knows how much time has passed."""
    held_up_s = 0.0
    slow = RedisStore(server.url, wall=clock.wall, elapsed=lambda: clock.monotonic() - held_up_s)
    node = Asker(opened(server, clock), "n2")
    slow.put([fire("a.b@1")])
    node.store.notes("a")
    clock.pass_time(6)
    held_up_s = 6.0
    claim = Asker(slow).claim_one()
    held_up_s = 0.0
    assert node.claim() == []
    clock.pass_time(TTL_S - 3)
    assert node.claim() == []
    assert renew(slow, claim) is None


@pytest.fixture
def skewed(tmp_path: Path) -> Iterator[tuple[RedisServer, Path]]:
    """A server that reads its wall clock from a file."""
    compiler, library, file = shutil.which("cc"), tmp_path / "skew.so", tmp_path / "skew"
    if compiler is None:
        pytest.skip("needs a C compiler, for a wall clock that a test can set")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, SKEW], check=True)
    file.write_bytes(struct.pack("<q", 0))
    server = RedisServer(tmp_path / "redis", env={"LD_PRELOAD": str(library), "SKEW_FILE": str(file)})
    yield server, file
    server.end()


def test_a_step_of_the_servers_clock_expires_no_claim(skewed: tuple[RedisServer, Path]) -> None:
    server, file = skewed
    store = RedisStore(server.url)
    store.put([fire("a.b@1")])
    began = store.look("a").now
    claim = Asker(store).claim_one()
    for hours in (70, -70):
        with file.open("r+b") as skew:
            skew.write(struct.pack("<q", hours * 3600 * 10**9))
        _until(lambda hours=hours: _hours_since(began, store) == hours)  # a server looks now and then
        assert Asker(store, f"n{hours}").claim() == []
        assert renew(store, claim) is None
    store.put([fire("a.c@1")])
    fresh = Asker(store, "n2").claim_one(ttl_s=0.2)
    node, until = Asker(store, "n3"), monotonic() + PATIENCE_S
    while not (claims := node.claim()):
        assert monotonic() < until, "a claim must end, whatever the clock says"
    assert [(one.fire, one.disposition) for one in claims] == [(fresh.fire, node_lost("n2"))]


def _hours_since(began: datetime, store: RedisStore) -> int:
    return round((store.look("a").now - began) / timedelta(hours=1))


def _until(look: Callable[[], object]) -> None:
    until = monotonic() + PATIENCE_S
    while not look():
        assert monotonic() < until, "it did not come to pass"
        threading.Event().wait(0.01)
