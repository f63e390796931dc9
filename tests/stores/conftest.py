"""What the tests of the PostgreSQL store share: a store whose clock they move."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.stores.postgres_server import ClockedStore, shared_schemas

from detent.testing.store_checks_world import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def clocked(clock: FakeClock) -> Iterator[ClockedStore]:
    schemas = shared_schemas()
    one = schemas.open(clock)
    yield one
    schemas.give_back(one)
