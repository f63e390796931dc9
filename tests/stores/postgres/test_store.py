"""The PostgreSQL store passes the shared suite, the state machine and the races, on a real server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.equipment.postgres_server import ClockedStore, Schemas, open_for, shared_schemas, shared_server

from detent.stores.base import Store
from detent.testing.check_store import CHECKS, Check, FakeClock, World, run_check
from detent.testing.stores.races import Opener, race_to_plan, race_to_put, race_to_run
from detent.testing.stores.state_machine import check_against_memory

CAMPAIGN = int(os.environ.get("DETENT_MACHINE_EXAMPLES", "0"))  # that many new sequences of calls instead
EXAMPLES = 5
RACES = [race_to_put, race_to_run, race_to_plan]  # a claim passes over a locked lane


class Clocked:
    """Stores with a fake clock, whose schemas are returned at the end."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas, self.clock = schemas, FakeClock()
        self._opened: dict[str, ClockedStore] = {}

    def open(self, clock: FakeClock | None = None) -> ClockedStore:
        return self._keep(self._schemas.open(clock or self.clock))

    def reopen(self, store: Store) -> Store:
        assert isinstance(store, ClockedStore)
        store.close()
        return self._keep(ClockedStore(self._schemas.server.url, store.schema, store.clock))

    def restore(self, store: Store) -> Store:
        """Simulates another cluster with the same content."""
        assert isinstance(store, ClockedStore)
        self._schemas.server.sql(f"UPDATE {store.schema}.world SET system = 'another'")
        return self.reopen(store)

    def world(self) -> World:
        return World(
            opener=self.open,
            pass_time=self.clock.pass_time,
            stepper=self.clock.step_wall,
            reopener=self.reopen,
            forgetter=self.restore,
        )

    def close(self) -> None:
        self._schemas.give_back(*self._opened.values())

    def _keep(self, store: ClockedStore) -> ClockedStore:
        self._opened[store.schema] = store
        return store


@pytest.fixture
def clocked() -> Iterator[Clocked]:
    one = Clocked(shared_schemas())
    yield one
    one.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_every_store_keeps_the_rule(check: Check, clocked: Clocked) -> None:
    run_check(check, clocked.world())


def test_it_behaves_like_the_in_memory_store() -> None:
    schemas = shared_schemas()

    class Returning(ClockedStore):
        def close(self) -> None:
            super().close()
            schemas._free.append(self.schema)

    def open(clock: FakeClock) -> Store:
        store = schemas.open(clock)
        return Returning(schemas.server.url, store.schema, clock)

    check_against_memory(open, examples=CAMPAIGN or EXAMPLES, fixed=not CAMPAIGN)


@pytest.mark.parametrize("race", RACES, ids=lambda race: race.__name__)
def test_eight_processes_race(race: Callable[[Opener, Path], None], tmp_path: Path) -> None:
    race(partial(open_for, shared_server().url), tmp_path / "race.db")
