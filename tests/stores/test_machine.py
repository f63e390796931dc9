"""Random sequences of calls give the same results on every store as on the in-memory store."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.equipment.mysql_server import shared_databases

from detent.model import Ask, Claim, Grants, Outcome
from detent.stores.sqlite.store import SqliteStore
from detent.testing.reference.store import ReferenceStore
from detent.testing.stores.state_machine import Opener, check_against_reference

EXAMPLES = {"memory": 3, "sqlite": 10, "mysql": 5}  # sequences of calls
CAMPAIGN = int(os.environ.get("DETENT_MACHINE_EXAMPLES", "0"))  # that many new sequences instead


def _memory(_: Path) -> Opener:
    return lambda clock: ReferenceStore(clock.wall, clock.monotonic)


def _sqlite(directory: Path) -> Opener:
    paths = (directory / f"{number}.db" for number in itertools.count())
    return lambda clock: SqliteStore(next(paths), clock.wall, clock.monotonic, lambda: "this boot")


def _mysql(_: Path) -> Opener:
    return shared_databases().open


OPENERS: dict[str, Callable[[Path], Opener]] = {"memory": _memory, "sqlite": _sqlite, "mysql": _mysql}


@pytest.mark.parametrize("name", OPENERS)
def test_a_store_behaves_like_the_in_memory_store(name: str, tmp_path: Path) -> None:
    opener = OPENERS[name](tmp_path)
    check_against_reference(opener, examples=CAMPAIGN or EXAMPLES[name], fixed=not CAMPAIGN)


# Stores that differ from the reference in one thing each.


class HearsLateAsks(ReferenceStore):
    def claim(self, ask: Ask) -> Grants:
        self._asks.pop(ask.node, None)
        return super().claim(ask)


class RenewsInNameOnly(ReferenceStore):
    def _renew(self, claim: Claim) -> Outcome | None:
        entry = self._entries.get(claim.fire.key)
        expires = entry.expires if entry else 0.0
        answer = super()._renew(claim)
        if entry:
            entry.expires = expires
        return answer


class KeepsLateHooks(ReferenceStore):
    def __init__(self, *clocks: Callable[[], float]) -> None:
        super().__init__(*clocks)
        self._index.drop_late_hooks = lambda fire: None  # type: ignore[method-assign]


class LivesByTheWallClock(ReferenceStore):
    def _now(self) -> float:
        self._monotonic = self._wall
        return super()._now()


@pytest.mark.parametrize("broken", [HearsLateAsks, RenewsInNameOnly, KeepsLateHooks, LivesByTheWallClock])
def test_a_store_that_differs_is_detected(broken: type[ReferenceStore]) -> None:
    with pytest.raises(AssertionError, match=f"the reference says .*, {broken.__name__} says "):
        check_against_reference(
            lambda clock: broken(clock.wall, clock.monotonic), examples=200, fixed=True, shrink=False
        )
