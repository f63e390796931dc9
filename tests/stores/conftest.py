"""Fixtures of the PostgreSQL store: a server, a store on it, and a store with a clock that tests move."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.equipment.postgres_server import ClockedStore, Server, new_name, shared_schemas, shared_server

from detent.stores.postgres.store import PostgresStore
from detent.testing.stores.fixtures import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def clocked(clock: FakeClock) -> Iterator[ClockedStore]:
    schemas = shared_schemas()
    one = schemas.open(clock)
    yield one
    schemas.give_back(one)


@pytest.fixture
def server() -> Server:
    return shared_server()


@pytest.fixture
def store(server: Server) -> Iterator[PostgresStore]:
    """A store in its own schema, with the server's clock."""
    name = new_name()
    with closing(PostgresStore(f"{server.url}&application_name={name}", name)) as one:
        yield one
