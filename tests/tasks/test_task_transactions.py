"""Messages in the user's own transaction: there with the data, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.stores.postgres_server import shared_server

from detent import Detent, UsageError
from detent.queueing.tasks import TaskFunction

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


def test_a_message_is_there_when_the_data_is(
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


def test_what_is_rolled_back_was_never_there(
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


def test_an_unique_one_that_is_there_is_not_put_twice(
    send: TaskFunction[..., Any, Any], connection: psycopg.Connection[Any]
) -> None:
    pushing = send.options(connection=connection, unique="order-8", delay=60)
    assert [pushing.push("a").is_new, pushing.push("a").is_new] == [True, False]
    connection.commit()
    assert send.app.queue("default").size().delayed == 1


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


def test_a_connection_of_the_other_kind_is_refused(
    send: TaskFunction[..., Any, Any], connection: psycopg.Connection[Any]
) -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match="no async connection: use push"):
            await send.options(connection=connection).apush("a")
        async with await psycopg.AsyncConnection.connect(shared_server().url) as other:
            with pytest.raises(UsageError, match="an async connection, which is for apush"):
                send.options(connection=other).push("a")

    asyncio.run(main())
