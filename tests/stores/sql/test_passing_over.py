"""Two nodes ask a database server at the same time: one passes over what the other has locked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from tests.equipment.mysql_server import shared_mysql
from tests.equipment.postgres_server import new_name, shared_server

from detent.stores.engine.claiming import SOON_S
from detent.stores.engine.driver import Due
from detent.stores.engine.engine import Engine
from detent.stores.mysql.store import MysqlStore
from detent.stores.postgres.store import PostgresStore
from detent.testing.stores.fixtures import Asker, fire

MESSAGES = [fire(f"a.b@{number}", origin="push") for number in range(3)]


# On a busy machine the other call may take longer than a server lets a transaction pause.
UNLIMITED = {
    MysqlStore: "SET SESSION wait_timeout = 3600",
    PostgresStore: "SET LOCAL idle_in_transaction_session_timeout TO 0",
}


@pytest.fixture(params=["postgres", "mysql"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Engine, Engine]]:
    one, other = _pair(request.param)
    with closing(one), closing(other):
        yield one, other


def _pair(kind: str) -> tuple[Engine, Engine]:
    if kind == "mysql":
        mysql = shared_mysql()
        url = mysql.url(mysql.new_database())
        return MysqlStore(url), MysqlStore(url)
    url, schema = shared_server().url, new_name()
    return PostgresStore(url, schema), PostgresStore(url, schema)


@contextmanager
def reading(store: Engine, most: int) -> Iterator[None]:
    """Another node has read due messages, and has not decided about them yet."""
    with store.driver.hand("a"):
        store.driver.look("a", [Due("plain", MESSAGES[0].queue, most)])
        store.driver._mine.open.session.rows(UNLIMITED[type(store)])
        yield


@pytest.mark.parametrize("most", [1, 3])
def test_a_node_asks_again_soon_for_what_another_node_has_locked(
    pair: tuple[Engine, Engine], most: int
) -> None:
    """The other node may run only some of them, or die: then it wakes no node."""
    one, other = pair
    one.put(MESSAGES)
    node = Asker(other, "n2")
    with reading(one, most):
        grants = node.ask(limit=10)
    assert (len(grants.claims), grants.next_in_s) == (3 - most, SOON_S)
    assert len(node.claim(limit=10)) == most


def test_a_node_without_room_does_not_ask_for_what_another_node_has_locked(
    pair: tuple[Engine, Engine],
) -> None:
    one, other = pair
    one.put(MESSAGES)
    node = Asker(other, "n2")
    with reading(one, 2):
        grants = node.ask(limit=1)
    assert len(grants.claims) == 1 and grants.next_in_s > 1
