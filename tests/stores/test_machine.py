"""Random sequences of calls give the same answers on every store as on the reference."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from detent.model import Ask, Claim, Grants, Outcome
from detent.stores.memory import MemoryStore
from detent.stores.sqlite import SqliteStore
from detent.testing.machine import Opener, check_against_reference
from detent.testing.store_checks_world import FakeClock

EXAMPLES = 60
CAMPAIGN = int(os.environ.get("DETENT_MACHINE_EXAMPLES", "0"))  # that many new sequences instead


def _memory(_: Path) -> Opener:
    return lambda clock: MemoryStore(clock.wall, clock.monotonic)


def _sqlite(directory: Path) -> Opener:
    paths = (directory / f"{number}.db" for number in itertools.count())
    return lambda clock: SqliteStore(next(paths), clock.wall, clock.monotonic, lambda: "this boot")


OPENERS: dict[str, Callable[[Path], Opener]] = {"memory": _memory, "sqlite": _sqlite}


@pytest.mark.parametrize("name", OPENERS)
def test_a_store_answers_as_the_reference_does(name: str, tmp_path: Path) -> None:
    opener = OPENERS[name](tmp_path)
    check_against_reference(opener, examples=CAMPAIGN or EXAMPLES, fixed=not CAMPAIGN)
