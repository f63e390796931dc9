"""Claims per second on Redis and PostgreSQL, beside common locks on the same server.

The server keeps what it acknowledged (`appendfsync always`, `fsync`) for every program.  A fire is claimed
and finished, as a lock is acquired and released; while some are claimed, others are due as well.  Claimers
are processes.  Advisory locks write nothing to disk and end with their session: they are here because people
build on them, not because they do the same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import claimers
import peers
from claimers import Pace, Way, claim_all, lock_all
from report import Bench, Budget, Cell, Effort, Result, Table, main, median
from servers import benchmark_binary, postgres_server, redis_server, redis_version

from detent.stores.postgres.store import PostgresStore
from detent.stores.redis.store import RedisStore

BATCHES = (1, 10, 100, 1000)
MANY = 8
Turns = dict[str, Callable[[], Pace]]


def name_of(batch: int, many: int, way: Way = "") -> str:
    return f"detent, batches of {batch}, {many} claiming{way and ', ' + way}"


def our_turns(open_store: claimers.Opener, effort: Effort) -> Turns:
    ways: tuple[Way, ...] = ("", "each in a lane", "finished with the next ask")
    batches = BATCHES if effort.rounds > 1 else BATCHES[::2]  # fewer in the tiny form
    chosen: list[tuple[int, int, Way]] = [(batch, 1, way) for batch in batches for way in ways]
    chosen += [(batch, MANY, "") for batch in (1, 100)]
    return {name_of(*one): partial(claim_all, open_store, effort.n * min(10, one[0]), *one) for one in chosen}


def redis_turns(port: int, effort: Effort, notes: list[str]) -> Turns:
    locks = {"redis-py Lock": claimers.redis_py, "SET NX EX, DEL": claimers.set_nx}
    if peers.is_there("redis_lock"):
        locks["python-redis-lock"] = claimers.python_redis_lock
    else:
        notes.append(peers.missing_note("redis_lock"))
    turns: Turns = {
        f"{name}, {many} claiming": partial(lock_all, partial(opened, port), effort.n, many)
        for name, opened in locks.items()
        for many in (1, MANY)
    }
    if binary := benchmark_binary():
        for many in (1, MANY):
            turns[f"SET by a load generator, {many} at once"] = partial(
                claimers.load_generator, binary, port, effort.n, many
            )
    else:
        notes.append("there is no redis-benchmark here; it was left out: apt-get install redis-tools")
    return turns | our_turns(lambda: RedisStore(f"redis://127.0.0.1:{port}"), effort)


def postgres_turns(url: str, effort: Effort) -> Turns:
    kinds = {"session": claimers.advisory_session, "transaction": claimers.advisory_transaction}
    turns: Turns = {
        f"advisory lock of the {name}, {many} claiming": partial(
            lock_all, partial(opened, url), effort.n, many
        )
        for name, opened in kinds.items()
        for many in (1, MANY)
    }
    return turns | our_turns(lambda: PostgresStore(url), effort)


def measure(effort: Effort) -> Result:
    notes = [
        f"{effort.n} locks; fires as many, or 10 times where they come in batches; {effort.rounds} rounds",
        f"÷: our claims, where {MANY} claim also finished, beside locks acquired and released",
    ]
    with redis_server() as redis:
        on_redis = take_turns(redis_turns(redis.port, effort, notes), effort.rounds)
    with postgres_server() as postgres:
        on_postgres = take_turns(postgres_turns(postgres.url, effort), effort.rounds)
    lock, advisory = "redis-py Lock, {} claiming", "advisory lock of the session, {} claiming"
    tables = (
        _table("Claims on Redis", on_redis, lock, "÷ Lock", [*notes, redis_version()]),
        _table("Claims on PostgreSQL", on_postgres, advisory, "÷ session lock", notes[:2]),
    )
    return Result(tables, (*_redis_budgets(on_redis), *_scaling(on_postgres)))


def take_turns(turns: Turns, rounds: int) -> dict[str, Pace]:
    """Run all claimers in every round, and return the median of each figure."""
    paces = [{name: turn() for name, turn in turns.items()} for _ in range(rounds)]
    return {name: _median_of([one[name] for one in paces]) for name in turns}


def _median_of(paces: list[Pace]) -> Pace:
    alone = [one.claims for one in paces if one.claims is not None]
    rest = (median(one[place] for one in paces) for place in (1, 2, 3))
    return Pace(median(alone) if alone else None, *rest)


def _table(title: str, paces: Mapping[str, Pace], peer: str, ratio: str, notes: list[str]) -> Table:
    headings = ("program", "claims/s", "and finished/s", "a call p50 ms", "p99 ms", ratio)
    rows: list[tuple[Cell, ...]] = []
    for name, pace in paces.items():
        beside = paces[peer.format(MANY if f", {MANY} " in name else 1)]
        ours = pace.claims if name.startswith("detent") else None
        rows.append((name, *pace, (ours or pace.both) / beside.both))
    return Table(title, headings, tuple(rows), tuple(notes))


def _redis_budgets(paces: Mapping[str, Pace]) -> Iterator[Budget]:
    lock = paces["redis-py Lock, 1 claiming"].both
    ratio = (paces[name_of(100, 1)].claims or 0.0) / lock
    yield Budget("claims in batches of 100 ÷ Lock", ratio, "×", 2.0, 10.0, more_is_better=True)


def _scaling(paces: Mapping[str, Pace]) -> Iterator[Budget]:
    """With two processors, of which the server needs one, the ratio cannot exceed two."""
    ratio = paces[name_of(1, MANY)].both / paces[name_of(1, 1)].both
    yield Budget(f"PostgreSQL, {MANY} claiming ÷ 1", ratio, "×", 1.0, 2.0, more_is_better=True)


EFFORTS = {"tiny": Effort(8, 1), "usual": Effort(400, 3), "full": Effort(2000, 5)}
BENCH = Bench("claims", EFFORTS, measure)

if __name__ == "__main__":
    sys.exit(main(BENCH, __doc__ or ""))
