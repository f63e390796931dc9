"""A store that does not answer is reported once, and a worker waits before it asks again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from detent.errors import StoreUnavailable
from detent.node.ports import Ports, Tuning
from detent.node.store_calls import ERRORS_MAX, StoreCalls
from detent.stores.memory.store import MemoryStore

PACE = Tuning(retry_s=1.0, cooldown_s=60.0)


class World:
    def __init__(self) -> None:
        self.now, self.events, self.is_away = 100.0, list[str](), False
        self.calls = StoreCalls(self.ports(), "a", "n1", PACE)

    def ports(self) -> Ports:
        def emit(event: str, **fields: Any) -> None:
            self.events.append(event)

        def nothing(*_: Any) -> Any:
            raise AssertionError("nothing is started here")

        return Ports(MemoryStore(), nothing, self.offload, nothing, lambda: self.now, Random(), emit)  # type: ignore[arg-type]

    async def offload(self, line: str, call: Callable[..., Any], *args: Any) -> Any:
        self.now += 1
        if self.is_away:
            raise StoreUnavailable("it is away")
        return call(*args)

    def ask(self) -> None:
        asyncio.run(self.calls("look", lambda: None))


def test_after_several_failures_a_worker_waits_for_the_cooldown() -> None:
    world = World()
    world.is_away = True
    for _ in range(ERRORS_MAX):
        assert world.calls.pause_s() == PACE.retry_s
        with pytest.raises(StoreUnavailable):
            world.ask()
    assert world.calls.pause_s() == PACE.cooldown_s
    assert world.events == ["store-unavailable"]


def test_one_answer_ends_the_cooldown_and_wakes_the_node() -> None:
    world, woken = World(), list[bool]()
    world.calls.on_back = lambda: woken.append(True)
    world.is_away = True
    for _ in range(ERRORS_MAX + 1):
        with pytest.raises(StoreUnavailable):
            world.ask()
    world.is_away = False
    world.ask()
    assert world.calls.pause_s() == PACE.retry_s
    assert woken == [True]
    assert world.events == ["store-unavailable", "store-back"]
