"""Limits how many messages run at once in the node's own process, and keeps the next ones ready.

Claiming a message, and having the warden guard it, costs more than many messages take to run.  So a worker
holds more messages than it runs, and has them guarded before they start.  If none ends for `STALLED_S`, or
the node drains, the messages that have not started are returned.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial

from detent.model import End
from detent.runners.running import AttemptEnd
from detent.worker.batch_size import STALLED_S, BatchSize
from detent.worker.in_process import GuardedCall


class InProcessQueue:
    def __init__(self, running_max: int, batch_size: BatchSize) -> None:
        self._running_max, self._batch_size = running_max, batch_size
        self._waiting: deque[GuardedCall] = deque()
        self._running: set[GuardedCall] = set()
        self._last_end_at = 0.0
        self._is_watching = False

    def add(self, call: GuardedCall) -> None:
        call.on_guarded = self._start
        call.gone.add_done_callback(partial(self._on_end, call))
        self._waiting.append(call)
        if not self._is_watching:
            self._last_end_at = asyncio.get_running_loop().time()
            self._watch()

    def recall(self) -> None:
        """Return all messages that have not started."""
        waiting, self._waiting = self._waiting, deque()
        for call in waiting:
            call.give_back()

    def _start(self) -> None:
        while self._waiting and len(self._running) < self._running_max:
            call = self._waiting[0]
            if not call.is_guarded and not call.gone.done():
                return  # the warden confirms guards in the order of the requests
            self._waiting.popleft()
            if call.begin():
                self._running.add(call)

    def _on_end(self, call: GuardedCall, gone: asyncio.Future[AttemptEnd]) -> None:
        if call not in self._running:
            return
        self._running.discard(call)
        self._last_end_at, end = asyncio.get_running_loop().time(), gone.result()
        if isinstance(end, End):
            self._batch_size.learn(call.function, end.took_s)
        self._start()

    def _watch(self) -> None:
        """Return the waiting messages if those that run are stalled."""
        loop = asyncio.get_running_loop()
        if len(self._running) >= self._running_max and loop.time() - self._last_end_at > STALLED_S:
            for call in self._running:
                self._batch_size.learn(call.function, STALLED_S)
            self.recall()
        self._is_watching = bool(self._waiting)
        if self._is_watching:
            loop.call_later(STALLED_S / 4, self._watch)
