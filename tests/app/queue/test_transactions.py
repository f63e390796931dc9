"""Messages in the user's own transaction: stored with the data, or not at all."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy
import sqlalchemy.orm
from tests.equipment.postgres_server import shared_server

from detent import Detent, ResultUnknown, UsageError
from detent.app.queue.tasks import TaskFunction

NAME = "shop-transactions"


@pytest.fixture
def send() -> TaskFunction[..., Any, Any]:
    app = Detent(NAME, store=shared_server().url, signing=("raw:secret",))
    made = app.task(name="send", keep_result=True)(lambda to: to)
    app.queue("default").purge(pending=True, dead=True)
    return made


@pytest.fixture
def connection() -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(shared_server().url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS orders (id int)")
        connection.execute("DELETE FROM orders")
        connection.commit()
        yield connection


def orders() -> int:
    with psycopg.connect(shared_server().url) as other:
        (count,) = other.execute("SELECT count(*) FROM orders").fetchone()  # type: ignore[misc]
        return int(count)


def test_a_message_is_stored_with_the_data(
    send: TaskFunction[..., Any, Any], connection: psycopg.Connection[Any]
) -> None:
    queue = send.app.queue("default")
    connection.execute("INSERT INTO orders VALUES (7)")
    handle = send.options(connection=connection).push("a")
    assert handle.is_new
    assert (queue.size().pending, handle.state(), orders()) == (0, "unknown", 0)
    assert send.app.drain() == []
    connection.commit()
    assert (queue.size().pending, orders()) == (1, 1)
    assert [one.result for one in send.app.drain()] == ["a"]


def test_a_rolled_back_message_is_not_stored(
    send: TaskFunction[..., Any, Any], connection: psycopg.Connection[Any]
) -> None:
    connection.execute("INSERT INTO orders VALUES (7)")
    (handle, _) = send.options(connection=connection, unique="order-7").push_many([("a",), ("b",)])
    connection.rollback()
    assert (send.app.queue("default").size().pending, handle.state(), orders()) == (0, "unknown", 0)
    assert send.options(unique="order-7").push("c").is_new
    assert [one.result for one in send.app.drain()] == ["c"]


def test_only_a_savepoint_that_is_kept_counts(
    send: TaskFunction[..., Any, Any], connection: psycopg.Connection[Any]
) -> None:
    with connection.transaction():
        send.options(connection=connection).push("kept")
        with pytest.raises(ValueError), connection.transaction():
            send.options(connection=connection).push("not kept")
            raise ValueError
    connection.commit()
    assert [one.result for one in send.app.drain()] == ["kept"]


def test_a_unique_message_is_not_stored_twice(
    send: TaskFunction[..., Any, Any], connection: psycopg.Connection[Any]
) -> None:
    pushing = send.options(connection=connection, unique="order-8", delay=60)
    assert [pushing.push("a").is_new, pushing.push("a").is_new] == [True, False]
    connection.commit()
    assert send.app.queue("default").size().delayed == 1


def test_a_result_requested_before_the_commit_has_its_own_error(
    send: TaskFunction[..., Any, Any], connection: psycopg.Connection[Any]
) -> None:
    handle = send.options(connection=connection).push("a")
    with pytest.raises(ResultUnknown, match="is not committed yet, or was rolled back"):
        handle.get(0)
    connection.commit()
    send.app.drain()
    assert handle.get(0) == "a"


@pytest.mark.parametrize("begins", ["explicitly", "by itself", "with a statement"])
def test_a_sqlalchemy_connection_pushes_in_its_transaction(
    send: TaskFunction[..., Any, Any], begins: str
) -> None:
    server = shared_server()
    engine = sqlalchemy.create_engine(
        f"postgresql+psycopg://postgres@/postgres?host={server.directory}&port={server.port}"
    )
    for ends, found in (("rollback", []), ("commit", ["a"])):
        with engine.connect() as connection:
            if begins == "explicitly":
                connection.begin()
            elif begins == "with a statement":
                connection.execute(sqlalchemy.text("SELECT 1"))
            send.options(connection=connection).push("a")
            assert send.app.drain() == []
            getattr(connection, ends)()
        assert [one.result for one in send.app.drain()] == found
    engine.dispose()


def test_djangos_connection_pushes_in_its_transaction(send: TaskFunction[..., Any, Any]) -> None:
    """In a process of its own: Django is set up once."""
    script = f"""
        import django
        from django.conf import settings
        from detent import Detent
        server = {{"ENGINE": "django.db.backends.postgresql", "NAME": "postgres", "USER": "postgres"}}
        server |= {{"HOST": {str(shared_server().directory)!r}, "PORT": {shared_server().port}}}
        settings.configure(DATABASES={{"default": server}})
        django.setup()
        from django.db import connection, transaction
        app = Detent({NAME!r}, store={shared_server().url!r}, signing=("raw:secret",))
        send = app.task(name="send", keep_result=True)(lambda to: to)
        with transaction.atomic():
            send.options(connection=connection).push("a")
            print(app.drain())
        try:
            with transaction.atomic():
                send.options(connection=connection).push("b")
                raise ValueError
        except ValueError:
            pass
        print([one.result for one in app.drain()])
    """
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert result.stdout == "[]\n['a']\n", result.stderr


def test_a_connection_of_another_type_is_refused(send: TaskFunction[..., Any, Any]) -> None:
    with pytest.raises(UsageError, match=r"of type sqlite3\.Connection, .* give a connection of psycopg 3"):
        send.options(connection=sqlite3.connect(":memory:")).push("a")
    with pytest.raises(
        UsageError, match=r"of type sqlalchemy\.orm\.session\.Session, .* session\.connection\(\)"
    ):
        send.options(connection=sqlalchemy.orm.Session()).push("a")


def test_none_is_no_connection(send: TaskFunction[..., Any, Any]) -> None:
    with pytest.raises(UsageError, match="connection: it is None, so the message would not be part of your"):
        send.options(connection=None)


def test_async_connections_push_by_apush(send: TaskFunction[..., Any, Any]) -> None:
    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(shared_server().url) as connection:
            handle = await send.options(connection=connection).apush("a")
            assert handle.state() == "unknown"
            await connection.commit()
            assert handle.state() == "pending"
            await send.options(connection=connection).apush_many([("b",), ("c",)])
            await connection.rollback()

    asyncio.run(main())
    assert [one.result for one in send.app.drain()] == ["a"]


def test_a_sync_connection_for_apush_and_an_async_one_for_push_are_refused(
    send: TaskFunction[..., Any, Any], connection: psycopg.Connection[Any]
) -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match="not an async connection: use push"):
            await send.options(connection=connection).apush("a")
        async with await psycopg.AsyncConnection.connect(shared_server().url) as other:
            with pytest.raises(UsageError, match="an async connection: use apush"):
                send.options(connection=other).push("a")

    asyncio.run(main())
