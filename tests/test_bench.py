"""Benchmarks of four kinds run in their smallest size, and report figures, other programs and limits.

Nothing here checks speed, only what must hold at any speed.  `make bench` runs all benchmarks.
"""

import json
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from bench.report import Budget, judge

BENCH = Path(__file__).parents[1] / "bench"
OURS = {  # a row of detent, and a budget: of rules alone, of nodes, of warm children, and of stores
    "next_instant": ("0 2 * * *", "0 2 * * *: cronsim ÷ detent"),
    "commands": ("detent", "commands lost"),
    "callables": ("detent, loop, 100000 at a time", "calls dropped, or made twice"),
    "fleet": ("PostgreSQL, 4 nodes", "Redis: calls for a fire, 4 nodes"),
}
AT_ANY_SPEED = (
    "commands lost",
    "commands run twice",
    "calls dropped, or made twice",
)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(BENCH / "all.py"), *words], capture_output=True, text=True, timeout=300
    )


@cache
def found_by(name: str) -> dict[str, Any]:
    ended = run(name, "--tiny", "-o", "json")
    lines = ended.stdout.splitlines()
    # 1: a limit is missed, which may happen in this size.  A crash has the same code, and prints nothing.
    assert ended.returncode in (0, 1) and len(lines) == 1, ended.stderr
    (line,) = lines
    found: dict[str, Any] = json.loads(line)
    return found


@pytest.mark.parametrize("name", OURS)
def test_a_benchmark_reports_figures_and_checks_limits(name: str) -> None:
    found = found_by(name)
    row, budget = OURS[name]
    rows = [next(iter(one.values())) for table in found["tables"] for one in table["rows"]]
    assert row in rows, rows
    judged = {one["what"]: one["judged"] for one in found["budgets"]}
    assert budget in judged
    assert {judged[what] for what in AT_ANY_SPEED if what in judged} <= {"reached"}


def test_a_program_that_is_not_installed_is_left_out_with_a_note() -> None:
    (table,) = found_by("next_instant")["tables"]
    for peer in ("apscheduler", "celery"):
        said = any(note.startswith(f"{peer} is not installed") for note in table["notes"])
        assert said == (find_spec(peer) is None)
        assert said == all(row[peer] is None for row in table["rows"])


@pytest.mark.parametrize(
    ("value", "more_is_better", "floor", "aim", "judged"),
    [
        (2.0, False, 1.0, None, "floor missed, 2.00 × away"),
        (1.0, False, 1.0, None, "reached"),
        (0.8, False, 1.0, 0.4, "floor reached; aim 2.00 × away"),
        (0.4, False, 1.0, 0.4, "aim reached"),
        (2.0, False, None, 0.5, "aim 4.00 × away"),
        (4.0, True, 5.0, None, "floor missed, 1.25 × away"),
        (5.0, True, 5.0, 10.0, "floor reached; aim 2.00 × away"),
        (3.0, False, 0.0, None, "floor missed, 3 too many"),
    ],
)
def test_a_budget_is_reached_or_missed_by_a_factor(
    value: float, more_is_better: bool, floor: float | None, aim: float | None, judged: str
) -> None:
    assert judge(Budget("it", value, "×", floor, aim, more_is_better)) == judged


def test_an_unknown_benchmark_is_refused_with_the_known_names() -> None:
    ended = run("speed")
    assert ended.returncode == 2
    assert all(name in ended.stderr for name in OURS)
