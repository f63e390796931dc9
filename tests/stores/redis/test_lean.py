"""The lean client: which URLs it supports, its errors, and that it uses the same store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.equipment.redis_server import RedisServer, free_port

from detent.errors import StoreMismatch, StoreUnavailable
from detent.model import Fire, Query
from detent.stores.redis.lean import lean_server
from detent.stores.redis.link import Link, Script
from detent.stores.registry import open_store

ONE = Script("return {'1'}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("lean"), "--requirepass", "secret")
    yield server
    server.end()


@pytest.mark.parametrize(
    ("url", "is_plain"),
    [
        ("redis://localhost", True),
        ("redis://:pw@10.0.0.1:7000/3", True),
        ("redis://u:p%40w@host", False),
        ("redis://host?socket_timeout=3", False),
        ("rediss://host", False),
        ("redis+sentinel://a,b/main", False),
        ("unix:///run/redis.sock", False),
    ],
)
def test_only_plain_urls_are_supported(url: str, is_plain: bool) -> None:
    assert (lean_server(url) is not None) == is_plain


def test_the_lean_client_and_redis_py_share_a_store(server: RedisServer) -> None:
    url = f"redis://:secret@127.0.0.1:{server.port}/2"
    lean, usual = open_store(url, is_lean=True), open_store(url)
    fire = Fire(key="t.a@x", job="t.a", due_at=lean.look("t").now, payload="ü" * 100_000)
    assert lean.put([fire]) == [True]
    assert [row.fire.payload for row in usual.find(Query(key="t.a@x"))] == ["ü" * 100_000]
    lean.close()
    assert lean.find(Query(app="t"))[0].fire.key == "t.a@x"  # a closed one may be used again
    usual.close()
    lean.close()


def test_a_wrong_password_and_an_unreachable_server_are_different_errors(server: RedisServer) -> None:
    for url in (f"redis://:wrong@127.0.0.1:{server.port}", f"redis://127.0.0.1:{server.port}"):
        with pytest.raises(StoreMismatch, match="refuses the user or the password") as raised:
            open_store(url, is_lean=True).look("t")
        assert "wrong" not in str(raised.value)
    with pytest.raises(StoreUnavailable, match="does not answer"):
        open_store(f"redis://127.0.0.1:{free_port()}", is_lean=True).look("t")


def test_missing_replicas_are_an_error(server: RedisServer) -> None:
    lean = lean_server(f"redis://:secret@127.0.0.1:{server.port}")
    assert lean is not None
    link = Link(lean, 1)
    with pytest.raises(StoreUnavailable, match="0 of 1 replicas acknowledged"):
        link.run(ONE, "k", (), True)
    assert link.run(ONE, "k", (), False) == [b"1"]
    link.servers.close()
