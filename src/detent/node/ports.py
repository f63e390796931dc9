"""What a node uses from outside (ports), and the constants of its behaviour (tuning)."""

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
    """Runs a blocking call outside the event loop: in a thread, or in the simulator."""

    async def __call__(self, pool: str, call: Callable[..., T], *args: Any) -> T: ...


class ThreadPools:
    """Runs blocking calls in named thread pools, of one thread unless `width` says more.  The store gives
    each thread its own connection, so a renewal never waits behind a claim."""

    def __init__(self, width: dict[str, int] | None = None) -> None:
        self._width = width or {}
        self._pools: dict[str, ThreadPoolExecutor] = {}

    def begin(self, *pools: str) -> None:
        """Start the threads of these pools now: Python 3.12 and later start none during shutdown."""
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
    """An event to sleep on, with a limit."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def set(self) -> None:
        self.event.set()

    async def sleep(self, limit_s: float) -> None:
        timer = asyncio.get_running_loop().call_later(max(0.0, limit_s), self.event.set)
        await self.event.wait()
        timer.cancel()
        self.event.clear()


class Ports(NamedTuple):
    """Everything outside the node that it uses."""

    store: Store
    starter: Starter
    offload: Offload
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    monotonic: Callable[[], float]
    rng: Random
    emit: Emit
    heartbeat: Callable[[], dict[str, object]] = dict  # what the heartbeat says about this node
    on_round: Callable[[], None] = lambda: None  # after each round of planning and claiming
    on_planned: Callable[[Sequence[Plan]], None] = lambda plans: None  # with plans that the store recorded
    inbox: Inbox | None = None  # opens messages; None: this node serves no tasks
    prefetch_factor: Callable[[], int] = lambda: 1  # messages to hold per slot
    return_unstarted: Callable[[], None] = lambda: None  # return messages that have not started


class Tuning(NamedTuple):
    retry_s: float = 1.0  # pause after a failed call
    cooldown_s: float = 1.0  # pause between two asks, after several that failed
    sleep_min_s: float = 0.01  # the shortest sleep, so that no loop spins
    burst_s: float = 1.0  # starts come before ends for at most this long
    gather_s: float = 0.05  # a small call waits this long after the last one, to become larger
    idle_s: float = 60.0  # the longest sleep without a wake-up
    ahead_s: float = AHEAD_S
    max_running: int = 32
    max_hooks: int = 8  # in addition to max_running
    ask_max: int = 500  # claims in one ask, so that the first attempts start while the next ones are claimed
    report_max: int = 250  # verdicts in one call, so that other nodes are served in between
    renew_max: int = 500  # claims in one call
    settle_s: float = 5.0  # time for the store to record the last verdicts at shutdown
    queues: tuple[str, ...] = ("default",)
    plans: bool = True  # False for a worker
