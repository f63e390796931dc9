"""The stores of the task tests: memory, a file, a Redis and a PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.equipment.postgres_server import shared_server
from tests.equipment.redis_server import RedisServer

from detent import Detent

STORES = ["memory", "sqlite", "redis", "postgresql"]
Make = Callable[..., Detent]


@pytest.fixture(scope="session")
def tasks_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.end()


@pytest.fixture(params=STORES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "sqlite":
            return f"sqlite:///{tmp_path / 'shop.db'}"
        case "redis":
            server = request.getfixturevalue("tasks_redis")
            server.call("FLUSHALL")
            return str(server.url)
        case "postgresql":
            return str(shared_server().url)
    return "memory:"


@pytest.fixture
def shop(store_url: str, request: pytest.FixtureRequest) -> Detent:
    """An app on each store, with signed messages and a name that no other test uses."""
    name = f"shop-{abs(hash((request.node.name, id(request)))) % 10**9}"
    return Detent(name, store=store_url, signing=("raw:a secret of the shop",))
