"""No-op tasks through two worker processes, beside other queues, on one server and machine.

Each task appends eight bytes to one file in memory, and the benchmark counts them; it uses no counters or
results of the programs.  Workers are warm, and stopped while their queue is filled: a rate is from their
continuation until the call of the last task.  Push to start is from just before a push until the task runs,
on idle workers.  Each program acknowledges as it does by default.  A program that would take too long gets
fewer tasks.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import noted
from queue_peers.workers import Peer, Stuck, Workers, cpu_s, site, tree, workers
from report import Bench, Budget, Cell, Effort, Result, Table, main, median, quantile
from servers import postgres_server, redis_server, redis_version

OURS = "detent"
DRAMATIQ, HUEY, PROCRASTINATE = "Dramatiq", "Huey", "Procrastinate"
OF_OURS = {
    OURS: Peer("ours"),
    "detent, threads": Peer("ours", "thread"),
    "detent, loop": Peer("ours", "loop"),
    "detent, one at a time by hand": Peer("ours", "singly"),
    "detent, by hand, one thread": Peer("ours", "alone"),
}
ON_REDIS = OF_OURS | {
    DRAMATIQ: Peer("dramatiq"),
    HUEY: Peer("huey"),
    "taskiq, stream": Peer("taskiq"),
    "taskiq, list": Peer("taskiq", "list"),
    "Celery": Peer("celery"),
    "SAQ": Peer("saq"),
    "arq": Peer("arq"),
    "RQ, no fork": Peer("rq", "simple"),
    "RQ": Peer("rq"),
}
ON_POSTGRES = OF_OURS | {PROCRASTINATE: Peer("procrastinate")}
COMPARED = 100  # with fewer tasks, only detent and the reference program run, to see that they work
PUSHES = 100  # to measure push to start
PROBES = (200, 2_000)  # tasks, to estimate how many fit into the time of one turn
PUSH_S, DONE_S = 8.0, 5.0
SINGLY_MAX = 4_000  # pushed one by one, if a batch follows
SETTLE_S = 0.5  # until the last acknowledgement is written
numbers = count(1)


class Bed(NamedTuple):
    """A server, emptied for each turn."""

    title: str
    peers: Mapping[str, Peer]
    measure: str  # the program whose rates are 1
    empty: Callable[[], str]  # returns the URL
    pids: Callable[[], list[int]]
    version: str = ""


class Fill(NamedTuple):
    """One filling and emptying of a queue."""

    pushed: float  # per second
    done: float  # per second
    worker_us: float  # CPU per task of all worker processes
    server_us: float


class Turn(NamedTuple):
    """The result of one program in one round."""

    size: int  # tasks
    singly: Fill
    batch: Fill | None
    late_s: list[float]
    idle: float | None  # % of a core
    again: int  # tasks that ran more often than they were pushed


# Measuring.


def fill_and_go(hands: Workers, verb: str, n: int, server: Callable[[], list[int]]) -> Fill:
    at = hands.site
    before = at.count()
    with hands.stopped():
        pushed_s = at.ask(verb, n)["took_s"]
        spent, served = cpu_s(hands.pids()), cpu_s(server())
        began = time.time()
    hands.wait_count(before + n)
    took_s = sorted(noted.read_notes(at.notes)[before:])[n - 1] - began
    time.sleep(SETTLE_S)
    spent, served = cpu_s(hands.pids()) - spent, cpu_s(server()) - served
    return Fill(n / pushed_s, n / took_s, spent / n * 1e6, served / n * 1e6)


def watch_idle(hands: Workers, seconds: float) -> float:
    time.sleep(min(2.0, seconds))
    before, began = cpu_s(hands.pids()), time.monotonic()
    time.sleep(seconds)
    return (cpu_s(hands.pids()) - before) / (time.monotonic() - began) * 100


def size_for(hands: Workers, most: int, bed: Bed, has_batch: bool) -> int:
    """Return how many tasks can be pushed and run in the time that is left."""
    for size in PROBES:
        if size >= most:
            break
        fill = fill_and_go(hands, "push", size, bed.pids)
        within = DONE_S * fill.done if has_batch else min(PUSH_S * fill.pushed, DONE_S * fill.done)
        if within < 10 * size and within < most:
            return max(int(within), size)
    return most


def take_turn(bed: Bed, peer: Peer, effort: Effort, size: int) -> tuple[Turn, dict[str, Any]]:
    """Measure one program.  A size of 0 means as many tasks as there is time for."""
    with site(peer, bed.empty()) as at:
        facts = at.ask("facts")
        if facts["prepares"]:
            at.ask("prepare")
        with workers(at, facts["lines"]) as hands:
            idle = watch_idle(hands, effort.seconds) if effort.seconds else None
            late_s = at.ask("latency", min(PUSHES, effort.n))["late_s"]
            has_batch = facts["has_batch"]
            size = size or size_for(hands, effort.n, bed, has_batch)
            few = min(size, SINGLY_MAX) if has_batch else size
            due = at.count() + few + (size if has_batch else 0)
            singly = fill_and_go(hands, "push", few, bed.pids)
            batch = fill_and_go(hands, "push_many", size, bed.pids) if has_batch else None
            return Turn(size, singly, batch, late_s, idle, at.count() - due), facts


class Found(NamedTuple):
    turns: dict[str, list[Turn]]
    facts: dict[str, dict[str, Any]]
    notes: list[str]


def take_turns(bed: Bed, effort: Effort) -> Found:
    """Run every program in every round; report those that cannot be measured."""
    found, out = Found({}, {}, []), set[str]()
    if effort.n < COMPARED:
        out |= bed.peers.keys() - {OURS, bed.measure}
    for name, peer in bed.peers.items():
        if name not in out and not peer.is_there:
            out.add(name)
            found.notes.append(f"{name} is not installed and was left out: make bench BENCH=queues")
    for number in range(effort.rounds):
        once = effort if number == 0 else effort._replace(seconds=0.0)  # idle workers are measured once
        for name, peer in bed.peers.items():
            if name in out:
                continue
            try:
                before = found.turns.get(name)
                turn, found.facts[name] = take_turn(bed, peer, once, before[0].size if before else 0)
                found.turns.setdefault(name, []).append(turn)
                say(bed, name, number, turn)
            except Stuck as why:
                out.add(name)
                found.notes.append(f"{name} was left out from round {number + 1} on: {_last_line(str(why))}")
    return found


def say(bed: Bed, name: str, number: int, turn: Turn) -> None:
    """Print progress, because the result takes a while."""
    last = turn.batch or turn.singly
    figures = f"{last.done:,.0f}/s, {last.worker_us:.0f} + {last.server_us:.0f} µs of CPU a task"
    line = f"{bed.title}, round {number + 1}: {name}: {turn.size:,} tasks, {figures}"
    print(f"{line}; start p50 {_start_ms([turn], 0.5):.1f} ms", file=sys.stderr, flush=True)


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), text)


# Servers.


@contextmanager
def on_redis(fsync: str) -> Iterator[Bed]:
    with redis_server("--appendfsync", fsync) as server:

        def empty() -> str:
            server.call("FLUSHALL")
            return server.url

        title = f"Redis, appendfsync {fsync}"
        yield Bed(title, ON_REDIS, DRAMATIQ, empty, lambda: [server.process.pid], redis_version())


@contextmanager
def on_postgres() -> Iterator[Bed]:
    with postgres_server() as server:

        def empty() -> str:
            name = f"bench_{next(numbers)}"
            server.sql(f"CREATE DATABASE {name}")
            return server.url.replace("/postgres?", f"/{name}?")

        yield Bed("PostgreSQL, fsync", ON_POSTGRES, PROCRASTINATE, empty, lambda: tree([server.pid]))


# Tables.


PLACES: Mapping[str, Callable[[], AbstractContextManager[Bed]]] = {
    "redis-everysec": partial(on_redis, "everysec"),
    "redis-always": partial(on_redis, "always"),
    "postgres": on_postgres,
}
ONCE = ("redis-always",)  # to see the cost of its fsync


def compare(effort: Effort) -> Result:
    if unknown := [name for name in effort.on if name not in PLACES]:
        raise SystemExit(f"no server is called {unknown[0]}; there are {', '.join(PLACES)}")
    tables: list[Table] = []
    budgets: list[Budget] = []
    facts: dict[str, dict[str, Any]] = {}
    chosen = [name for name in PLACES if effort.n >= COMPARED or name not in ONCE]
    for name in effort.on or chosen:
        here = effort._replace(rounds=1, seconds=0.0) if name in ONCE else effort
        with PLACES[name]() as bed:
            found = take_turns(bed, here)
        tables += _tables(bed, found, here)
        budgets += _budgets(bed, found.turns)
        facts |= found.facts
    return Result((*tables, _settings(facts)), tuple(budgets))


def _tables(bed: Bed, found: Found, effort: Effort) -> Iterator[Table]:
    beside = found.turns.get(bed.measure)
    rates = tuple(_rates(name, turns, beside) for name, turns in found.turns.items())
    headings = ("program", "push/s", "÷", "batch/s", "÷", "processed/s", "÷", "CPU µs, workers", "server")
    notes = [
        f"{effort.n:,} tasks, medians of {effort.rounds} rounds; ÷: of {bed.measure}'s, a batch of its batch"
        " or else of its single pushes",
        *(
            f"{name}: {turns[0].size:,} tasks"
            for name, turns in found.turns.items()
            if turns[0].size < effort.n
        ),
        "a task is counted by eight bytes that it appends to a file in memory, in every program",
        *(f"{name}: {extra} tasks ran twice" for name, extra in _again(found.turns)),
        *([bed.version] if bed.version else []),
        *found.notes,
    ]
    yield Table(f"Queues on {bed.title}", headings, rates, tuple(notes))
    starts = tuple(_starts(name, turns) for name, turns in found.turns.items())
    yield Table(
        f"On idle workers, {bed.title}",
        ("program", "start p50 ms", "p99 ms", "idle % of a core"),
        starts,
        (f"{effort.seconds:g} s of idling, all processes of the two workers together",),
    )


def _rates(name: str, turns: Sequence[Turn], beside: Sequence[Turn] | None) -> tuple[Cell, ...]:
    fills = [fill for turn in turns for fill in (turn.singly, turn.batch) if fill]
    cells: list[Cell] = [name]
    for rate in (pushed, batched, done):
        ours, theirs = rate(turns), rate(beside) if beside else None
        if rate is batched and beside:
            theirs = theirs or pushed(beside)
        cells += [ours, ours / theirs if ours and theirs else None]
    return (*cells, median(fill.worker_us for fill in fills), median(fill.server_us for fill in fills))


def pushed(turns: Iterable[Turn]) -> float | None:
    return median(turn.singly.pushed for turn in turns)


def batched(turns: Iterable[Turn]) -> float | None:
    batches = [turn.batch.pushed for turn in turns if turn.batch]
    return median(batches) if batches else None


def done(turns: Iterable[Turn]) -> float | None:
    return median((turn.batch or turn.singly).done for turn in turns)


def _starts(name: str, turns: Sequence[Turn]) -> tuple[Cell, ...]:
    idle = [turn.idle for turn in turns if turn.idle is not None]
    return name, _start_ms(turns, 0.5), _start_ms(turns, 0.99), idle[0] if idle else None


def _start_ms(turns: Iterable[Turn], share: float) -> float:
    return quantile([late_s for turn in turns for late_s in turn.late_s], share) * 1000


def _again(turns: Mapping[str, Sequence[Turn]]) -> Iterator[tuple[str, int]]:
    for name, found in turns.items():
        if extra := sum(turn.again for turn in found):
            yield name, extra


def _settings(facts: Mapping[str, dict[str, Any]]) -> Table:
    rows = tuple((name, one["version"], one["settings"], one["loses"]) for name, one in facts.items())
    return Table("Programs and settings", ("program", "version", "settings", "what a kill -9 loses"), rows)


def _budgets(bed: Bed, turns: Mapping[str, Sequence[Turn]]) -> Iterator[Budget]:
    ours, peer = turns.get(OURS), turns.get(bed.measure)
    if ours:
        yield Budget(f"tasks run twice, {bed.title}", sum(abs(turn.again) for turn in ours), "", floor=0)
        yield Budget(f"start p50, {bed.title}", _start_ms(ours, 0.5), "ms", 5.0)
        if ours[0].idle is not None:
            yield Budget(f"idle, {bed.title}", ours[0].idle, "%", 1.0)
    if not ours or not peer:
        return
    wanted = [(bed.measure, done(peer), 3.0 if bed.measure == DRAMATIQ else 5.0)]
    if huey := turns.get(HUEY):
        wanted.append((HUEY, done(huey), 2.0))
    for name, theirs, floor in wanted:
        ratio = (done(ours) or 0.0) / (theirs or 1.0)
        yield Budget(f"processed ÷ {name}'s, {bed.title}", ratio, "×", floor, more_is_better=True)


EFFORTS = {"tiny": Effort(5, 1, 0.1), "usual": Effort(2_000, 2, 5.0), "full": Effort(20_000, 2, 5.0)}
BENCH = Bench("queues", EFFORTS, compare)

if __name__ == "__main__":
    sys.exit(main(BENCH, __doc__ or ""))
