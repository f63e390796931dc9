"""A rule that changes in `detent.rules` changes in every store: no driver has a copy of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from tests.equipment.mysql_server import shared_mysql
from tests.equipment.postgres_server import new_name, shared_server
from tests.equipment.redis_server import RedisServer

from detent.rules import lanes
from detent.rules.outcomes import lane_awaited
from detent.stores.engine.engine import Engine
from detent.stores.memory.store import MemoryStore
from detent.stores.mysql.store import MysqlStore
from detent.stores.postgres.store import PostgresStore
from detent.stores.redis.store import RedisStore
from detent.stores.sqlite.store import SqliteStore
from detent.testing.stores.fixtures import Asker, dispositions, finish, fire

OPENERS: dict[str, Callable[[Path], Engine]] = {
    "memory": lambda directory: MemoryStore(),
    "sqlite": lambda directory: SqliteStore(directory / "store.db"),
    "postgres": lambda directory: PostgresStore(shared_server().url, new_name()),
    "mysql": lambda directory: MysqlStore(shared_mysql().url(shared_mysql().new_database())),
}


@pytest.fixture(params=(*OPENERS, "redis"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with ExitStack() as left:
        if request.param == "redis":
            server = RedisServer(tmp_path)
            left.callback(server.end)
            yield left.enter_context(closing(RedisStore(server.url)))
        else:
            yield left.enter_context(closing(OPENERS[request.param](tmp_path)))


def test_queue_lets_as_many_fires_wait_as_the_rule_says(
    store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "WAITING_MAX", 2)
    node = Asker(store)
    store.put([fire("a.b@0", "Queue")])
    holder = node.claim_one()
    for waiting in ("a.b@1", "a.b@2"):
        store.put([fire(waiting, "Queue")])
        assert node.claim() == []
    store.put([fire("a.b@3", "Queue")])
    assert dispositions(node.claim()) == {"a.b@3": lane_awaited("a.b@1")}
    for following in ("a.b@1", "a.b@2"):
        finish(store, holder)
        holder = node.claim_one()
        assert holder.fire.key == following
