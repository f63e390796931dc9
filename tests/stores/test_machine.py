"""Random sequences of calls give the same results on every store as on the in-memory store."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.equipment.mysql_server import shared_databases

from detent.model import Ask, Claim, Grants, Outcome
from detent.stores.memory.store import MemoryStore
from detent.stores.sqlite.store import SqliteStore
from detent.testing.stores.state_machine import Opener, check_against_memory

EXAMPLES = {"sqlite": 10, "mysql": 5}  # sequences of calls
CAMPAIGN = int(os.environ.get("DETENT_MACHINE_EXAMPLES", "0"))  # that many new sequences instead


def _sqlite(directory: Path) -> Opener:
    paths = (directory / f"{number}.db" for number in itertools.count())
    return lambda clock: SqliteStore(next(paths), clock.wall, clock.monotonic, lambda: "this boot")


def _mysql(_: Path) -> Opener:
    return shared_databases().open


OPENERS: dict[str, Callable[[Path], Opener]] = {"sqlite": _sqlite, "mysql": _mysql}


@pytest.mark.parametrize("name", OPENERS)
def test_a_store_behaves_like_the_in_memory_store(name: str, tmp_path: Path) -> None:
    opener = OPENERS[name](tmp_path)
    check_against_memory(opener, examples=CAMPAIGN or EXAMPLES[name], fixed=not CAMPAIGN)


# Stores that differ from the in-memory store in one thing each.


class HearsLateAsks(MemoryStore):
    def claim(self, ask: Ask) -> Grants:
        self.driver.state.asks.pop(ask.node, None)
        return super().claim(ask)


class RenewsInNameOnly(MemoryStore):
    def renew(self, claims: Sequence[Claim]) -> list[Outcome | None]:
        expires = {key: one.expires for key, one in self.driver.state.records.items()}
        answers = super().renew(claims)
        for key, one in self.driver.state.records.items():
            one.expires = expires[key]
        return answers


class KeepsLateHooks(MemoryStore):
    def __init__(self, *clocks: Callable[[], float]) -> None:
        super().__init__(*clocks)
        commit = self.driver.commit
        self.driver.commit = lambda app, expect, groups: commit(  # type: ignore[method-assign]
            app,
            expect,
            [one._replace(drops=[x for x in one.drops if x.version is not None]) for one in groups],
        )


class WakesNobody(MemoryStore):
    def __init__(self, *clocks: Callable[[], float]) -> None:
        super().__init__(*clocks)
        self.driver._unpark = lambda wake: False  # type: ignore[method-assign]


class LivesByTheWallClock(MemoryStore):
    def __init__(self, wall: Callable[[], float], steady: Callable[[], float]) -> None:
        super().__init__(wall, wall)


@pytest.mark.parametrize(
    "broken", [HearsLateAsks, RenewsInNameOnly, KeepsLateHooks, WakesNobody, LivesByTheWallClock]
)
def test_a_store_that_differs_is_detected(broken: type[MemoryStore]) -> None:
    with pytest.raises(AssertionError, match=f"the in-memory store says .*, {broken.__name__} says "):
        check_against_memory(
            lambda clock: broken(clock.wall, clock.monotonic), examples=200, fixed=True, shrink=False
        )
