"""How much a node asks for: what it holds only to settle it takes no place of what it could run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

from detent import clock
from detent.clock import instant
from detent.model import Fire, Policy
from detent.node.edges import Edges, Pace
from detent.node.node import Node
from detent.stores.memory import MemoryStore

MANY, PLACES = 50, 4


class _Nothing:
    """A starter of a node that has nothing to start."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name}: nothing can run here")


async def _at_once(line: str, call: Callable[..., Any], *args: Any) -> Any:
    return call(*args)


def test_a_node_that_settles_many_sentences_asks_for_as_much_work_as_ever() -> None:
    store = MemoryStore()

    async def asks() -> list[int]:
        spawn = asyncio.get_running_loop().create_task
        edges = Edges(store, _Nothing(), _at_once, spawn, clock.monotonic, Random(1), lambda *_, **__: None)
        node = Node("n1", "a", {}, edges, Pace(max_running=PLACES, plans=False))
        await node._look_for_fires()
        held = len(node._held)
        limit = node._new_ask().limit
        await node._report()
        return [held, limit, len(node._held), node._new_ask().limit]

    now = instant(clock.wall())
    missed = {"start_by": now - timedelta(seconds=5), "policy": Policy("Allow"), "origin": "manual"}
    store.put([Fire(f"a.b+{number}", "a.b", now, **missed) for number in range(MANY)])  # type: ignore[arg-type]
    held, limit, _, later = asyncio.run(asks())
    assert held == MANY
    assert limit == later == PLACES
