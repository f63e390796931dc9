"""Messages in the node itself: few at once, the next at hand, and given back where those who run are slow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from detent.clock import boottime
from detent.model import End, Outcome
from detent.node.attempt import Went
from detent.node.few import Few, Waiting
from detent.node.pacing import SLOW_S, Pacing

LATER = 1e9
DONE = End(Outcome("succeeded"), 0, 1e-4)


class Run:
    """Work that ends when the test says so."""

    def __init__(self, trusted_by: float) -> None:
        self.gone: asyncio.Future[Went] = asyncio.get_running_loop().create_future()
        self.trusted_by = trusted_by
        self.told: list[Outcome] = []

    def extend(self, trusted_by: float) -> None:
        self.trusted_by = trusted_by

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None:
        self.told.append(why)


class World:
    def __init__(self) -> None:
        self.pacing, self.runs = Pacing(1), list[Run]()
        self.few = Few(2, self.pacing)

    def add(self, trusted_by: float = LATER) -> Waiting:
        return self.few.add("m:f", trusted_by, self._start)

    def _start(self, trusted_by: float) -> Run:
        self.runs.append(Run(trusted_by))
        return self.runs[-1]


def play(scene: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await scene(World())

    asyncio.run(main())


def test_no_more_run_at_once_than_may_and_the_next_begins_when_one_has_ended() -> None:
    async def scene(world: World) -> None:
        ones = [world.add() for _ in range(4)]
        assert len(world.runs) == 2
        world.runs[1].gone.set_result(DONE)
        await asyncio.sleep(0)
        assert len(world.runs) == 3 and [one.gone.done() for one in ones] == [False, True, False, False]
        assert ones[1].gone.result() == DONE

    play(scene)


def test_where_they_are_quick_more_may_be_claimed() -> None:
    async def scene(world: World) -> None:
        for _ in range(30):
            world.add()
        for number in range(30):
            world.runs[number].gone.set_result(DONE)
            await asyncio.sleep(0)
        assert world.pacing.stretch() > 1

    play(scene)


def test_what_is_not_begun_is_given_back_when_it_is_recalled() -> None:
    async def scene(world: World) -> None:
        ones = [world.add() for _ in range(4)]
        world.few.recall()
        assert [one.gone.done() for one in ones] == [False, False, True, True]
        assert ones[3].gone.result() is None
        world.runs[0].gone.set_result(DONE)
        await asyncio.sleep(0)
        assert len(world.runs) == 2

    play(scene)


def test_who_waits_for_slow_ones_is_given_back() -> None:
    async def scene(world: World) -> None:
        ones, began = [world.add() for _ in range(3)], boottime()
        waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ones[2].gone.add_done_callback(lambda _: waited.set_result(None))
        await asyncio.wait_for(waited, 10 * SLOW_S)
        assert ones[2].gone.result() is None and boottime() - began >= SLOW_S
        assert not ones[0].gone.done() and world.pacing.stretch() == 1

    play(scene)


def test_one_that_is_stopped_or_not_trusted_before_it_begins_is_not_begun() -> None:
    async def scene(world: World) -> None:
        first, _, stopped, late, last = (
            world.add(),
            world.add(),
            world.add(),
            world.add(boottime()),
            world.add(),
        )
        stopped.stop(Outcome("cancelled"))
        assert stopped.gone.result() is None
        world.runs[0].gone.set_result(DONE)
        await asyncio.sleep(0)
        assert late.gone.result() is None and len(world.runs) == 3
        last.extend(LATER + 1)
        last.stop(Outcome("cancelled"))
        assert world.runs[2].trusted_by == LATER + 1 and len(world.runs[2].told) == 1
        assert first.gone.done() and not last.gone.done(), "it ends by itself"

    play(scene)
