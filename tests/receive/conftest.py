"""The stores of the receipts tests: a file, a Redis and a PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.equipment.postgres_server import shared_server
from tests.equipment.redis_server import RedisServer


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server.url
    server.end()


@pytest.fixture(params=["sqlite", "redis", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a place for receipts, in each store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'receipts.db'}"
    return str(request.getfixturevalue("redis_url")) if request.param == "redis" else shared_server().url
