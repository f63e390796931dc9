"""Memory of a real node after n fires and after 2n: within a tenth of each other.

The node is `detent run` with its SQLite store on disk.  The jobs are due every second, and do the cheapest
real work: calls in the node's own loop.  History is short, so that pruning takes part.  The fence of the app
counts the fires, because it grows by one with every claim.  The size of the database is shown but has no
limit: it includes everything since the last pruning.

The jobs have no lanes (`Allow`): the cost of judging a fire grows with its lane, and a job that is due every
second has two minutes of planned fires in it, so a node with lanes would fall behind.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

import noted
from node_process import NodeProcess, environment, manifest_of, memory_mb, node
from report import Bench, Budget, Cell, Effort, Result, Table, main

KEEP_FIRES = 10
ROOM = 200  # max_running
GROWTH = 1.1
JOBS_MAX = 500  # fires per second: fewer than a node can run, so that it never falls behind
SLOWEST = 10  # times as long as planned: then the node falls behind, and the run is void


class State(NamedTuple):
    """The node at one moment."""

    after: int  # fires to wait for
    fires: int  # fires at that moment
    node_mb: float
    warden_mb: float
    database_mb: float
    rows: int


def jobs_of(count: int) -> list[dict[str, Any]]:
    work = {"call": "noted:note_in_loop", "isolation": "loop", "policy": {"concurrency": "Allow"}}
    return [{"name": f"job-{i}", "schedule": "@every 1s", **work} for i in range(count)]


def look(process: NodeProcess, first: int, after: int) -> State:
    sizes = (process.directory / name for name in ("detent.db", "detent.db-wal"))
    return State(
        after=after,
        fires=_fence(process) - first,
        node_mb=memory_mb(process.pid),
        warden_mb=memory_mb(process.warden),
        database_mb=sum(path.stat().st_size for path in sizes if path.exists()) / 1e6,
        rows=process.count_fires(),
    )


def _fence(process: NodeProcess) -> int:
    return sum(number for (number,) in process.ask("SELECT number FROM fences"))


def states(n: int, jobs: int) -> list[State]:
    """Measure after n / 10, after n and after 2n fires."""
    manifest = manifest_of(jobs_of(jobs), keep_fires=KEEP_FIRES, max_running=ROOM)
    with node(manifest, environment(**{noted.VARIABLE: os.devnull})) as process:
        first = process.wait_for(lambda: _fence(process), "the first fire", 120.0) - 1
        return [_after(process, jobs, first, fires) for fires in (n // 10, n, 2 * n)]


def _after(process: NodeProcess, jobs: int, first: int, fires: int) -> State:
    patience_s = 60 + fires / jobs * SLOWEST
    process.wait_for(lambda: _has_made(process, first + fires), f"{fires} fires", patience_s)
    return look(process, first, fires)


def _has_made(process: NodeProcess, fence: int) -> bool:
    os.truncate(process.log, 0)  # keep the log of a million fires small
    return _fence(process) >= fence


def measure(effort: Effort) -> Result:
    jobs = min(effort.n, JOBS_MAX)
    start, half, whole = states(effort.n, jobs)
    rows: tuple[tuple[Cell, ...], ...] = tuple(tuple(state) for state in (start, half, whole))
    notes = (f"{jobs} jobs due every second: calls in the loop, Allow; {KEEP_FIRES} fires of a job are kept",)
    headings = ("after", "fires", "node MB", "warden MB", "database MB", "rows in it")
    growth = whole.node_mb / half.node_mb
    budget = Budget(f"memory after {2 * effort.n:,} ÷ after {effort.n:,} fires", growth, "×", floor=GROWTH)
    return Result((Table("Memory over many fires", headings, rows, notes),), (budget,))


BENCH = Bench("memory", {"tiny": Effort(10), "usual": Effort(20_000), "full": Effort(500_000)}, measure)

if __name__ == "__main__":
    sys.exit(main(BENCH, __doc__ or ""))
