"""The connections of the MySQL store: URLs, errors, timeouts, and the pool."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from tests.equipment.mysql_server import PASSWORD, MysqlServer, new_server, shared_mysql

from detent.clock import monotonic
from detent.errors import StoreMismatch, StoreUnavailable, UsageError
from detent.stores.engine.unit import Conflict
from detent.stores.mysql import link
from detent.stores.mysql.store import MysqlStore
from detent.stores.mysql.url import read_url
from detent.stores.registry import open_store
from detent.testing.stores.fixtures import Asker, fire


@pytest.fixture
def server() -> MysqlServer:
    return shared_mysql()


@pytest.fixture
def store(server: MysqlServer) -> Iterator[MysqlStore]:
    with closing(MysqlStore(server.url(server.new_database()))) as one:
        yield one


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://me:s3cret@host", "it names no database"),
        ("mysql://me:s3cret@host/", "it names no database"),
        ("mysql://me:s3@cret@host/db", "it is no URL of a MySQL database"),
        ("mysql://me:s3cret@host:port/db", "it is no URL of a MySQL database"),
        ("mysql://me:s3cret@host/db?pool_size=0", "pool_size is"),
        ("mysql://me:s3cret@host/db?password=s3cret", 'unknown parameter "password"'),
    ],
)
def test_a_bad_url_is_refused_without_its_password(url: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        open_store(url)
    assert "s3" not in str(refused.value).replace("mysql", "")


def test_a_url_is_read() -> None:
    address = read_url("mariadb://me:p%40ss@host:3307/shop?pool_size=3&ssl_ca=/ca.pem")
    assert address.name == '"mysql://host:3307/shop"'
    assert address.pool_size == 3
    assert address.arguments == {
        "host": "host", "port": 3307, "database": "shop", "user": "me", "password": "p@ss",
        "ssl_ca": "/ca.pem",
    }  # fmt: skip


def test_a_key_prefix_is_refused(server: MysqlServer) -> None:
    with pytest.raises(UsageError, match="name it in the URL"):
        open_store(server.url("mysql"), "shop")


def test_a_wrong_password_is_a_mismatch_and_is_not_shown(server: MysqlServer) -> None:
    store = MysqlStore(server.url("mysql").replace(PASSWORD, "wr0ng-word"))
    with pytest.raises(StoreMismatch, match="the user or the password is wrong") as refused:
        store.look("a")
    assert "wr0ng" not in str(refused.value)


def test_a_missing_database_is_a_mismatch(server: MysqlServer) -> None:
    with pytest.raises(StoreMismatch, match="there is no such database: CREATE DATABASE"):
        MysqlStore(server.url("nowhere")).look("a")


def test_a_database_of_another_program_is_refused(server: MysqlServer) -> None:
    database = server.new_database()
    server.sql("CREATE TABLE jobs (id INTEGER)", database=database)
    with pytest.raises(StoreMismatch, match="belongs to another program"):
        MysqlStore(server.url(database)).look("a")


def test_a_newer_schema_is_refused(server: MysqlServer, store: MysqlStore) -> None:
    store.look("a")
    database = store.driver.links.address.arguments["database"]  # type: ignore[attr-defined]
    server.sql("UPDATE detent_version SET number = 9, oldest = 9", database=database)
    store.close()
    with pytest.raises(StoreMismatch, match="schema 9, and this version of detent supports at most 1"):
        store.look("a")


def test_a_port_without_a_server_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable, match="did not answer"):
        MysqlStore("mysql://me:s3cret@127.0.0.1:1/db").look("a")


def test_a_server_that_never_answers_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "CONNECT_S", 1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        began = monotonic()
        with pytest.raises(StoreUnavailable, match="did not answer"):
            MysqlStore(f"mysql://me@127.0.0.1:{silent.getsockname()[1]}/db").look("a")
        assert monotonic() - began < 10


def test_a_stopped_server_times_out_and_a_restarted_one_is_used_again() -> None:
    server = new_server("--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=64M")
    try:
        server.make()
        server.start()
        with closing(MysqlStore(server.url(server.new_database()))) as store:
            store.put([fire("a.b@1")])
            epoch = store.look("a").epoch
            os.kill(server.pid, signal.SIGSTOP)
            with pytest.raises(StoreUnavailable, match="did not answer"):
                store.put([fire("a.b@2")])
            os.kill(server.pid, signal.SIGCONT)
            server.kill()
            server.start()
            assert store.put([fire("a.b@3")]) == [True], "it does not use the connections of before"
            assert store.look("a").epoch == epoch, "a restart loses nothing"
    finally:
        server.remove()


def test_a_unit_of_work_that_stands_still_holds_no_lock_for_long(
    server: MysqlServer, store: MysqlStore
) -> None:
    """As that of a node that was stopped: the server ends its transaction."""
    store.put([fire("a.b@1")])
    with closing(MysqlStore(_url(store, server))) as other:
        unit = store.driver.hand("a")
        unit.__enter__()
        Asker(store).claim_one()  # in the open unit
        assert Asker(other, "n2").claim() == [], "it passes over what is locked"
        threading.Event().wait(link.IDLE_S + 1)
        assert Asker(other, "n3").claim_one().fire.key == "a.b@1"
        with pytest.raises((StoreUnavailable, Conflict)):  # as the commit was sent, or another statement
            unit.__exit__(None, None, None)


def test_a_unit_of_work_that_the_server_ended_is_repeated(
    store: MysqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a node on a busy machine, which pauses between its look and its commit."""
    store.put([fire("a.b@1")])
    commit, paused = store.driver.commit, threading.Event()

    def commit_late(*args: Any) -> Any:
        if not paused.is_set():
            paused.set()
            server_closes(store)
        return commit(*args)

    monkeypatch.setattr(store.driver, "commit", commit_late)
    assert Asker(store).claim_one().fire.key == "a.b@1"
    assert paused.is_set()


def server_closes(store: MysqlStore) -> None:
    """End the session of this thread's transaction."""
    open_link = store.driver._mine.open.session.link  # type: ignore[attr-defined]
    with closing(store.driver.links.open()) as other:  # type: ignore[attr-defined]
        other.rows("KILL %s", (open_link.db.thread_id(),))


def _url(store: MysqlStore, server: MysqlServer) -> str:
    return server.url(store.driver.links.address.arguments["database"])  # type: ignore[attr-defined]


def test_a_text_that_is_too_long_is_refused_and_not_cut(store: MysqlStore) -> None:
    with pytest.raises(StoreUnavailable, match="Data too long"):
        store.put([fire("a.b@" + "x" * 600)])


def test_keys_differ_by_case_and_trailing_spaces(store: MysqlStore) -> None:
    assert (
        store.put([fire("a.b@x"), fire("a.b@X"), fire("a.b@x "), fire("a.b@ü"), fire("a.b@u")]) == [True] * 5
    )


def test_all_connections_busy_is_an_error_with_advice(server: MysqlServer) -> None:
    with closing(MysqlStore(server.url(server.new_database()) + "?pool_size=1")) as store:
        place = store.driver.links._place  # type: ignore[attr-defined]
        with place(1), pytest.raises(StoreUnavailable, match="raise pool_size"), place(1):
            pass
