"""Messages in the node itself: few at once, the next at hand, and given back where those who run are slow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from detent.clock import boottime
from detent.model import End, Outcome
from detent.worker.batch_message import SyncFuture
from detent.worker.batch_size import STALLED_S, BatchSize
from detent.worker.in_process_queue import InProcessQueue

DONE = End(Outcome("succeeded"), 0, 1e-4)


class Run:
    """Work that is guarded, and ends, when the test says so."""

    function = "m:f"
    on_guarded: Callable[[], object] | None = None
    is_guarded = has_begun = False

    def __init__(self) -> None:
        self.gone = SyncFuture.new()

    def guard(self) -> None:
        self.is_guarded = True
        assert self.on_guarded
        self.on_guarded()

    def begin(self) -> bool:
        self.has_begun = not self.gone.done()
        return self.has_begun

    def give_back(self) -> None:
        if not self.gone.done():
            self.gone.set_result(None)

    def extend(self, trusted_by: float) -> None: ...

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None: ...


class World:
    def __init__(self) -> None:
        self.batch_size = BatchSize(1)
        self.queue = InProcessQueue(2, self.batch_size)

    def asked(self, count: int) -> list[Run]:
        runs = [Run() for _ in range(count)]
        for run in runs:
            self.queue.add(run)
        return runs

    def guarded(self, count: int) -> list[Run]:
        runs = self.asked(count)
        for run in runs:
            run.guard()
        return runs


def begun(runs: list[Run]) -> list[bool]:
    return [run.has_begun for run in runs]


def play(scene: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await scene(World())

    asyncio.run(main())


def test_no_more_run_at_once_than_may_and_the_next_begins_when_one_has_ended() -> None:
    async def scene(world: World) -> None:
        runs = world.guarded(4)
        assert begun(runs) == [True, True, False, False]
        runs[1].gone.set_result(DONE)
        assert begun(runs) == [True, True, True, False]

    play(scene)


def test_none_begins_before_it_is_guarded_and_none_before_its_turn() -> None:
    async def scene(world: World) -> None:
        runs = world.asked(3)
        assert not any(begun(runs))
        runs[0].guard()
        assert begun(runs) == [True, False, False]
        runs[2].guard()
        assert begun(runs) == [True, False, False], "the second comes first"
        runs[1].guard()
        assert begun(runs) == [True, True, False]

    play(scene)


def test_one_that_is_not_wanted_any_more_keeps_nobody_waiting() -> None:
    async def scene(world: World) -> None:
        runs = world.asked(3)
        runs[0].give_back()
        runs[1].guard()
        assert begun(runs) == [False, True, False]
        runs[2].guard()
        assert begun(runs) == [False, True, True]

    play(scene)


def test_where_they_are_quick_more_may_be_claimed() -> None:
    async def scene(world: World) -> None:
        for run in world.guarded(30):
            run.gone.set_result(DONE)
        assert world.batch_size.prefetch_factor() > 1

    play(scene)


def test_what_is_not_begun_is_given_back_when_it_is_recalled_guarded_or_not() -> None:
    async def scene(world: World) -> None:
        runs = world.guarded(3) + world.asked(1)
        world.queue.recall()
        assert [run.gone.done() for run in runs] == [False, False, True, True]
        assert runs[3].gone.result() is None
        runs[0].gone.set_result(DONE)
        runs[3].guard()
        assert begun(runs) == [True, True, False, False]

    play(scene)


def test_who_waits_for_slow_ones_is_given_back() -> None:
    async def scene(world: World) -> None:
        runs, began = world.guarded(3), boottime()
        waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        runs[2].gone.add_done_callback(lambda _: waited.set_result(None))
        await asyncio.wait_for(waited, 10 * STALLED_S)
        assert runs[2].gone.result() is None and boottime() - began >= STALLED_S
        assert not runs[0].gone.done() and world.batch_size.prefetch_factor() == 1

    play(scene)


def test_who_waits_for_the_warden_while_there_is_room_is_not_given_back() -> None:
    async def scene(world: World) -> None:
        (slow,) = world.guarded(1)
        (asked,) = world.asked(1)
        await asyncio.sleep(2 * STALLED_S)  # as nothing is to happen, there is nothing to wait for
        assert not asked.gone.done() and not slow.gone.done()

    play(scene)
