"""The size of a fleet's store after n fires and after 2n: within a tenth of each other.

The fires go the way of a node's: planned in a chain, claimed and finished in batches, with some output, and
pruned to the newest few of each job.  The measure on Redis is the memory of its data, on PostgreSQL its
tables with their indexes, including dead rows.  That size depends on the number of fires between two vacuums,
not on their total; the fires of days pass here in minutes, so the vacuum runs more often too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import count
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from report import Bench, Budget, Cell, Effort, Result, Table, main
from servers import Server, postgres_server, redis_server

from detent.errors import StoreUnavailable
from detent.model import Ask, Fire, Outcome, Plan, Policy, Report, Verdict
from detent.stores.base import Store
from detent.stores.postgres.store import PostgresStore
from detent.stores.redis.store import RedisStore

APP = "bench"
JOBS_MAX = 500
KEEP_FIRES = 10
KEEP_S = timedelta(days=30).total_seconds()
PRUNE_EVERY = 20  # rounds, that is, fires of each job; a node prunes every minute
GROWTH = 1.1
SAY_EVERY = 50_000
TRIES = 10
DONE = Verdict(Outcome("succeeded"))
TAIL = b"one line of output, as a job may have it\n" * 4
SCHEMA = "detent"
VACUUM = "autovacuum_naptime=2s"  # the default is a minute


T = TypeVar("T")


class State(NamedTuple):
    """The store at one moment."""

    after: int  # fires to wait for
    fires: int  # fires at that moment
    mb: float


def states(store: Store, n: int, size_mb: Callable[[], float]) -> list[State]:
    """Measure after n / 10, after n and after 2n fires."""
    found, wanted, began, said = [], [n // 10, n, 2 * n], monotonic(), 0
    for done in fire_on(store, min(JOBS_MAX, n)):
        if done - said >= SAY_EVERY:
            said = done
            print(f"{done:,} fires in {monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        if done >= wanted[0]:
            found.append(State(wanted.pop(0), done, size_mb()))
        if not wanted:
            break
    return found


def fire_on(store: Store, jobs: int) -> Iterator[int]:
    """Fire all jobs again and again; yield the number of fires after each pruning."""
    names = [f"{APP}.job-{number}" for number in range(jobs)]
    watermarks = store.set_jobs(APP, store.look(APP).generation, dict.fromkeys(names, "1"))
    asks, done = count(1), 0
    for turn in count(1):
        plans = [plan_of(name, watermarks.by_job[name].at, watermarks.now) for name in names]
        patiently(store.advance, APP, plans)
        while claims := patiently(store.claim, Ask(APP, "node", next(asks), limit=jobs)).claims:
            patiently(store.finish, [Report(claim, DONE, tail=TAIL) for claim in claims])
            done += len(claims)
        if turn % PRUNE_EVERY == 0:
            patiently(store.prune, APP, KEEP_S, KEEP_FIRES)
            yield done
        watermarks = patiently(store.look, APP)


def patiently(call: Callable[..., T], *given: Any) -> T:
    """Repeat a call that a busy machine delayed: every call is idempotent."""
    for _ in range(TRIES - 1):
        with suppress(StoreUnavailable):
            return call(*given)
    return call(*given)


def plan_of(job: str, since: datetime, until: datetime) -> Plan:
    key = f"{job}@{until.isoformat()}"
    fire = Fire(key, job, until, lane=job, policy=Policy("Queue"), origin="schedule", revision="1")
    return Plan(job, "1", since, until, (fire,))


def table_mb(server: Server) -> float:
    ((size,),) = server.sql(
        "SELECT sum(pg_total_relation_size(format('%%I.%%I', schemaname, tablename)::regclass))"
        " FROM pg_tables WHERE schemaname = %s",
        SCHEMA,
    )
    return float(size) / 1e6


def measure(effort: Effort) -> Result:
    with redis_server("--appendonly", "no") as redis:
        store = RedisStore(redis.url)
        on_redis = states(store, effort.n, lambda: redis.call("INFO", "memory")["used_memory_dataset"] / 1e6)
        store.close()
    with postgres_server("fsync=off", VACUUM) as postgres:
        tables = PostgresStore(postgres.url, SCHEMA)
        on_postgres = states(tables, effort.n, lambda: table_mb(postgres))
        tables.close()
    found = {"Redis": on_redis, "PostgreSQL": on_postgres}
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (name, *state) for name, some in found.items() for state in some
    )
    notes = (
        f"{min(JOBS_MAX, effort.n)} jobs; {KEEP_FIRES} fires of each are kept, pruned every {PRUNE_EVERY}",
    )
    budgets = tuple(
        Budget(f"{name}: {2 * effort.n:,} ÷ {effort.n:,} fires", whole.mb / half.mb, "×", floor=GROWTH)
        for name, (_, half, whole) in found.items()
    )
    return Result(
        (Table("The store after many fires", ("store", "after", "fires", "MB"), rows, notes),), budgets
    )


EFFORTS = {"tiny": Effort(20), "usual": Effort(50_000), "full": Effort(500_000)}
BENCH = Bench("store_size", EFFORTS, measure)

if __name__ == "__main__":
    sys.exit(main(BENCH, __doc__ or ""))
