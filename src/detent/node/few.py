"""Messages that run in the node's own process: few at once, the next at hand.

To claim one costs more than many take to run, here as in a child.  So a worker holds more of them than run at
once; where nothing has ended for `SLOW_S`, or the node ends, those that are not begun are given back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from detent.clock import boottime
from detent.model import End, Outcome
from detent.node.attempt import Running, Went
from detent.node.members import Parting
from detent.node.pacing import SLOW_S, Pacing

Start = Callable[[float], Running]  # with the instant until which it is trusted


class Waiting:
    """One message, begun or not."""

    def __init__(self, function: str, trusted_by: float, start: Start) -> None:
        self.gone = Parting.new()
        self.function, self._trusted_by, self._start = function, trusted_by, start
        self.running: Running | None = None

    def begin(self) -> Running | None:
        """None: it is too late for that, or nobody wants it any more."""
        if self.gone.done() or boottime() >= self._trusted_by:
            self.resolve(None)
            return None
        self.running = self._start(self._trusted_by)
        return self.running

    def extend(self, trusted_by: float) -> None:
        self._trusted_by = max(self._trusted_by, trusted_by)
        if self.running:
            self.running.extend(trusted_by)

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None:
        if self.running:
            self.running.stop(why, kill_after_s)
        else:
            self.resolve(None)

    def resolve(self, went: Went) -> None:
        if not self.gone.done():
            self.gone.set_result(went)


class Few:
    def __init__(self, most: int, pacing: Pacing) -> None:
        self._most, self._pacing = most, pacing
        self._waiting: deque[Waiting] = deque()
        self._begun: set[Waiting] = set()
        self._ended_at = 0.0  # the last of them
        self._is_looking = False

    def add(self, function: str, trusted_by: float, start: Start) -> Waiting:
        one = Waiting(function, trusted_by, start)
        self._waiting.append(one)
        self._begin()
        return one

    def recall(self) -> None:
        """Whatever is not begun is given back."""
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            one.resolve(None)

    def _begin(self) -> None:
        while self._waiting and len(self._begun) < self._most:
            one = self._waiting.popleft()
            if running := one.begin():
                self._begun.add(one)
                running.gone.add_done_callback(partial(self._end, one))
        if self._waiting and not self._is_looking:
            self._ended_at = asyncio.get_running_loop().time()
            self._look()

    def _end(self, one: Waiting, gone: asyncio.Future[Went]) -> None:
        self._begun.discard(one)
        self._ended_at, went = asyncio.get_running_loop().time(), gone.result()
        if isinstance(went, End):
            self._pacing.learn(one.function, went.took_s)
        one.resolve(went)
        self._begin()

    def _look(self) -> None:
        """Are those that run slow?"""
        loop = asyncio.get_running_loop()
        if loop.time() - self._ended_at > SLOW_S:
            for one in self._begun:
                self._pacing.learn(one.function, SLOW_S)
            self.recall()
        self._is_looking = bool(self._waiting)
        if self._is_looking:
            loop.call_later(SLOW_S / 4, self._look)
