"""Python functions that are all due at one instant: a real node's `call` work beside APScheduler 3.

The function writes down when it was called.  Lateness is that time minus the due instant; a function that is
never called was dropped.  detent is `detent run` with its SQLite store on disk, in each isolation.
APScheduler keeps its jobs in memory, once with its defaults and once with settings under which it drops
nothing.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import noted
import peers
from node_process import at_one_instant, environment, manifest_of, node
from report import Bench, Budget, Cell, Effort, Result, Table, main, median, quantile

from detent.manifest.check import check_manifest
from detent.manifest.problems import ManifestError

# max_running: coroutines are so cheap that all may run at a time; for the others, the best of a few values
# with 1,000 calls.  APScheduler's default is 10.
ROOM = {"loop": 100_000, "thread": 200, "process": 32}
FLOOR_MS, AIM_MS = 500, 100
FUNCTIONS = {"loop": "noted:note_in_loop", "thread": "noted:note", "process": "noted:note"}


class Run(NamedTuple):
    """The result of one program in one round."""

    late_s: list[float]
    settled_s: float  # from the due instant until the last end was recorded


def job_of(i: int, at: str, isolation: str) -> dict[str, Any]:
    return {"name": f"job-{i}", "at": at, "call": FUNCTIONS[isolation], "isolation": isolation}


def can_call() -> bool:
    """Whether this release runs `call` work."""
    try:
        check_manifest(manifest_of([job_of(0, "2100-01-01T00:00Z", "loop")]))
    except ManifestError:
        return False
    return True


def run_ours(n: int, isolation: str, due: int) -> Run:
    at = datetime.fromtimestamp(due, UTC).isoformat()
    jobs = [job_of(i, at, isolation) for i in range(n)]
    with tempfile.NamedTemporaryFile(prefix="detent-bench-") as notes:
        env = environment(**{noted.VARIABLE: notes.name})
        with node(manifest_of(jobs, max_running=ROOM[isolation]), env) as process:
            process.wait_brink(n, due)
            process.wait_over(due)
            ((last,),) = process.ask("SELECT max(over_at) FROM fires")
        return Run([instant - due for instant in noted.read_notes(Path(notes.name))], last - due)


def run_apscheduler(n: int, workers: int, misfire_grace_s: int) -> Run:
    found = peers.ask_peer("apscheduler", n, "call", workers, misfire_grace_s)
    return Run(found["late_s"], found["took_s"])


def turns_of(n: int) -> tuple[dict[str, Callable[[], Run]], list[str]]:
    turns: dict[str, Callable[[], Run]] = {}
    notes = []
    if can_call():
        for isolation in FUNCTIONS:
            turns[f"detent, {isolation}, {ROOM[isolation]} at a time"] = partial(
                at_one_instant, n, partial(run_ours, n, isolation)
            )
    else:
        notes.append("this release cannot run `call` work yet: detent was left out")
    if peers.is_there("apscheduler"):
        turns["APScheduler, as it comes"] = lambda: run_apscheduler(n, 10, 0)
        turns["APScheduler, nothing is a misfire"] = lambda: run_apscheduler(n, 10, 3600)
    else:
        notes.append(peers.missing_note("apscheduler"))
    return turns, notes


def compare(effort: Effort) -> Result:
    turns, notes = turns_of(effort.n)
    runs: dict[str, list[Run]] = {name: [] for name in turns}
    for _ in range(effort.rounds):
        for name, turn in turns.items():
            runs[name].append(turn())
    notes.insert(0, f"{effort.n} calls, medians of {effort.rounds} rounds")
    headings = ("program", "late p50 ms", "late p99 ms", "late max ms", "all settled ms", "dropped")
    rows = tuple(_row(name, found, effort.n) for name, found in runs.items())
    table = Table("Python calls due at one instant", headings, rows, tuple(notes))
    return Result((table,), tuple(_budgets(runs, effort.n)))


def _row(name: str, runs: list[Run], n: int) -> tuple[Cell, ...]:
    late = [_late_ms(runs, share) for share in (0.5, 0.99, 1.0)]
    return name, *late, median(run.settled_s for run in runs) * 1000, _dropped(runs, n)


def _late_ms(runs: list[Run], share: float) -> float | None:
    """Return None if no function was called."""
    late = [quantile(run.late_s, share) for run in runs if run.late_s]
    return median(late) * 1000 if late else None


def _dropped(runs: list[Run], n: int) -> int:
    return max(n - len(run.late_s) for run in runs)


def _budgets(runs: dict[str, list[Run]], n: int) -> list[Budget]:
    """The best isolation counts for lateness, and every one for dropped calls."""
    ours = {name: found for name, found in runs.items() if name.startswith("detent")}
    if not ours:
        return []
    dropped = max(abs(n - len(run.late_s)) for found in ours.values() for run in found)
    found = [(late, name) for name, one in ours.items() if (late := _late_ms(one, 0.99)) is not None]
    return [
        Budget("calls dropped, or made twice", dropped, "", floor=0),
        *(
            Budget(f"calls, p99 late: {name}", late, "ms", FLOOR_MS, AIM_MS)
            for late, name in sorted(found)[:1]
        ),
    ]


BENCH = Bench(
    "callables", {"tiny": Effort(20), "usual": Effort(10_000, 2), "full": Effort(10_000, 5)}, compare
)

if __name__ == "__main__":
    sys.exit(main(BENCH, __doc__ or ""))
