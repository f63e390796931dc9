"""Messages that run in the node's own process: few at once, the next at hand.

To claim one costs more than many take to run, here as in a child, and so does to have it guarded.  So a
worker holds more of them than run at once, and all are guarded before their turn comes; where nothing has
ended for `SLOW_S`, or the node ends, those that are not begun are given back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from detent.model import End
from detent.runners.running import AttemptEnd, Running
from detent.worker.batch_size import STALLED_S, BatchSize


class QueuedCall(Running, Protocol):
    """One message, begun or not."""

    turn: Callable[[], object] | None  # called when it is guarded

    @property
    def function(self) -> str: ...

    @property
    def is_guarded(self) -> bool: ...

    def begin(self) -> bool:
        """False: it is too late for that, or nobody wants it any more."""

    def give_back(self) -> None: ...


class InProcessQueue:
    def __init__(self, most: int, batch_size: BatchSize) -> None:
        self._most, self._batch_size = most, batch_size
        self._waiting: deque[QueuedCall] = deque()
        self._begun: set[QueuedCall] = set()
        self._ended_at = 0.0  # the last of them
        self._is_looking = False

    def add(self, one: QueuedCall) -> None:
        one.turn = self._begin
        one.gone.add_done_callback(partial(self._end, one))
        self._waiting.append(one)
        if not self._is_looking:
            self._ended_at = asyncio.get_running_loop().time()
            self._look()

    def recall(self) -> None:
        """Whatever is not begun is given back."""
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            one.give_back()

    def _begin(self) -> None:
        while self._waiting and len(self._begun) < self._most:
            one = self._waiting[0]
            if not one.is_guarded and not one.gone.done():
                return  # guards are granted in the order in which they were asked for
            self._waiting.popleft()
            if one.begin():
                self._begun.add(one)

    def _end(self, one: QueuedCall, gone: asyncio.Future[AttemptEnd]) -> None:
        if one not in self._begun:
            return
        self._begun.discard(one)
        self._ended_at, went = asyncio.get_running_loop().time(), gone.result()
        if isinstance(went, End):
            self._batch_size.learn(one.function, went.took_s)
        self._begin()

    def _look(self) -> None:
        """Are those that run slow?"""
        loop = asyncio.get_running_loop()
        if len(self._begun) >= self._most and loop.time() - self._ended_at > STALLED_S:
            for one in self._begun:
                self._batch_size.learn(one.function, STALLED_S)
            self.recall()
        self._is_looking = bool(self._waiting)
        if self._is_looking:
            loop.call_later(STALLED_S / 4, self._look)
