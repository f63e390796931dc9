"""The store calls of a dashboard, on a store with many fires: how long each takes.

A store has a day of fires of 500 jobs, some thousand planned ahead and some running.  They are inserted as
records, without being run.  A figure is the quickest of some calls; the slowest depends on what else the
machine does.  The Redis server reports its longest call.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from report import Bench, Budget, Cell, Effort, Result, Table, main
from servers import RedisServer, Server, postgres_server, redis_server

from detent import clock
from detent.clock import instant
from detent.model import Fire, Outcome, Query
from detent.rules.tallies import group_of
from detent.stores.engine.driver import Write
from detent.stores.engine.engine import Engine
from detent.stores.engine.record import Record
from detent.stores.engine.unit import Conflict, Unit
from detent.stores.postgres.store import PostgresStore
from detent.stores.redis.requests import tally_field, tally_name
from detent.stores.redis.store import RedisStore
from detent.stores.sql.columns import COLUMNS
from detent.stores.sqlite.store import SqliteStore

APP, JOBS, DAY_S = "bench", 500, 86_400.0
JOB_NAMES = [f"{APP}.job-{number}" for number in range(JOBS)]
PLANNED, RUNNING = 20_000, 50
SHIFTED = ("due", "run_at", "look_at", "ran_at", "over_at")  # columns of a copied fire
BATCH, COMMIT = 5_000, 500  # records that SQL copies, or that are made at once; records of one commit
TRIES = 20  # of a commit
FAILED_EVERY = 100
CALL_MS, NEWEST_MS = 50, 100  # the budgets of a call, and of the newest fires of 500 jobs
REPEATS = 7
SLOW_US = 1000  # calls that the Redis server logs


class Served(NamedTuple):
    store: Engine
    run_sql: Callable[[str], object] | None  # None: the store has no SQL
    begin: Callable[
        [list[Record]], object
    ]  # before the first measured call, with the newest finished records
    longest_ms: Callable[[], float | None]


@contextmanager
def on_sqlite() -> Iterator[Served]:
    with tempfile.TemporaryDirectory(prefix="detent-bench-") as folder:
        path = Path(folder) / "store.db"
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            yield Served(SqliteStore(path), db.execute, lambda _: None, lambda: None)


@contextmanager
def on_redis() -> Iterator[Served]:
    settings = ("--slowlog-max-len", "1000", "--slowlog-log-slower-than", str(SLOW_US))
    with redis_server("--appendonly", "no", *settings) as server:
        yield Served(
            RedisStore(server.url), None, partial(_begin_on_redis, server), partial(_longest, server)
        )


@contextmanager
def on_postgres() -> Iterator[Served]:
    with postgres_server("fsync=off", "synchronous_commit=off") as server:
        store = PostgresStore(server.url, "detent")
        run = partial(_on_schema, server)
        yield Served(store, run, lambda _: server.sql("ANALYZE detent.fires"), lambda: None)


def _on_schema(server: Server, statement: str) -> object:
    return server.sql(f"SET search_path TO detent; {statement}")


STORES = {"SQLite": on_sqlite, "Redis": on_redis, "PostgreSQL": on_postgres}


def _begin_on_redis(server: RedisServer, newest: list[Record]) -> None:
    """Add the numbers that the commits of real finishes would have added."""
    counts = Counter((tally_name(one), tally_field(group_of(one))) for one in newest)
    for (name, field), number in counts.items():
        server.call("HINCRBY", f"{{detent:{APP}}}:{name}", field, number)
    server.call("SLOWLOG", "RESET")


def _longest(server: RedisServer) -> float:
    calls = server.call("SLOWLOG", "GET", "1000")
    return float(max((one[2] / 1000 for one in calls), default=SLOW_US / 1000))


# Filling.


def fill(served: Served, n: int) -> None:
    store, now = served.store, clock.wall()
    store.set_jobs(APP, store.look(APP).generation, dict.fromkeys(JOB_NAMES, "1"))
    newest = [ended_record(n - number, now - number * DAY_S / n) for number in range(1, min(BATCH, n) + 1)]
    insert(store, newest)
    if served.run_sql:
        copy(served.run_sql, n // len(newest), len(newest) * DAY_S / n)
    else:
        older = (ended_record(n - number, now - number * DAY_S / n) for number in range(BATCH + 1, n + 1))
        while some := list(islice(older, BATCH)):
            insert(store, some)
    insert(store, [record(n + number, now + 1 + number) for number in range(min(PLANNED, n))])
    insert(store, [running_record(2 * n + number, now, store) for number in range(RUNNING)])
    served.begin(newest)


def insert(store: Engine, records: list[Record]) -> None:
    for start in range(0, len(records), COMMIT):
        patiently(store, {one.fire.key: Write(one, 0) for one in records[start : start + COMMIT]})


def patiently(store: Engine, writes: dict[str, Write]) -> None:
    """Repeat a commit that a busy machine delayed for too long."""
    for _ in range(TRIES):
        with suppress(Conflict), store.driver.hand(APP):
            unit = Unit(store.driver, APP)
            unit.look()
            unit.writes = writes
            unit.commit()
            return
    raise TimeoutError("the machine is too busy to fill the store")


def copy(run_sql: Callable[[str], object], times: int, seconds: float) -> None:
    """Copy the fires that the store has, each time so many seconds earlier."""
    names = [name for name in COLUMNS if name not in ("key", *SHIFTED)]
    for number in range(1, times):
        shifted = [f"{name} - {number * seconds}" for name in SHIFTED]
        values = ", ".join([f"key || '#{number}'", *shifted, *names])
        columns = ", ".join(["key", *SHIFTED, *names])
        run_sql(f"INSERT INTO fires ({columns}) SELECT {values} FROM fires WHERE key NOT LIKE '%#%'")


def record(number: int, due: float) -> Record:
    job = JOB_NAMES[number % JOBS]
    return Record(Fire(f"{job}@{number:08}", job, instant(due), f"run-{number}", lane=job, revision="1"), due)


def ended_record(number: int, due: float) -> Record:
    one, has_failed = record(number, due), number % FAILED_EVERY == 0
    one.state, one.outcome = "over", Outcome("failed" if has_failed else "succeeded")
    one.attempt = one.recorded = 1
    one.node, one.fence = one.ran_node, one.ran_fence = "node-1", number + 1
    one.ran_at, one.over_at = due + number % 7 / 10, due + number % 7 / 10 + number % 11 / 5
    return one


def running_record(number: int, due: float, store: Engine) -> Record:
    one, unit = record(number, due), Unit(store.driver, APP)
    unit.look()
    one.state, one.attempt, one.node, one.fence, one.ttl_s = "claimed", 1, "node-1", number, 600.0
    one.ran_at, one.expires = due, unit.steady + one.ttl_s
    return one


# Calls.


def calls_on(store: Engine) -> dict[str, Callable[[], object]]:
    now = store.look(APP).now
    minute = (now - timedelta(minutes=9)).replace(second=0, microsecond=0)
    keys = tuple(row.fire.key for row in store.find(Query(app=APP, until=now)))
    recent = now - timedelta(seconds=30)
    return {
        "newest 20 of 500 jobs": lambda: store.newest(APP, JOB_NAMES),
        "newest 20 of 50 jobs": lambda: store.newest(APP, JOB_NAMES[:50]),
        "tally of a minute": lambda: store.tally(APP, minute, minute + timedelta(minutes=1)),
        "tally of ten minutes": lambda: store.tally(APP, minute - timedelta(minutes=9), minute),
        "find claimed": lambda: store.find(Query(app=APP, state="claimed", until=now, limit=500)),
        "find pending, due": lambda: store.find(Query(app=APP, state="pending", until=now, limit=500)),
        "find upcoming": lambda: store.find(Query(app=APP, upcoming=True)),
        "find the last 30 s": lambda: store.find(Query(app=APP, since=recent, until=now, limit=500)),
        "find 50 keys": lambda: store.find(Query(app=APP, keys=keys)),
        "find failed": lambda: store.find(Query(app=APP, kinds=("failed",), until=now)),
        "look": lambda: store.look(APP),
        "count": lambda: store.count(APP),
        "apps": store.apps,
    }


def timed_ms(call: Callable[[], object]) -> list[float]:
    found = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        call()
        found.append((time.perf_counter() - began) * 1000)
    return found


def measure(effort: Effort) -> Result:
    rows: list[tuple[Cell, ...]] = []
    budgets: list[Budget] = []
    for name, serve in STORES.items():
        if effort.on and name.casefold() not in effort.on:
            continue
        with serve() as served:
            began = time.monotonic()
            fill(served, effort.n)
            print(f"{name}: filled in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
            times = {what: timed_ms(call) for what, call in calls_on(served.store).items()}
            rows += [(name, what, min(some), max(some)) for what, some in times.items()]
            newest_ms = min(times.pop("newest 20 of 500 jobs"))
            slowest_ms = max(min(some) for some in times.values())
            budgets.append(Budget(f"{name}: newest of 500 jobs", newest_ms, "ms", floor=NEWEST_MS))
            budgets.append(Budget(f"{name}: slowest other call", slowest_ms, "ms", floor=CALL_MS))
            if (longest_ms := served.longest_ms()) is not None:
                budgets.append(Budget(f"{name}: longest call of the server", longest_ms, "ms", floor=CALL_MS))
            served.store.close()
    table = Table(
        f"Calls of a dashboard, {effort.n:,} fires of {JOBS} jobs",
        ("store", "call", "ms", "slowest"),
        tuple(rows),
    )
    return Result((table,), tuple(budgets))


EFFORTS = {"tiny": Effort(2_000), "usual": Effort(100_000), "full": Effort(1_000_000)}
BENCH = Bench("dashboard_queries", EFFORTS, measure)

if __name__ == "__main__":
    sys.exit(main(BENCH, __doc__ or ""))
