"""How a Redis store finds its server, and what `doctor` reports about it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.equipment.redis_server import RedisServer, free_port

from detent.clock import monotonic
from detent.errors import StoreUnavailable, UsageError
from detent.stores.base import Diagnosis
from detent.stores.redis.address import parse
from detent.stores.redis.health import refusal
from detent.stores.redis.store import RedisStore
from detent.stores.registry import open_store, promise_of
from detent.testing.stores.fixtures import Asker, fire, found, keys

PATIENCE_S = 60.0
SLOTS = 16384


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis")
    yield server
    server.end()


# URLs.


@pytest.mark.parametrize(
    ("url", "kind", "hosts", "service", "options"),
    [
        ("redis://h", "plain", [("h", 6379)], "", {"host": "h"}),
        ("redis://h:7/2", "plain", [("h", 7)], "", {"port": 7, "db": 2}),
        ("redis://me:p%40ss@h", "plain", [("h", 6379)], "", {"username": "me", "password": "p@ss"}),
        ("rediss://h?ssl_ca_certs=/ca.pem", "plain", [("h", 6379)], "", {"ssl_ca_certs": "/ca.pem"}),
        ("unix:///run/redis.sock?db=3", "plain", [], "", {"path": "/run/redis.sock", "db": 3}),
        ("redis://h?socket_timeout=0.5", "plain", [("h", 6379)], "", {"socket_timeout": 0.5}),
        ("redis+sentinel://a,b:7/main", "sentinel", [("a", 26379), ("b", 7)], "main", {}),
        ("redis+sentinel://me:s@a/main/4", "sentinel", [("a", 26379)], "main", {"db": 4, "password": "s"}),
        ("redis+cluster://:s@a:1,[::1]:2", "cluster", [("a", 1), ("::1", 2)], "", {"password": "s"}),
    ],
)
def test_a_url_is_parsed(
    url: str, kind: str, hosts: list[tuple[str, int]], service: str, options: dict[str, Any]
) -> None:
    address = parse(url)
    assert (address.kind, list(address.hosts), address.service) == (kind, hosts, service)
    assert options.items() <= address.options.items()
    assert address.options["socket_timeout"] > 0


def test_a_cluster_with_tls_needs_a_client_that_checks_the_names_of_its_servers() -> None:
    """`make redis-versions` and the test of the oldest version run this with older versions of redis-py."""
    if redis.VERSION >= (6, 2):
        assert parse("rediss+cluster://h").options["ssl_check_hostname"] is True
    else:
        with pytest.raises(UsageError, match=r"needs redis-py 6\.2 or newer"):
            open_store("rediss+cluster://h").set_jobs("a", -1, {})


def test_sentinels_may_have_a_password_of_their_own() -> None:
    address = parse("redis+sentinel://a/main?sentinel_password=theirs&socket_timeout=1")
    assert address.sentinel_options["password"] == "theirs"
    assert address.options["socket_timeout"] == 1 and "password" not in address.options


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis+sentinel://me:secret@a", "names its service"),
        ("redis://me:secret@h?socket_timeout=long", "socket_timeout"),
        ("redis+cluster://:secret@h:port", "is not a host with a port"),
        ("redis+nothing://:secret@h", "unknown kind of store"),
        ("redis:secret", r"^bad store: its Redis URL is wrong: write \"redis://USER"),
        ("redis://:sec/secret@h", r"^bad store: its Redis URL is wrong: write \"redis://USER"),
    ],
)
def test_a_bad_url_is_refused_without_showing_its_password(url: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as error:
        open_store(url)
    assert "secret" not in str(error.value)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(UsageError, match="an option of its URL is unknown"):
        open_store("redis://h?colour=red").look("a")


def test_a_prefix_that_would_scatter_an_app_is_refused() -> None:
    with pytest.raises(UsageError, match="bad key_prefix"):
        open_store("redis://h", key_prefix="a{}")


def test_a_unix_socket_works(tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "redis", "--unixsocket", str(tmp_path / "s"))
    with closing(open_store(f"unix://{tmp_path}/s?db=1")) as store:
        store.put([fire("a.b@1")])
        assert found(store) == ["a.b@1"]
    assert server.call("DBSIZE") == 0, "it is in another database"
    server.end()


# Several servers.


def test_sentinels_name_the_master(server: RedisServer, tmp_path: Path) -> None:
    watches = f"sentinel monitor main 127.0.0.1 {server.port} 1"
    sentinel = RedisServer(tmp_path / "sentinel", watches=watches)
    with closing(open_store(f"redis+sentinel://127.0.0.1:{sentinel.port}/main")) as store:
        store.put([fire("a.b@1")])
        assert keys(Asker(store).claim()) == ["a.b@1"]
    assert server.call("EXISTS", "{detent:a}:world")
    with pytest.raises(StoreUnavailable, match='the Redis "other" of the Sentinels at 127'):
        open_store(f"redis+sentinel://127.0.0.1:{sentinel.port}/other").look("a")
    sentinel.end()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[RedisServer]]:
    """Three servers that share the slots."""
    buses = [free_port() for _ in range(3)]
    settings = [("--cluster-enabled", "yes", "--cluster-port", str(bus)) for bus in buses]
    servers = [RedisServer(tmp_path / str(number), *some) for number, some in enumerate(settings)]
    try:
        for number, one in enumerate(servers):
            one.call("CLUSTER", "ADDSLOTSRANGE", SLOTS * number // 3, SLOTS * (number + 1) // 3 - 1)
            one.call("CLUSTER", "MEET", "127.0.0.1", servers[0].port, buses[0])
        _until(lambda: all(map(_is_joined, servers)))
        yield servers
    finally:
        for one in servers:
            one.end()


def _is_joined(server: RedisServer) -> bool:
    info = server.call("CLUSTER", "INFO")
    return b"cluster_state:ok" in info and b"cluster_known_nodes:3" in info


def test_a_cluster_keeps_each_app_on_one_server(cluster: list[RedisServer]) -> None:
    hosts = ",".join(f"127.0.0.1:{one.port}" for one in cluster)
    store = RedisStore(f"redis+cluster://{hosts}", "shop:")
    apps = ("a", "b", "c", "d", "e")
    assert store.put([fire(f"{app}.b@1", "Forbid") for app in apps]) == [True] * 5
    for app in apps:
        claim = Asker(store, "n1", app=app).claim_one()
        assert store.renew([claim]) == [None]
    assert not store.wait("a", 0.05)
    assert sorted(found(store)) == [f"{app}.b@1" for app in apps]
    assert sum(bool(one.call("DBSIZE")) for one in cluster) > 1, "the apps are spread"
    store.close()
    assert len(found(store)) == 5


# What it tells of its server.


def _states(rows: tuple[Diagnosis, ...]) -> dict[str, str]:
    return {row.what: row.state for row in rows}


def test_a_durable_server_passes_every_check(server: RedisServer) -> None:
    assert _states(promise_of(server.url)) == {"durability": "ok", "eviction": "ok", "failover": "ok"}


@pytest.mark.parametrize(
    ("name", "value", "what", "state"),
    [
        ("appendfsync", "everysec", "durability", "weak"),
        ("appendonly", "no", "durability", "weak"),
        ("maxmemory-policy", "volatile-lru", "eviction", "bad"),
    ],
)
def test_a_weaker_server_is_reported_with_the_consequence(
    server: RedisServer, name: str, value: str, what: str, state: str
) -> None:
    server.call("CONFIG", "SET", name, value)
    rows = promise_of(server.url)
    (row,) = [row for row in rows if row.state != "ok"]
    assert (row.what, row.state) == (what, state)
    assert value in row.found and row.consequence and row.advice


def test_replicas_may_forget_and_settings_may_be_hidden(server: RedisServer, tmp_path: Path) -> None:
    server.call("ACL", "SETUSER", "me", "on", ">secret", "~*", "+@all", "-config")
    replica = RedisServer(tmp_path / "replica", "--replicaof", f"127.0.0.1 {server.port}")
    _until(lambda: replica.call("INFO", "replication")["master_link_status"] == "up")
    rows = promise_of(server.url.replace("//", "//me:secret@"), wait_replicas=1)
    assert _states(rows) == {"durability": "weak", "eviction": "ok", "failover": "weak"}
    assert "could not be read" in rows[0].found
    assert "1 replica, wait_replicas 1" in rows[2].found
    assert _states(promise_of(replica.url))["failover"] == "bad"
    replica.end()


def test_an_unreachable_server_is_reported_as_unknown(server: RedisServer) -> None:
    server.end()
    (row,) = promise_of(server.url)
    assert row.state == "weak" and "does not answer" in row.found


@pytest.mark.parametrize(
    ("info", "said"),
    [
        (b"redis_version:6.0.16\r\nrole:master\r\n", "version 6.0.16"),
        (b"redis_version:7.2.4\r\nrole:slave\r\n", "read-only replica"),
        (b"redis_version:7.2.4\r\nrole:master\r\nmaxmemory_policy:allkeys-lru\r\n", "maxmemory-policy"),
        (b"redis_version:6.2.0\r\nrole:master\r\nmaxmemory_policy:noeviction\r\n", ""),
    ],
)
def test_a_server_that_cannot_be_a_store_is_refused(info: bytes, said: str) -> None:
    why = refusal(info)
    assert said in why and bool(why) == bool(said)


def _until(look: Callable[[], object]) -> None:
    until = monotonic() + PATIENCE_S
    while not look():
        assert monotonic() < until, "it did not come to pass"
        threading.Event().wait(0.01)
