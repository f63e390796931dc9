"""What a node touches of the world, and how it spends its time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any, NamedTuple, Protocol, TypeVar

from detent.core.plan import AHEAD_S
from detent.events import Emit
from detent.model import Plan
from detent.node.attempt import Starter
from detent.node.desk import Desk
from detent.stores.base import Store

T = TypeVar("T")


class Offload(Protocol):
    """Runs a blocking call away from the loop: in a thread, or in a simulated world."""

    async def __call__(self, line: str, call: Callable[..., T], *args: Any) -> T: ...


class Edges(NamedTuple):
    """Everything of the world that a node touches."""

    store: Store
    starter: Starter
    offload: Offload
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    monotonic: Callable[[], float]
    rng: Random
    emit: Emit
    heartbeat: Callable[[], dict[str, object]] = dict  # what this node says of itself to the others
    rounded: Callable[[], None] = lambda: None  # called after each round of planning and claiming
    planned: Callable[[Sequence[Plan]], None] = lambda plans: None  # called with plans that were recorded
    desk: Desk | None = None  # where messages are opened; None: it serves no tasks
    stretch: Callable[[], int] = lambda: 1  # for how many messages there is use in the place of one
    recall: Callable[[], None] = lambda: None  # messages that are not begun are not to be any more


class Pace(NamedTuple):
    """How a node spends its time and its room."""

    retry_s: float = 1.0  # after a call that failed
    cooldown_s: float = 1.0  # between two asks, after some that failed
    least_s: float = 0.01  # the shortest sleep: no loop spins
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
