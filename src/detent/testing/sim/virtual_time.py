"""An event loop whose time jumps, simulated processes that can be stopped and killed, and blocking code in
virtual time."""

from __future__ import annotations

import asyncio
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import Context
from heapq import heappop, heappush
from itertools import count
from typing import Any, TypeVarTuple

from greenlet import getcurrent, greenlet

from detent.errors import StoreUnavailable

Ts = TypeVarTuple("Ts")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Never waits: when nothing is ready, time jumps to the next timer.

    Its timers are in tuples, which compare faster than the handles of asyncio."""

    _ready: deque[asyncio.Handle]

    def __init__(self) -> None:
        super().__init__()
        self._virtual = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = count()  # timers of the same instant run in the order in which they were set

    def time(self) -> float:
        return self._virtual

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def _run_once(self) -> None:
        ready, timers = self._ready, self._timers
        while timers and (timers[0][0] <= self._virtual or timers[0][2].cancelled() or not ready):
            when, _, timer = heappop(timers)
            if not timer.cancelled():
                self._virtual = max(self._virtual, when)
                ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()


class Process:
    """A group of tasks that stops (SIGSTOP), continues and dies (kill -9) as one."""

    def __init__(self) -> None:
        self.tasks: dict[asyncio.Task[None], None] = {}  # a dict keeps the order, so that a seed repeats
        self.runs = asyncio.Event()
        self.runs.set()
        self.dead = False

    def spawn(self, coro: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._gated(coro))
        self.tasks[task] = None
        task.add_done_callback(self.tasks.pop)
        return task

    def stop(self) -> None:
        self.runs.clear()

    def go_on(self) -> None:
        self.runs.set()

    def kill(self) -> None:
        self.dead = True
        for task in list(self.tasks):
            task.cancel()

    async def _gated(self, coro: Coroutine[Any, Any, None]) -> None:
        await self._steps(coro)

    @types.coroutine
    def _steps(self, coro: Coroutine[Any, Any, None]) -> Generator[Any, None, None]:
        """Run `coro` step by step, each step only while the process is not stopped."""
        step: Callable[[Any], Any] = coro.send
        value: BaseException | None = None
        try:
            while True:
                if not self.runs.is_set():
                    yield from self.runs.wait().__await__()
                future = step(value)
                try:
                    yield future
                    step, value = coro.send, None
                except BaseException as error:
                    if self.dead or isinstance(error, GeneratorExit):
                        raise
                    step, value = coro.throw, error
        except StopIteration:
            return
        finally:
            coro.close()


class Killed(BaseException):
    """Raised in blocking code when its simulated process is killed."""


class Handover:
    """Lets blocking code, in a greenlet, and an event loop run alternately.

    Virtual time stands still while the blocking code computes, and that code waits while the loop does what
    it asked for.  So one seed always gives the same history.  A greenlet switches in a microsecond; a thread
    takes a hundred times as long."""

    async def run(self, work: Callable[[], Any]) -> Any:
        """Run the blocking code; return its result, or raise what it raised."""
        blocking = greenlet(work)
        found = blocking.switch()
        while not blocking.dead:
            try:
                answer = await found
            except StoreUnavailable as error:
                found = blocking.throw(error)
            except BaseException:
                self._kill(blocking)
                raise
            else:
                found = blocking.switch(answer)
        return found

    def _kill(self, blocking: greenlet) -> None:
        with suppress(Killed):
            while not blocking.dead:
                asked = blocking.throw(Killed())
                if not blocking.dead:
                    asked.close()

    def wait_for(self, coro: Coroutine[Any, Any, Any]) -> Any:
        """Called by the blocking code: run this on the loop and return its result."""
        loop = getcurrent().parent
        assert loop, "only blocking code waits"
        return loop.switch(coro)
