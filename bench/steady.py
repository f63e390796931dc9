"""A thousand jobs that are due every second: how late one node calls their functions, on each store.

The functions are coroutines in the node's loop (`isolation: loop`) under the default policy.  Each writes
down when its fire was due and when it was called.  The first ten seconds of the node do not count.  An
instant whose function was not called counts as late until the end of the run.  The Redis server reports its
longest call since the node started.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import noted
from node_process import environment, manifest_of, node
from report import Bench, Budget, Effort, Result, Table, main, quantile
from servers import postgres_server, redis_server

ROOM = 100_000  # coroutines are so cheap that all may run at a time
WARM_UP_S = 10  # at most: a short run has a short warm-up
LAST_S = 5  # at most, for the last instants of the window
P99_MS, CALL_MS = 2000, 50
SLOW_US = 5000  # calls that the Redis server logs


class Served(NamedTuple):
    """A store for one run: its URL, and its longest call in milliseconds if the server reports it."""

    url: str
    longest_ms: Callable[[], float | None]


class Run(NamedTuple):
    late_s: list[float]  # of each instant in the window
    not_called: int
    longest_ms: float | None
    away: int  # how often the node reported that the store does not answer


@contextmanager
def on_sqlite() -> Iterator[Served]:
    yield Served("", lambda: None)


@contextmanager
def on_redis() -> Iterator[Served]:
    with redis_server("--slowlog-log-slower-than", str(SLOW_US), "--slowlog-max-len", "100000") as server:

        def longest_ms() -> float | None:
            calls = server.call("SLOWLOG", "GET", "100000")  # number, instant, microseconds, …
            return max((one[2] / 1000 for one in calls), default=SLOW_US / 1000)

        yield Served(server.url, longest_ms)


@contextmanager
def on_postgres() -> Iterator[Served]:
    with postgres_server() as server:
        yield Served(server.url, lambda: None)


STORES = {"SQLite": on_sqlite, "Redis": on_redis, "PostgreSQL": on_postgres}


def job_of(number: int) -> dict[str, Any]:
    return {"name": f"job-{number}", "schedule": "@every 1s", "call": "noted:note_due", "isolation": "loop"}


def run(n: int, seconds: float, served: Served) -> Run:
    manifest = manifest_of([job_of(number) for number in range(n)], max_running=ROOM)
    with tempfile.NamedTemporaryFile(prefix="detent-bench-") as notes:
        env = environment(**{noted.VARIABLE: notes.name})
        with node(manifest, env, served.url) as process:
            process.wait_started()
            since = int(time.time() + min(WARM_UP_S, seconds))
            until = since + int(seconds)
            time.sleep(until + min(LAST_S, seconds) - time.time())
            away = len(process.events("store-unavailable"))
        ended_at, called = time.time(), noted.read_dues(Path(notes.name))
    times = Counter(due for due, _ in called)
    missing_s = [ended_at - due for due in range(since + 1, until + 1) for _ in range(n - times[due])]
    late_s = [at - due for due, at in called if since < due <= until]
    return Run([*late_s, *missing_s], len(missing_s), served.longest_ms(), away)


def measure(effort: Effort) -> Result:
    found = {}
    for store in effort.on or STORES:
        with STORES[store]() as served:
            found[store] = run(effort.n, effort.seconds, served)
    late = ("late p50 ms", "late p99 ms")
    headings = ("store", "instants", *late, "not called", "longest call ms", "store away")
    rows = tuple(
        (
            store,
            len(one.late_s),
            quantile(one.late_s, 0.5) * 1000,
            quantile(one.late_s, 0.99) * 1000,
            one.not_called,
            one.longest_ms,
            one.away,
        )
        for store, one in found.items()
    )
    notes = (f"{effort.n:,} jobs, each due every second, for {effort.seconds:g} s on one node",)
    budgets = []
    for store, one in found.items():
        p99_ms = quantile(one.late_s, 0.99) * 1000
        budgets.append(Budget(f"{store}: {effort.n:,} a second, p99 late", p99_ms, "ms", floor=P99_MS))
        if one.longest_ms is not None:
            budgets.append(Budget(f"{store}: longest call", one.longest_ms, "ms", floor=CALL_MS))
    return Result((Table("Many jobs a second", headings, rows, notes),), tuple(budgets))


EFFORTS = {"tiny": Effort(5, seconds=1), "usual": Effort(1000, seconds=30), "full": Effort(1000, seconds=300)}
BENCH = Bench("steady", EFFORTS, measure)

if __name__ == "__main__":
    sys.exit(main(BENCH, __doc__ or ""))
