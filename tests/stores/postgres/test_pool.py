"""The pool of the PostgreSQL store: how many connections a process has, and who waits for them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from threading import Barrier

import pytest
from tests.equipment.postgres_server import PATIENCE_S, Server, new_name, new_server

from detent import Detent
from detent.errors import StoreUnavailable, UsageError
from detent.stores.base import Store
from detent.stores.postgres.store import PostgresStore
from detent.stores.registry import open_store
from detent.stores.sql.pool import SIZE
from detent.testing.stores.fixtures import fire

THREADS = 80


@pytest.fixture
def small() -> Iterator[Server]:
    """A server for few connections."""
    server = new_server("max_connections=20")
    server.make()
    server.start()
    yield server
    server.remove()


def test_more_threads_than_the_server_has_connections_lose_no_push(small: Server) -> None:
    with closing(PostgresStore(small.url)) as store:
        with ThreadPoolExecutor(THREADS) as threads:
            pushed = [threads.submit(store.put, [fire(f"a.b@{n}")]) for n in range(5 * THREADS)]
            assert [one.result(PATIENCE_S) for one in pushed] == [[True]] * len(pushed)
        assert len(_sessions(small)) == SIZE


def test_threads_that_open_the_store_of_an_app_at_once_share_one_pool(server: Server) -> None:
    app, together = Detent("shop", store=server.url), Barrier(THREADS)

    def open_store(_: int) -> Store:
        together.wait()
        return app.open_store()

    with ThreadPoolExecutor(THREADS) as threads:
        stores = {*threads.map(open_store, range(THREADS))}
    assert len(stores) == 1


def test_the_url_says_how_many_connections_a_process_has(server: Server) -> None:
    url = f"{server.url}&pool_size=2&application_name={(name := new_name())}"
    with closing(PostgresStore(url, new_name())) as store, ThreadPoolExecutor(8) as threads:
        assert [*threads.map(lambda n: store.notes("a"), range(40))] == [[]] * 40
        assert len(_sessions(server, name)) == 2


def test_the_error_of_a_busy_pool_says_how_to_enlarge_it(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(PostgresStore(f"{server.url}&pool_size=1", new_name())) as store:
        monkeypatch.setattr("detent.stores.sql.driver.SOON_S", 0.2)
        busy = pytest.raises(StoreUnavailable, match=r"all 1 connections .* raise pool_size")
        with store._links.link(), busy:
            store.notes("a")
        assert store.notes("a") == []


@pytest.mark.parametrize("size", ["0", "-1", "ten", "", "1001"])
def test_a_bad_pool_size_is_refused(size: str) -> None:
    with pytest.raises(UsageError, match=r"pool_size .* from 1 to 1,000"):
        open_store(f"postgresql://me@localhost/shop?pool_size={size}")


def test_a_forked_process_opens_its_own_connections(server: Server) -> None:
    name = new_name()
    with closing(PostgresStore(f"{server.url}&application_name={name}", new_name())) as store:
        store.note("a", "parent", "here")
        store.wait("a", 0.01)  # the connection that listens is inherited too
        before = _sessions(server, name)
        child = get_context("fork").Process(target=_note_and_wait, args=(store,))
        child.start()
        child.join(PATIENCE_S)
        assert child.exitcode == 0
        assert [note.name for note in store.notes("a")] == ["child", "parent"]
        assert _sessions(server, name) >= before


def _note_and_wait(store: PostgresStore) -> None:
    store.note("a", "child", str(os.getpid()))
    store.wait("a", 0.01)


def _sessions(server: Server, name: str = "detent") -> set[int]:
    """The process ids of the backends that serve our connections."""
    rows = server.sql("SELECT pid FROM pg_stat_activity WHERE application_name = %s", name)
    return {pid for (pid,) in rows}


def test_a_server_that_cannot_be_reached_is_reported_at_once_with_the_reason(tmp_path: Path) -> None:
    store = PostgresStore(f"postgresql://me@/shop?host={tmp_path}")
    with closing(store), ThreadPoolExecutor(1) as threads:
        call = threads.submit(store.notes, "a")
        assert "No such file or directory" in str(call.exception(PATIENCE_S))
