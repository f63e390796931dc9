"""How much a node asks for: claims that it only settles take no room from work.

And when it renews: a wake-up renews the claims that it holds, but not those that are granted later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from random import Random
from typing import Any

from detent import clock
from detent.clock import instant
from detent.model import Ask, Claim, Command, Fire, Job, Outcome, Policy
from detent.node.attempt import HeldClaim
from detent.node.node import Node
from detent.node.ports import Ports, Tuning
from detent.stores.memory.store import MemoryStore
from detent.testing.sim.schedule import Every

MANY, PLACES = 50, 4


class _Nothing:
    """A starter of a node that has nothing to start."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name}: nothing can run here")


class _Renewing(MemoryStore):
    """Counts renewals."""

    renewed = 0

    def renew(self, claims: Sequence[Claim]) -> list[Outcome | None]:
        self.renewed += len(claims)
        return super().renew(claims)


async def _at_once(line: str, call: Callable[..., Any], *args: Any) -> Any:
    return call(*args)


def _node(
    store: MemoryStore,
    spawn: Callable[..., Any],
    call: Callable[..., Any] = _at_once,
    jobs: Mapping[str, Job] | None = None,
    plans: bool = False,
) -> Node:
    ports = Ports(store, _Nothing(), call, spawn, clock.monotonic, Random(1), lambda *_, **__: None)
    return Node("n1", "a", jobs or {}, ports, Tuning(max_running=PLACES, plans=plans))


def test_dispositions_take_no_room_from_work() -> None:
    store = MemoryStore()

    async def asks() -> list[int]:
        node = _node(store, asyncio.get_running_loop().create_task)
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


def test_a_wakeup_does_not_renew_claims_that_are_granted_after_it() -> None:
    async def renewed(when: str) -> int:
        store = _Renewing()

        async def call(line: str, call: Callable[..., Any], *args: Any) -> Any:
            if when == "during" and call == store.claim:
                node.wake()
            return call(*args)

        node = _node(store, lambda step: step.close(), call)
        store.put([Fire("a.b+1", "a.b", instant(clock.wall()), policy=Policy("Allow"), origin="manual")])
        if when == "before":
            node.wake()
        await node._look_for_fires()
        assert len(node._held) == 1
        if when == "after":
            node.wake()
        await node._renew()
        return store.renewed

    assert [asyncio.run(renewed(when)) for when in ("before", "during", "after")] == [0, 1, 1]


def test_a_job_is_claimed_again_once_our_definition_is_in_force() -> None:
    store, job = MemoryStore(), Job("a.b", Every(3600), Command(("true",)), Policy("Allow"), revision="new")
    store.set_jobs("a", 0, {"a.b": "old"})
    store.put([Fire("a.b@1", "a.b", instant(clock.wall()), policy=job.policy, revision="old")])

    async def excluded() -> list[tuple[str, ...]]:
        node = _node(store, lambda step: step.close(), jobs={"a.b": job}, plans=True)
        [claim] = store.claim(Ask("a", "n1", 1)).claims
        held = HeldClaim(claim, clock.monotonic())
        node._held.add([held])
        await node._start_all([held])
        before = node._new_ask().without
        await node.planner.read_watermarks()
        still = node._new_ask().without
        await node.planner._deploy()
        return [before, still, node._new_ask().without]

    assert asyncio.run(excluded()) == [("a.b",), ("a.b",), ()], "not again and again while it is others'"
