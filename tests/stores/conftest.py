"""What the tests of the PostgreSQL store share: a server, a store on it, and one whose clock they move."""

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
    """One in a schema of its own, by the server's clock."""
    with closing(PostgresStore(server.url, new_name())) as one:
        yield one
