"""Threads for calls in this process: each call has one to itself, and the next may have it after that.

To start a thread costs several times what many calls take.  One for which there was no call for `IDLE_S`
ends: what a seldom function kept for its thread, as a connection, is not there to be found stale.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

IDLE_S = 5.0

Act = Callable[[], object]


class Threads:
    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._lock, self._idle = threading.Lock(), 0  # how many wait for a call that nobody has put yet
        self._calls: SimpleQueue[Act] = SimpleQueue()

    def run(self, call: Act) -> None:
        with self._lock:
            is_idle = self._idle > 0
            self._idle -= is_idle
        if is_idle:
            self._calls.put(call)
        else:
            threading.Thread(target=self._work, args=(call,), name="detent-call", daemon=True).start()

    def _work(self, first: Act) -> None:
        call: Act | None = first
        while call:
            call()
            call = None  # nor kept while we wait
            call = self._next()

    def _next(self) -> Act | None:
        with self._lock:
            self._idle += 1
        try:
            return self._calls.get(timeout=self._idle_s)
        except Empty:
            pass
        with self._lock:
            if self._idle:
                self._idle -= 1
                return None
        return self._calls.get()  # just now somebody counted on us


@functools.cache
def threads() -> Threads:
    return Threads()


os.register_at_fork(after_in_child=threads.cache_clear)  # those that wait stayed with the parent
