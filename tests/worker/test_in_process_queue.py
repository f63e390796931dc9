"""The queue of messages in the node's process: its limit, its order, and its recalls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from detent.clock import boottime
from detent.model import End, Outcome
from detent.worker.batch_size import STALLED_S, BatchSize
from detent.worker.in_process_queue import InProcessQueue

DONE = End(Outcome("succeeded"), 0, 1e-4)


class Run:
    """A call that is guarded, and ends, when the test says so."""

    function = "m:f"
    on_guarded: Callable[[], object] | None = None
    is_guarded = has_begun = False

    def __init__(self) -> None:
        self.gone: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

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


def test_the_next_call_starts_when_one_ends_and_never_too_many_run() -> None:
    async def scene(world: World) -> None:
        runs = world.guarded(4)
        assert begun(runs) == [True, True, False, False]
        runs[1].gone.set_result(DONE)
        await asyncio.sleep(0)
        assert begun(runs) == [True, True, True, False]

    play(scene)


def test_calls_start_in_order_and_only_when_guarded() -> None:
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


def test_a_stopped_call_does_not_block_the_queue() -> None:
    async def scene(world: World) -> None:
        runs = world.asked(3)
        runs[0].give_back()
        runs[1].guard()
        assert begun(runs) == [False, True, False]
        runs[2].guard()
        assert begun(runs) == [False, True, True]

    play(scene)


def test_quick_calls_raise_the_prefetch_factor() -> None:
    async def scene(world: World) -> None:
        runs = world.guarded(30)
        while waiting := [run for run in runs if not run.gone.done()]:
            for run in waiting:
                if run.has_begun:
                    run.gone.set_result(DONE)
            await asyncio.sleep(0)
        assert world.batch_size.prefetch_factor() > 1

    play(scene)


def test_a_recall_returns_all_calls_that_have_not_started() -> None:
    async def scene(world: World) -> None:
        runs = world.guarded(3) + world.asked(1)
        world.queue.recall()
        assert [run.gone.done() for run in runs] == [False, False, True, True]
        assert runs[3].gone.result() is None
        runs[0].gone.set_result(DONE)
        runs[3].guard()
        await asyncio.sleep(0)
        assert begun(runs) == [True, True, False, False]

    play(scene)


def test_calls_behind_stalled_ones_are_returned() -> None:
    async def scene(world: World) -> None:
        runs, began = world.guarded(3), boottime()
        waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        runs[2].gone.add_done_callback(lambda _: waited.set_result(None))
        await asyncio.wait_for(waited, 10 * STALLED_S)
        assert runs[2].gone.result() is None and boottime() - began >= STALLED_S
        assert not runs[0].gone.done() and world.batch_size.prefetch_factor() == 1

    play(scene)


def test_calls_that_wait_for_the_warden_are_not_returned() -> None:
    async def scene(world: World) -> None:
        (slow,) = world.guarded(1)
        (asked,) = world.asked(1)
        await asyncio.sleep(2 * STALLED_S)  # nothing must happen, so there is no event to wait for
        assert not asked.gone.done() and not slow.gone.done()

    play(scene)
