"""Scripts, servers that lose or refuse them, and the lean client's protocol."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.equipment.redis_server import RedisServer

from detent.errors import StoreMismatch, StoreUnavailable
from detent.model import Ask, Report
from detent.stores.redis.lean import Refused, Wire
from detent.stores.redis.store import RedisStore
from detent.testing.stores.fixtures import DONE, Asker, finish, fire, found, keys


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis")
    yield server
    server.end()


def _calls(server: RedisServer, command: str) -> int:
    return int(server.call("INFO", "commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"])


def _functions(server: RedisServer) -> set[str]:
    return {library[b"library_name"].decode() for library in server.call("FUNCTION", "LIST")}


def _use(store: RedisStore, key: str) -> None:
    assert store.put([fire(key)]) == [True]
    claim = Asker(store, key).claim_one()
    assert claim.fire.key == key and finish(store, claim) is not None
    assert store.finish_and_claim([Report(claim, DONE)], Ask("a", key, 2))[0] == [DONE]


# Scripts.


def test_a_script_is_sent_once(server: RedisServer) -> None:
    store = RedisStore(server.url)
    for number in range(3):
        _use(store, f"a.b@{number}")
    assert _calls(server, "eval") == len({"look", "commit"})
    assert _calls(server, "evalsha") > 6


def test_a_forgotten_script_is_sent_again(server: RedisServer) -> None:
    for url in (server.url, server.url.replace("127.0.0.1", "localhost")):
        store = RedisStore(url, url)
        _use(store, "a.b@1")
        server.call("SCRIPT", "FLUSH")
        _use(store, "a.b@2")
        assert store.notes("a") == []


def test_a_user_without_the_right_to_scripts_is_refused(server: RedisServer) -> None:
    server.call("ACL", "SETUSER", "me", "on", ">secret", "allkeys", "+@all", "-@scripting")
    with pytest.raises(StoreMismatch, match="denies a command that a store needs"):
        RedisStore(server.url.replace("//", "//me:secret@")).put([fire("a.b@1")])


def test_a_failed_call_does_not_affect_the_next(server: RedisServer) -> None:
    store = RedisStore(server.url)
    store.put([fire("a.b@1"), fire("a.c@1")])
    server.call("RENAME", "{detent:a}:texts", "{detent:a}:kept")
    server.call("SET", "{detent:a}:texts", "no hash")
    with pytest.raises(StoreMismatch, match="WRONGTYPE"):
        store.put([fire("a.d@1")])
    server.call("RENAME", "{detent:a}:kept", "{detent:a}:texts")
    assert store.put([fire("b.e@1")]) == [True]
    assert sorted(keys(Asker(store).claim(limit=9))) == ["a.b@1", "a.c@1"]
    assert keys(Asker(store, app="b").claim(limit=9)) == ["b.e@1"]


def test_a_full_server_can_be_pruned(server: RedisServer) -> None:
    store = RedisStore(server.url)
    _use(store, "a.b@1")
    server.call("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(StoreUnavailable, match="is full"):
        store.put([fire("a.c@1")])
    assert found(store) == ["a.b@1"]
    assert store.prune("a", 0, 0) == 1


# What is said on the wire.


@pytest.mark.parametrize("size", [7, 701, 100_000])
def test_replies_of_every_kind_are_read_in_any_chunks(size: int) -> None:
    said = (
        b"*5\r\n$3\r\na\r\n\r\n:-7\r\n$-1\r\n*0\r\n+OK\r\n$0\r\n\r\n*-1\r\n$70000\r\n"
        + b"x" * 70_000
        + b"\r\n"
    )
    ours, theirs = socket.socketpair()
    with ThreadPoolExecutor(1) as pool, ours, theirs:
        sending = pool.submit(_send_in_parts, theirs, said, size)
        wire = Wire(ours)
        assert wire.call_all([("PING",)] * 4) == [[b"a\r\n", -7, None, [], b"OK"], b"", None, b"x" * 70_000]
        sending.result(10)


def _send_in_parts(connected: socket.socket, said: bytes, size: int) -> None:
    for first in range(0, len(said), size):
        connected.sendall(said[first : first + size])


def test_an_error_is_raised_after_all_replies_were_read() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"-NOSCRIPT No such\r\n:1\r\n:2\r\n")
        wire = Wire(ours)
        with pytest.raises(Refused, match=r"^NOSCRIPT No such$"):
            wire.call_all([("PING",), ("PING",)])
        assert wire.call_all([("PING",)]) == [2]


@pytest.mark.parametrize("said", [b"", b":1", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_closed_connection_or_another_protocol_is_an_error(said: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        wire = Wire(ours)
        theirs.sendall(said)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionError):
            wire.call_all([("PING",)])
        theirs.close()


def test_arguments_are_sent_with_their_length_in_bytes() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"+OK\r\n")
        Wire(ours).call_all([["é", 1, b"\r\n"]])
        assert theirs.recv(100) == b"*3\r\n$2\r\n\xc3\xa9\r\n$1\r\n1\r\n$2\r\n\r\n\r\n"
