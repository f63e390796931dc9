"""Races of eight processes on one store, and the checks that detect a violation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.equipment import mysql_server

from detent.stores.sqlite.store import SqliteStore
from detent.testing.stores.races import (
    Launch,
    Opener,
    judge_launches,
    race_for_turns,
    race_to_plan,
    race_to_put,
    race_to_run,
)

# They go to other processes, and so must a pickle of them.
OPENERS: dict[str, Callable[[], Opener]] = {
    "sqlite": lambda: SqliteStore,
    "mysql": lambda: partial(mysql_server.open_for, mysql_server.shared_mysql().url("mysql")),
}
RACES = [race_to_put, race_to_run, race_to_plan, race_for_turns]


@pytest.mark.parametrize("race", RACES, ids=lambda race: race.__name__)
@pytest.mark.parametrize("store", OPENERS)
def test_eight_processes_race(race: Callable[[Opener, Path], None], store: str, tmp_path: Path) -> None:
    race(OPENERS[store](), tmp_path / "race.db")


def launch(key: str, fence: int, start: float, end: float, disposition: str = "") -> Launch:
    return Launch(key, "a.b", fence, disposition, start, end)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (launch("a.b@2", 2, 1.5, 3.0), "a.b@2 started while a.b@1 held lane a.b"),
        (launch("a.b@2", 1, 2.5, 3.0), "a fence was given twice"),
        (launch("a.b@1", 2, 2.5, 3.0), "granted more than once"),
    ],
)
def test_a_failed_race_is_detected(second: Launch, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        judge_launches([launch("a.b@1", 1, 1.0, 2.0), second])


def test_a_correct_race_passes() -> None:
    first = launch("a.b@1", 1, 1.0, 2.0)
    free = launch("a.c@1", 4, 1.5, 9.0)._replace(lane="")
    judge_launches([launch("a.b@2", 2, 2.0, 3.0), first, launch("a.b@3", 3, 1.5, 9.0, "skipped"), free])
