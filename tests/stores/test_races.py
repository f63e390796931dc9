"""Eight processes on one store, and judges that find what goes wrong in a race."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from detent.stores.sqlite import SqliteStore
from detent.testing.races import (
    Launch,
    Opener,
    judge_launches,
    race_for_turns,
    race_to_plan,
    race_to_put,
    race_to_run,
)

OPENERS: dict[str, Opener] = {"sqlite": SqliteStore}
RACES = [race_to_put, race_to_run, race_to_plan, race_for_turns]


@pytest.mark.parametrize("race", RACES, ids=lambda race: race.__name__)
@pytest.mark.parametrize("store", OPENERS)
def test_of_eight_processes(race: Callable[[Opener, Path], None], store: str, tmp_path: Path) -> None:
    race(OPENERS[store], tmp_path / "race.db")
