"""The cost of a fire for its store, with 1 to 16 nodes: calls by nodes, and commands that the server
executes.

The nodes are real, on a real store, all in this process; their work ends at once.  All jobs are due at the
same instants, every few seconds.  Nodes share the planning, and one claim, renewal or report covers all
fires.  So calls grow with the number of nodes, and not with jobs times nodes: then a fire would cost at least
as many calls as there are nodes.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

from report import Bench, Budget, Cell, Effort, Result, Table, main
from servers import RedisServer, postgres_server, redis_server

from detent import clock
from detent.model import Claim, Command, End, Job, Outcome, Policy, Work
from detent.node.node import Node
from detent.node.ports import Ports, ThreadPools, Tuning
from detent.schedules.timetable import parse_schedule
from detent.stores.base import Store
from detent.stores.postgres.store import PostgresStore
from detent.stores.redis.store import RedisStore

APP = "bench"
SIZES = (1, 2, 4, 8, 16)
EVERY_S = 2
LISTEN_S = 1.0
PATIENCE_S = 120.0
CALLS_MAX = 1.0  # calls per fire, by all nodes together
GROWTH_MAX = 2.0  # of the server's commands per fire, from one node to the most


class Cost(NamedTuple):
    """What was counted in one period."""

    fires: int
    calls: Counter[str]
    commands: int  # 0: the server does not report it


class Counted:
    """A store that counts its calls by verb."""

    def __init__(self, store: Store, calls: Counter[str]) -> None:
        self._store, self._calls = store, calls

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        call = getattr(self._store, verb)

        def counted(*given: Any) -> Any:
            self._calls[verb] += 1
            answer = call(*given)
            if verb == "finish":
                self._calls["fires"] += sum(one is not None for one in answer)
            return answer

        return counted


class Brief:
    """Work that ends at once."""

    def __init__(self) -> None:
        self.gone: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        self.gone.set_result(End(Outcome("succeeded")))

    def extend(self, trusted_by: float) -> None: ...

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None: ...


class AtOnce:
    async def start(self, work: Work, claim: Claim, trusted_by: float) -> Brief:
        return Brief()


class Member:
    """A node of the fleet, with its own store and threads."""

    def __init__(self, number: int, jobs: dict[str, Job], store: Store, calls: Counter[str]) -> None:
        self.threads, self.store, self.tasks = ThreadPools(), store, list[asyncio.Task[None]]()
        ports = Ports(
            store=Counted(store, calls),  # type: ignore[arg-type]
            starter=AtOnce(),
            offload=self.threads,
            spawn=self.spawn,
            monotonic=clock.boottime,
            rng=Random(number),
            emit=lambda *_, **__: None,
        )
        self.node = Node(f"node-{number}", APP, jobs, ports, Tuning())

    def spawn(self, step: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self.tasks.append(asyncio.ensure_future(step))
        return self.tasks[-1]

    async def listen(self) -> None:
        while True:
            if await self.threads("listen", self.store.wait, APP, LISTEN_S):
                self.node.wake()

    def start(self) -> None:
        self.spawn(self.node.run())
        self.spawn(self.listen())

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        for task in self.tasks:
            with suppress(asyncio.CancelledError):
                await task
        self.store.close()
        self.threads.close()


def jobs_of(count: int, every_s: int) -> dict[str, Job]:
    policy, work = Policy("Forbid"), Command(("/bin/true",))
    schedule = parse_schedule(f"@every {every_s}s")
    names = [f"{APP}.job-{number}" for number in range(count)]
    return {name: Job(name, schedule, work, policy, revision="1") for name in names}


def every_s(effort: Effort) -> int:
    """Return the interval of the jobs: a period has at least two instants."""
    return min(EVERY_S, int(effort.seconds / 2))


async def observe(size: int, effort: Effort, server: Opened) -> Cost:
    """Measure a fleet of this size for some seconds after its first fires."""
    calls: Counter[str] = Counter()
    defined = jobs_of(effort.n, every_s(effort))
    members = [Member(number, defined, server.open(size), calls) for number in range(size)]
    for member in members:
        member.start()
    give_up_at = time.monotonic() + PATIENCE_S
    while calls["fires"] < effort.n and time.monotonic() < give_up_at:
        await asyncio.sleep(0.1)
    before, commands = Counter(calls), server.commands()
    await asyncio.sleep(effort.seconds)
    spent = Counter(calls)
    spent.subtract(before)
    commands = server.commands() - commands
    for member in members:
        await member.end()
    if not (fires := spent.pop("fires", 0)):
        raise SystemExit(f"{size} nodes: nothing fired within {effort.seconds:g} s: this machine is too busy")
    return Cost(fires, spent, commands)


class Opened(NamedTuple):
    """A server: how a node opens it, and how many commands it has executed."""

    open: Callable[[int], Store]  # each size of fleet has its own keys or schema
    commands: Callable[[], int]


def commands_of(server: RedisServer) -> int:
    """All commands of scripts and nodes, except waiting."""
    lines = server.call("INFO", "commandstats")
    return sum(stats["calls"] for name, stats in lines.items() if "xread" not in name and "info" not in name)


def curve(sizes: tuple[int, ...], effort: Effort, server: Opened) -> dict[int, Cost]:
    return {size: asyncio.run(observe(size, effort, server)) for size in sizes}


def measure(effort: Effort) -> Result:
    sizes = SIZES if effort.rounds > 1 else SIZES[:3:2]  # fewer in the tiny form
    with redis_server("--appendfsync", "everysec") as redis:
        opened = Opened(lambda size: RedisStore(redis.url, f"{size}:"), lambda: commands_of(redis))
        on_redis = curve(sizes, effort, opened)
    with postgres_server("fsync=off") as postgres:
        opened = Opened(lambda size: PostgresStore(postgres.url, f"fleet_{size}"), lambda: 0)
        on_postgres = curve(sizes, effort, opened)
    table = _table(effort, {"Redis": on_redis, "PostgreSQL": on_postgres})
    most = max(sizes)
    budgets = [
        Budget(f"{name}: calls for a fire, {most} nodes", _calls(costs[most]), "", CALLS_MAX)
        for name, costs in (("Redis", on_redis), ("PostgreSQL", on_postgres))
    ]
    growth = (on_redis[most].commands / on_redis[most].fires) / (on_redis[1].commands / on_redis[1].fires)
    budgets.append(Budget(f"Redis: commands in the server, {most} nodes ÷ 1", growth, "×", GROWTH_MAX))
    return Result((table,), tuple(budgets))


def _calls(cost: Cost) -> float:
    return sum(cost.calls.values()) / cost.fires


def _table(effort: Effort, found: dict[str, dict[int, Cost]]) -> Table:
    verbs = ("claim", "advance", "renew", "finish")
    rows: list[tuple[Cell, ...]] = []
    for store, costs in found.items():
        for size, cost in costs.items():
            each = [cost.calls[verb] / cost.fires for verb in verbs]
            served = cost.commands / cost.fires if cost.commands else None
            rows.append((f"{store}, {size} nodes", cost.fires, _calls(cost), *each, served))
    headings = ("program", "fires", "calls a fire", *verbs, "commands in the server")
    notes = (
        f"{effort.n} jobs, each due every {every_s(effort)} s; {effort.seconds:g} s each; figures per fire",
    )
    return Table("What a fire costs its store", headings, tuple(rows), notes)


EFFORTS = {"tiny": Effort(4, 1, 2.0), "usual": Effort(50, 2, 12.0), "full": Effort(200, 2, 60.0)}
BENCH = Bench("fleet", EFFORTS, measure)

if __name__ == "__main__":
    sys.exit(main(BENCH, __doc__ or ""))
