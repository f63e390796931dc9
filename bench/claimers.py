"""The claimers of the claims benchmark: detent's stores, and the locks that people use instead.

Each runs as one or more processes that start together.  A fire is claimed and finished, as a lock is acquired
and released.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from multiprocessing import get_context
from typing import Any, Literal, NamedTuple

from report import quantile

from detent.clock import instant
from detent.model import Ask, Claim, Fire, Outcome, Policy, Report, Verdict
from detent.stores.base import Store

Opener = Callable[[], Store]
Way = Literal["", "each in a lane", "finished with the next ask"]
APP = "a"
EXPIRE_S = 30
PATIENCE_S = 600
DONE = Verdict(Outcome("succeeded"))
numbers = count(1)
forked = get_context("fork")


class Turn(NamedTuple):
    """What one claimer did: how many claims, how long each call took, and from when to when."""

    done: int
    calls_s: list[float]
    began: float
    ended: float


class Pace(NamedTuple):
    claims: float | None  # per second, without the time for finishing; only with a single claimer
    both: float  # claimed and finished, or acquired and released, per second
    p50_ms: float  # of a call that claims
    p99_ms: float


def race(claimers: int, work: Callable[[int], Turn]) -> Pace:
    """Run this many claimers at once, each as a process."""
    turns = [work(0)] if claimers == 1 else _together(claimers, work)
    took_s = max(turn.ended for turn in turns) - min(turn.began for turn in turns)
    calls = [call for turn in turns for call in turn.calls_s]
    done = sum(turn.done for turn in turns)
    alone = done / sum(calls) if claimers == 1 else None
    return Pace(alone, done / took_s, quantile(calls, 0.5) * 1000, quantile(calls, 0.99) * 1000)


def _together(claimers: int, work: Callable[[int], Turn]) -> list[Turn]:
    barrier, answers = forked.Barrier(claimers), forked.Queue()

    def take_part(number: int) -> None:
        barrier.wait(PATIENCE_S)
        answers.put(work(number))

    processes = [forked.Process(target=take_part, args=(number,)) for number in range(claimers)]
    for process in processes:
        process.start()
    turns = [answers.get(timeout=PATIENCE_S) for _ in processes]
    for process in processes:
        process.join()
    return turns


# detent.


def fire_of(number: int, has_lane: bool) -> Fire:
    name = f"{APP}.job{number}"
    policy = Policy("Forbid" if has_lane else "Allow")
    return Fire(f"{name}@1", name, instant(0), lane=name if has_lane else "", policy=policy, origin="push")


def claim_all(open_store: Opener, n: int, batch: int, claimers: int, way: Way) -> Pace:
    """Put this many fires, and claim and finish all of them."""
    store = open_store()
    store.put([fire_of(next(numbers), way == "each in a lane") for _ in range(n)])
    store.close()
    left = forked.Value("q", n)
    claim_some = _claim_the_next if way == "finished with the next ask" else _claim_some
    return race(claimers, partial(claim_some, open_store, batch, left))


def _claim_some(open_store: Opener, batch: int, left: Any, number: int) -> Turn:
    store, calls, done, node = open_store(), list[float](), 0, f"bench-{number}-{time.monotonic_ns()}"
    store.notes(APP, "none")  # connect before the measurement starts
    began = time.monotonic()
    for ask in count(1):
        if left.value <= 0:
            break
        before = time.monotonic()
        claims = store.claim(Ask(APP, node, ask, limit=batch)).claims
        calls.append(time.monotonic() - before)
        if claims:
            _finish(store, claims)
            done += len(claims)
            with left.get_lock():
                left.value -= len(claims)
    ended = time.monotonic()
    store.close()
    return Turn(done, calls, began, ended)


def _claim_the_next(open_store: Opener, batch: int, left: Any, number: int) -> Turn:
    """Report finished fires with the next claim, in one call."""
    store, calls, done, node = open_store(), list[float](), 0, f"bench-{number}-{time.monotonic_ns()}"
    store.notes(APP, "none")
    reports: list[Report] = []
    began = time.monotonic()
    for ask in count(1):
        before = time.monotonic()
        _, grants = store.finish_and_claim(reports, Ask(APP, node, ask, limit=batch))
        calls.append(time.monotonic() - before)
        done += len(reports)
        with left.get_lock():
            left.value -= len(reports)
        reports = [Report(claim, DONE) for claim in grants.claims]
        if not reports and left.value <= 0:
            break
    ended = time.monotonic()
    store.close()
    return Turn(done, calls, began, ended)


def _finish(store: Store, claims: Iterable[Claim]) -> None:
    store.finish([Report(claim, DONE) for claim in claims])


# Locks.


class Lock(NamedTuple):
    """How a lock is acquired and released."""

    acquire: Callable[[str], Any]
    release: Callable[[Any], object]


def lock_all(open_locks: Callable[[], Lock], n: int, claimers: int) -> Pace:
    return race(claimers, partial(_lock_some, open_locks, n // claimers))


def _lock_some(open_locks: Callable[[], Lock], n: int, number: int) -> Turn:
    acquire, release = open_locks()
    release(acquire(f"first-{number}"))
    calls, began = [], time.monotonic()
    for turn in range(n):
        before = time.monotonic()
        held = acquire(f"lock-{number}-{turn}")
        calls.append(time.monotonic() - before)
        release(held)
    return Turn(n, calls, began, time.monotonic())


def redis_py(port: int) -> Lock:
    import redis

    client = redis.Redis(port=port)

    def acquire(name: str) -> Any:
        lock = client.lock(name, timeout=EXPIRE_S)
        lock.acquire()
        return lock

    return Lock(acquire, lambda lock: lock.release())


def python_redis_lock(port: int) -> Lock:
    import redis
    import redis_lock

    client = redis.Redis(port=port)

    def acquire(name: str) -> Any:
        lock = redis_lock.Lock(client, name, expire=EXPIRE_S)
        lock.acquire(blocking=False)
        return lock

    return Lock(acquire, lambda lock: lock.release())


def set_nx(port: int) -> Lock:
    """The two commands alone, without checking who holds the lock."""
    import redis

    client = redis.Redis(port=port)
    return Lock(lambda name: client.set(name, "x", nx=True, ex=EXPIRE_S) and name, client.delete)


def advisory_session(url: str) -> Lock:
    """A lock of the session, which writes nothing to disk."""
    import psycopg

    db = psycopg.connect(url, autocommit=True)

    def acquire(name: str) -> str:
        db.execute("SELECT pg_try_advisory_lock(hashtext(%s))", (name,))
        return name

    return Lock(acquire, lambda name: db.execute("SELECT pg_advisory_unlock(hashtext(%s))", (name,)))


def advisory_transaction(url: str) -> Lock:
    """A lock of the transaction, which writes nothing to disk."""
    import psycopg

    db = psycopg.connect(url)

    def acquire(name: str) -> None:
        db.execute("SELECT pg_try_advisory_xact_lock(hashtext(%s))", (name,))

    return Lock(acquire, lambda _: db.commit())


def load_generator(binary: str, port: int, n: int, claimers: int) -> Pace:
    """SET from a C program: not a lock, but the cost of a round trip."""
    words = [binary, "-p", str(port), "-n", str(n), "-c", str(claimers), "-t", "set", "--csv"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    names, values = ([word.strip('"') for word in line.split(",")] for line in said[-2:])
    found = dict(zip(names, values, strict=True))
    rate = float(found["rps"])
    return Pace(rate, rate, float(found["p50_latency_ms"]), float(found["p99_latency_ms"]))
