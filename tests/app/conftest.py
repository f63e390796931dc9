"""The stores of the app tests: a file, a Redis and a PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.app.app_world import World
from tests.equipment.postgres_server import shared_server
from tests.equipment.redis_server import RedisServer


@pytest.fixture(scope="session")
def app_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.end()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, f"sqlite:///{tmp_path / 'shop.db'}")


@pytest.fixture(params=["sqlite", "redis", "postgresql"])
def any_world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A world on each store. Tests share the servers, and use different names of locks and apps."""
    if request.param == "sqlite":
        return World(tmp_path, f"sqlite:///{tmp_path / 'shop.db'}")
    if request.param == "redis":
        server = request.getfixturevalue("app_redis")
        server.call("FLUSHALL")
        return World(tmp_path, str(server.url))
    return World(tmp_path, shared_server().url)
