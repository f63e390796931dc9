"""What a node touches of the world, and how it spends its time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any, NamedTuple, Protocol, TypeVar

from detent.events import Emit
from detent.model import Plan
from detent.rules.planning import AHEAD_S
from detent.runners.running import Starter
from detent.stores.base import Store
from detent.worker.inbox import Inbox

T = TypeVar("T")


class Offload(Protocol):
    """Runs a blocking call away from the loop: in a thread, or in a simulated world."""

    async def __call__(self, pool: str, call: Callable[..., T], *args: Any) -> T: ...


class ThreadPools:
    """Runs blocking calls in threads, one for each line.  A line is a queue of its own, and the store gives
    each thread its own connection: a renewal never waits behind a claim."""

    def __init__(self, width: dict[str, int] | None = None) -> None:
        self._width = width or {}  # threads of a line, where it has more than one
        self._pools: dict[str, ThreadPoolExecutor] = {}

    def begin(self, *pools: str) -> None:
        """Starts the threads of these lines: a Python that shuts down (from 3.12 on) starts no more."""
        for pool in pools:
            self._pool(pool).submit(bool)

    async def __call__(self, pool: str, call: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool(pool), call, *args)

    def _pool(self, pool: str) -> ThreadPoolExecutor:
        if pool not in self._pools:
            width = self._width.get(pool, 1)
            self._pools[pool] = ThreadPoolExecutor(width, thread_name_prefix=f"detent-{pool}")
        return self._pools[pool]

    def close(self) -> None:
        for executor in self._pools.values():
            executor.shutdown(wait=False, cancel_futures=True)


class Wakeup:
    """Wakes its sleeper, who sleeps no longer than `most_s`."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def set(self) -> None:
        self.event.set()

    async def sleep(self, most_s: float) -> None:
        timer = asyncio.get_running_loop().call_later(max(0.0, most_s), self.event.set)
        await self.event.wait()
        timer.cancel()
        self.event.clear()


class Ports(NamedTuple):
    """Everything of the world that a node touches."""

    store: Store
    starter: Starter
    offload: Offload
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    monotonic: Callable[[], float]
    rng: Random
    emit: Emit
    heartbeat: Callable[[], dict[str, object]] = dict  # what this node says of itself to the others
    on_round: Callable[[], None] = lambda: None  # called after each round of planning and claiming
    on_planned: Callable[[Sequence[Plan]], None] = lambda plans: None  # called with plans that were recorded
    inbox: Inbox | None = None  # where messages are opened; None: it serves no tasks
    prefetch_factor: Callable[[], int] = lambda: 1  # for how many messages there is use in the place of one
    return_unstarted: Callable[[], None] = lambda: None  # messages that are not begun are not to be any more


class Tuning(NamedTuple):
    """How a node spends its time and its room."""

    retry_s: float = 1.0  # after a call that failed
    cooldown_s: float = 1.0  # between two asks, after some that failed
    sleep_min_s: float = 0.01  # the shortest sleep: no loop spins
    burst_s: float = 1.0  # so long, starts come before ends
    gather_s: float = 0.05  # so long after the last call, a small one can wait
    idle_s: float = 60.0  # the longest sleep, should nobody ring
    ahead_s: float = AHEAD_S
    max_running: int = 32
    max_hooks: int = 8  # on top of it
    ask_max: int = 500  # in one ask: the first of many are started while the next are claimed
    report_max: int = 250  # verdicts in one call: the store serves other nodes in between
    renew_max: int = 500  # claims in one call
    settle_s: float = 5.0  # at the end, so long is the store given to take the last verdicts
    queues: tuple[str, ...] = ("default",)
    plans: bool = True  # a worker does not
