"""Commands that are all due at one instant: a real node beside raw posix_spawn and APScheduler.

Each runs the same program, without a shell and without output: one instant, one fire per job.  detent is
`detent run` with its SQLite store on disk.  Its time is from the due instant until the store has recorded the
last end; no command may be lost or run twice.  It has `node.max_running: 1000`, so that many are claimed and
recorded together, while few of them run at the same time.

posix_spawn is the cost of the operating system itself, one at a time and up to 32 at a time.  It starts the
same program and waits for it, without schedules, records, output, environments, cgroups or locks.  All
programs run in each round: a busy machine slows all of them, so compare ratios, and CPU.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

import peers
from node_process import NodeProcess, at_one_instant, manifest_of, node, spent
from report import Bench, Budget, Cell, Effort, Result, Table, main, median, quantile

IN_FLIGHT = 32  # at a time, for the other programs
ROOM = 1000  # max_running
FLOOR = 1.2
ALONE, TOGETHER = "posix_spawn, 1 at a time", f"posix_spawn, {IN_FLIGHT} at a time"
HEADINGS = (
    "program", "s", "ms each", "ours ÷ it", "late p50 s", "late p99 s", "lost", "twice", "CPU ms each",
)  # fmt: skip
OVER = "SELECT a.started, a.ended, a.took, a.outcome FROM attempts a JOIN fires f ON f.id = a.fire"


class Run(NamedTuple):
    """The result of one program in one round."""

    took_s: float  # from the due instant to the last end
    late_s: list[float]  # of each start
    ran: int
    cpu_s: list[float]  # of the parent, and of the commands
    twice: int = 0


def run_ours(n: int, due: int) -> Run:
    at = datetime.fromtimestamp(due, UTC).isoformat()
    jobs = [{"name": f"job-{i}", "at": at, "command": [peers.TRUE]} for i in range(n)]
    with node(manifest_of(jobs, max_running=ROOM)) as process:
        process.wait_brink(n, due)
        before = _spent(process)
        process.wait_over(due)
        return _read(process, due, [now - then for now, then in zip(_spent(process), before, strict=True)])


def _spent(process: NodeProcess) -> tuple[float, float, float]:
    """CPU of the node, of its warden, and of the commands."""
    warden = spent(process.warden)
    return spent(process.pid).own_s, warden.own_s, warden.children_s


def _read(process: NodeProcess, due: float, cpu_s: list[float]) -> Run:
    """Read the result from the history.  A start is the recorded end minus the duration."""
    rows = process.ask(OVER)
    ran = sum(json.loads(outcome)[0] == "succeeded" for *_, outcome in rows)
    started = [one["fire"] for one in process.events("fire-started")]
    late = sorted(ended - took - due for _, ended, took, _ in rows)
    return Run(max(row[1] for row in rows) - due, late, ran, cpu_s, len(started) - len(set(started)))


def run_peer(*words: object) -> Run:
    found = peers.ask_peer(*words)
    return Run(found["took_s"], found["late_s"], found["ran"], found["cpu_s"])


def turns_of(n: int) -> dict[str, Callable[[], Run]]:
    turns: dict[str, Callable[[], Run]] = {
        "detent": partial(at_one_instant, n, partial(run_ours, n)),
        ALONE: partial(run_peer, "spawn", n, 1),
        TOGETHER: partial(run_peer, "spawn", n, IN_FLIGHT),
    }
    if peers.is_there("apscheduler"):
        turns[f"APScheduler, {IN_FLIGHT} threads"] = partial(
            run_peer, "apscheduler", n, "command", IN_FLIGHT, 3600
        )
    return turns


def compare(effort: Effort) -> Result:
    turns, load = turns_of(effort.n), round(os.getloadavg()[0], 1)
    runs: dict[str, list[Run]] = {name: [] for name in turns}
    for _ in range(effort.rounds):
        for name, turn in turns.items():
            runs[name].append(turn())
    took = {name: median(run.took_s for run in found) for name, found in runs.items()}
    notes = [
        f"{effort.n} commands, medians of {effort.rounds} rounds; the machine's load was {load}",
        "CPU: detent's node + its warden + the commands; a peer + the commands",
    ]
    if not peers.is_there("apscheduler"):
        notes.append(peers.missing_note("apscheduler"))
    rows = tuple(_row(name, found, took, effort.n) for name, found in runs.items())
    table = Table("Commands due at one instant", HEADINGS, rows, tuple(notes))
    return Result((table,), _budgets(runs["detent"], took, effort.n))


def _budgets(ours: list[Run], took: dict[str, float], n: int) -> tuple[Budget, ...]:
    return (
        Budget("commands lost", max(n - run.ran for run in ours), "", floor=0),
        Budget("commands run twice", max(run.twice for run in ours), "", floor=0),
        *(
            Budget(f"commands ÷ {peer}", took["detent"] / took[peer], "×", FLOOR)
            for peer in (ALONE, TOGETHER)
        ),
    )


def _row(name: str, runs: list[Run], took: dict[str, float], n: int) -> tuple[Cell, ...]:
    cpu = " + ".join(
        f"{median(each) * 1000 / n:.2f}" for each in zip(*(run.cpu_s for run in runs), strict=True)
    )
    late = [median(quantile(run.late_s, share) for run in runs) for share in (0.5, 0.99)]
    lost, twice = max(n - run.ran for run in runs), max(run.twice for run in runs)
    return (name, took[name], took[name] * 1000 / n, took["detent"] / took[name], *late, lost, twice, cpu)


BENCH = Bench(
    "commands", {"tiny": Effort(20, 1), "usual": Effort(2000, 3), "full": Effort(10_000, 3)}, compare
)

if __name__ == "__main__":
    sys.exit(main(BENCH, __doc__ or ""))
