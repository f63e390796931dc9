"""Every store passes the shared suite, and the suite finds a store that breaks a rule."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from detent.model import Ask, Chart, Claim, Fire, Grants, Mark, Outcome, Plan, Report, Verdict
from detent.stores.base import Store
from detent.stores.entry import Entry
from detent.stores.memory import MemoryStore
from detent.stores.sqlite import SqliteStore
from detent.testing.check_store import CHECKS, Check, FakeClock, NotOffered, World, check_store, run_check


def _memory(_: Path) -> World:
    clock = FakeClock()

    def forget(store: Store) -> Store:
        assert isinstance(store, MemoryStore)
        store._new_era()
        return store

    return World(
        opener=lambda: MemoryStore(clock.wall, clock.monotonic),
        pass_time=clock.pass_time,
        stepper=clock.step_wall,
        reopener=lambda store: store,
        forgetter=forget,
    )


def _sqlite(directory: Path) -> World:
    clock, paths = FakeClock(), (directory / f"{number}.db" for number in itertools.count())
    opened: dict[int, Path] = {}

    def open_at(path: Path) -> Store:
        store = SqliteStore(path, clock.wall, clock.monotonic, lambda: "this boot")
        opened[id(store)] = path
        return store

    def reopen(store: Store) -> Store:
        store.close()
        return open_at(opened[id(store)])

    def restore(store: Store) -> Store:
        """The file is another one now, with the same content."""
        store.close()
        path = opened[id(store)]
        shutil.copy(path, path.with_suffix(".copy"))
        path.with_suffix(".copy").replace(path)
        return open_at(path)

    return World(
        opener=lambda: open_at(next(paths)),
        pass_time=clock.pass_time,
        stepper=clock.step_wall,
        reopener=reopen,
        forgetter=restore,
    )


WORLDS: dict[str, Callable[[Path], World]] = {"memory": _memory, "sqlite": _sqlite}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_of_every_store(check: Check, world: str, tmp_path: Path) -> None:
    run_check(check, WORLDS[world](tmp_path))
