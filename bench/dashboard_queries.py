"""The store calls of a dashboard, on a store with many fires: how long each takes.

A store has a day of fires of 500 jobs, some thousand planned ahead and some running.  They are inserted as
records, without being run.  The Redis server reports its longest call.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from report import Bench, Budget, Cell, Effort, Result, Table, main, median
from servers import RedisServer, postgres_server, redis_server

from detent import clock
from detent.clock import instant
from detent.model import Fire, Outcome, Query
from detent.rules.tallies import group_of
from detent.stores.engine.driver import Write
from detent.stores.engine.engine import Engine
from detent.stores.engine.record import Record
from detent.stores.engine.unit import Unit
from detent.stores.postgres.store import PostgresStore
from detent.stores.redis.store import RedisStore
from detent.stores.redis.tallies import tally_field, tally_name
from detent.stores.sqlite.store import SqliteStore

APP, JOBS, DAY_S = "bench", 500, 86_400.0
JOB_NAMES = [f"{APP}.job-{number}" for number in range(JOBS)]
PLANNED, RUNNING = 20_000, 50
BATCH = 5_000  # records of one commit
FAILED_EVERY = 100
CALL_MS, NEWEST_MS = 50, 100  # the budgets of a call, and of the newest fires of 500 jobs
REPEATS = 7
SLOW_US = 1000  # calls that the Redis server logs


class Served(NamedTuple):
    store: Engine
    add: Callable[[list[Record]], None]  # what only this store keeps of finished records
    begin: Callable[[], object]  # forgets how long the calls took that filled the store
    longest_ms: Callable[[], float | None]


@contextmanager
def on_sqlite() -> Iterator[Served]:
    with tempfile.TemporaryDirectory(prefix="detent-bench-") as folder:
        yield Served(SqliteStore(Path(folder) / "store.db"), lambda _: None, lambda: None, lambda: None)


@contextmanager
def on_redis() -> Iterator[Served]:
    settings = ("--slowlog-max-len", "1000", "--slowlog-log-slower-than", str(SLOW_US))
    with redis_server("--appendonly", "no", *settings) as server:
        yield Served(
            RedisStore(server.url),
            lambda some: _add_tallies(server, some),
            lambda: server.call("SLOWLOG", "RESET"),
            lambda: _longest(server),
        )


@contextmanager
def on_postgres() -> Iterator[Served]:
    with postgres_server("fsync=off", "synchronous_commit=off") as server:
        store = PostgresStore(server.url, "detent")
        yield Served(store, lambda _: None, lambda: server.sql("ANALYZE detent.fires"), lambda: None)


STORES = {"SQLite": on_sqlite, "Redis": on_redis, "PostgreSQL": on_postgres}


def _add_tallies(server: RedisServer, records: list[Record]) -> None:
    """The numbers of the last hour that the commits of real finishes would have added."""
    recent = [one for one in records if one.over_at > clock.wall() - 3600]
    counts = Counter((tally_name(one.over_at), tally_field(group_of(one))) for one in recent)
    for (name, field), number in counts.items():
        server.call("HINCRBY", f"detent:{{detent:{APP}}}:{name}", field, number)


def _longest(server: RedisServer) -> float:
    calls = server.call("SLOWLOG", "GET", "1000")
    return float(max((one[2] / 1000 for one in calls), default=SLOW_US / 1000))


# Filling.


def fill(served: Served, n: int) -> None:
    store, now = served.store, clock.wall()
    watermarks = store.set_jobs(APP, store.look(APP).generation, dict.fromkeys(JOB_NAMES, "1"))
    assert len(watermarks.by_job) == JOBS
    ended = (ended_record(number, now - DAY_S + number * DAY_S / n) for number in range(n))
    planned = (record(n + number, now + 1 + number) for number in range(min(PLANNED, n)))
    running = (running_record(2 * n + number, now, store) for number in range(RUNNING))
    records = chain(ended, planned, running)
    while some := list(islice(records, BATCH)):
        with store.driver.hand(APP):
            unit = Unit(store.driver, APP)
            unit.look()
            unit.writes = {one.fire.key: Write(one, 0) for one in some}
            unit.commit()
        served.add([one for one in some if one.state == "over"])


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
            served.begin()
            times = {what: timed_ms(call) for what, call in calls_on(served.store).items()}
            rows += [(name, what, median(some), max(some)) for what, some in times.items()]
            newest_ms = median(times.pop("newest 20 of 500 jobs"))
            slowest_ms = max(median(some) for some in times.values())
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
