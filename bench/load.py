"""A hundred thousand jobs: how long a real node takes to load them, and what it costs to hold them.

The jobs come from a JSON file, and none is due within hours: first all with one yearly schedule, then each
with an ordinary one of its own.  Loading ends when every job is planned in the store; the CPU after that is
the cost of idling.  A job is planned again every quarter of an hour: `--full` waits for that; the shorter run
adds its share of the first planning, which is an upper bound.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from node_process import PATIENCE_S, NodeProcess, manifest_of, memory_mb, node, peak_mb, spent
from peers import TRUE
from report import Bench, Budget, Cell, Effort, Result, Table, main

PEAK_MB, IDLE_PERCENT = 300, 1.0
HEADINGS = (
    "schedules", "jobs", "started s", "planned s", "CPU s", "peak MB", "idle MB", "idle %", "again %",
)  # fmt: skip
SETTLE_S = 1.0  # between the last plan and the start of the idle measurement
REPLANNED_S = 960.0  # a job without instants is planned again after this time


class Loaded(NamedTuple):
    """The cost of a node with this many jobs."""

    started_s: float  # until it logs that it has started
    planned_s: float  # until every job is planned
    cpu_s: float  # of all that
    peak_mb: float
    idle_mb: float
    idle_percent: float  # of one core, measured
    again_percent: float  # of one core, computed: the cost of planning again


def yearly(i: int, hour: int) -> str:
    return "0 0 1 1 *" if hour != 0 else "0 12 1 7 *"


def ordinary(i: int, hour: int) -> str:
    """A daily, weekday, weekly, monthly or twice daily one, from four to twenty hours from now."""
    minute, due = i % 60, (hour + 4 + i // 60 % 16) % 24
    again = (hour + 4 + i // 7 % 16) % 24
    forms = (
        f"{minute} {due} * * *",
        f"{minute} {due} * * MON-FRI",
        f"{minute} {due} * * {i % 7}",
        f"{minute} {due} {i % 28 + 1} * *",
        f"{minute} {due},{again} * * *",
    )
    return forms[i % len(forms)]


def jobs_of(n: int, schedule: Callable[[int, int], str]) -> list[dict[str, Any]]:
    hour = datetime.now(UTC).hour
    return [{"name": f"job-{i}", "schedule": schedule(i, hour), "command": [TRUE]} for i in range(n)]


def load(n: int, schedule: Callable[[int, int], str], idle_s: float) -> Loaded:
    manifest = manifest_of(jobs_of(n, schedule))
    began = time.time()
    with node(manifest) as process:
        process.wait_started()
        started_s, loading_s = time.time() - began, spent(process.pid).own_s
        process.wait_for(lambda: _is_planned(process, n, began), "a plan for every job", PATIENCE_S)
        planned_s = time.time() - began
        cpu_s = spent(process.pid).own_s
        time.sleep(SETTLE_S)
        return Loaded(
            started_s=started_s,
            planned_s=planned_s,
            cpu_s=cpu_s,
            peak_mb=peak_mb(process.pid),
            idle_mb=memory_mb(process.pid),
            idle_percent=_idle_percent(process, idle_s),
            again_percent=(cpu_s - loading_s) / REPLANNED_S * 100 if idle_s < REPLANNED_S else 0.0,
        )


def _is_planned(process: NodeProcess, n: int, began: float) -> bool:
    """A job whose watermark is in the future has a plan."""
    rows = process.ask("SELECT count(*) FROM jobs WHERE at > ?", began + 60)
    return bool(rows) and rows[0][0] == n


def _idle_percent(process: NodeProcess, seconds: float) -> float:
    before, since = spent(process.pid).own_s + spent(process.warden).own_s, time.monotonic()
    time.sleep(seconds)
    after = spent(process.pid).own_s + spent(process.warden).own_s
    return (after - before) / (time.monotonic() - since) * 100


def measure(effort: Effort) -> Result:
    kinds = {"yearly, all alike": yearly, "ordinary, each its own": ordinary}
    found = {name: load(effort.n, schedule, effort.seconds) for name, schedule in kinds.items()}
    rows: tuple[tuple[Cell, ...], ...] = tuple((name, effort.n, *one) for name, one in found.items())
    notes = (
        f"idle: CPU of node and warden, of one core, over {effort.seconds:g} s",
        f"again: what planning all jobs every {REPLANNED_S:g} s adds to it, at most; 0 where it was seen",
    )
    budgets = [
        budget
        for name, one in found.items()
        for budget in (
            Budget(f"peak memory, {name}", one.peak_mb, "MB", floor=PEAK_MB),
            Budget(f"idle CPU, {name}", one.idle_percent + one.again_percent, "%", floor=IDLE_PERCENT),
        )
    ]
    return Result((Table("Jobs loaded", HEADINGS, rows, notes),), tuple(budgets))


BENCH = Bench(
    "load",
    {
        "tiny": Effort(50, seconds=0.5),
        "usual": Effort(100_000, seconds=30),
        "full": Effort(100_000, seconds=REPLANNED_S + 240),
    },
    measure,
)

if __name__ == "__main__":
    sys.exit(main(BENCH, __doc__ or ""))
