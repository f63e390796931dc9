"""A burst: asks grow while more is due, and ends wait for starts."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from detent.node.burst import FIRST_LIMIT, GROWTH, Burst
from detent.node.node import Node
from detent.node.ports import Ports, Tuning
from detent.stores.memory.store import MemoryStore


def test_asks_grow_while_they_are_full_and_the_first_other_one_ends_the_burst() -> None:
    burst = Burst(1.0, ask_max=2000)
    assert burst.limit == FIRST_LIMIT
    assert burst.goes_on(is_full=True, asked=FIRST_LIMIT, now=0.0)
    assert burst.limit == min(FIRST_LIMIT * GROWTH, 2000)
    assert not burst.goes_on(is_full=False, asked=burst.limit, now=0.1)
    assert burst.limit == FIRST_LIMIT


def test_a_full_ask_below_the_limit_starts_no_burst() -> None:
    burst = Burst(1.0, ask_max=2000)
    assert not burst.goes_on(is_full=True, asked=FIRST_LIMIT - 1, now=0.0)
    assert not burst.comes_first(0.0, is_starting=True)


def test_ends_wait_for_all_starts_of_a_burst_up_to_a_limit() -> None:
    burst = Burst(1.0, ask_max=2000)
    burst.goes_on(is_full=True, asked=FIRST_LIMIT, now=0.0)
    assert burst.comes_first(0.5, is_starting=False)
    burst.goes_on(is_full=False, asked=burst.limit, now=0.6)
    assert burst.comes_first(0.7, is_starting=True)
    assert not burst.comes_first(1.1, is_starting=True)
    assert not burst.comes_first(0.8, is_starting=False)
    assert not burst.comes_first(0.8, is_starting=True)


@pytest.mark.parametrize("plans", [True, False])
def test_in_a_worker_ends_never_wait_for_starts(plans: bool) -> None:
    """In a worker, an end makes room for a waiting message.  A node has room for a whole burst of jobs."""

    async def offload(line: str, call: Callable[..., Any], *args: Any) -> Any:
        return call(*args)

    ports = Ports(
        store=MemoryStore(),
        starter=None,  # type: ignore[arg-type]  # nothing is started
        offload=offload,
        spawn=asyncio.ensure_future,  # type: ignore[arg-type]
        monotonic=lambda: 0.5,
        rng=Random(1),
        emit=lambda event, **facts: None,
    )
    node = Node("n.1", "a", {}, ports, Tuning(plans=plans))
    node._burst.goes_on(is_full=True, asked=FIRST_LIMIT, now=0.0)
    assert node._starts_come_first() == plans
