"""The stores of worker tests: a SQLite file, a Redis server and a PostgreSQL server."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.equipment.postgres_server import shared_server
from tests.equipment.redis_server import RedisServer
from tests.worker.worker_world import Works


@pytest.fixture(scope="session")
def worker_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.end()


def _url(kind: str, request: pytest.FixtureRequest, directory: Path) -> str:
    if kind == "sqlite":
        return f"sqlite:///{directory / 'shop.db'}"
    return str(shared_server().url if kind == "postgresql" else request.getfixturevalue("worker_redis").url)


def worked(directory: Path, url: str) -> Iterator[Works]:
    """Workers on a store, ended and checked at the end."""
    works = Works(directory, url, f"shop-{secrets.token_hex(4)}")
    try:
        yield works
    finally:
        works.clear_up()
    works.assert_quiet()


@pytest.fixture
def works(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Works]:
    """For tests that do not depend on the store."""
    yield from worked(tmp_path, _url("redis", request, tmp_path))


@pytest.fixture(params=["postgresql"])
def served_works(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Works]:
    """On a server: a process that is suspended within a transaction would hold the lock of the SQLite
    file.  Tests that do not depend on the store run on Redis."""
    yield from worked(tmp_path, _url(request.param, request, tmp_path))


@pytest.fixture(params=["sqlite"])
def any_works(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Works]:
    """On a file, or on the stores that a test names.  `check_store` and the races of processes check the
    calls of a worker on every store; the storm kills workers on both servers."""
    yield from worked(tmp_path, _url(request.param, request, tmp_path))
