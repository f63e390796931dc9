"""Threads for calls in this process: each call has a thread to itself, which later calls reuse.

Starting a thread takes longer than many calls do.  A thread without a call for `IDLE_S` ends, so that a
rarely called function does not find a stale connection in thread-local storage.
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
        self._lock = threading.Lock()
        self._idle = 0  # threads that wait, less the calls that are on their way
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
            call = None  # it must not be kept alive while the thread waits
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
        return self._calls.get()  # `run` has just put a call for this thread


@functools.cache
def threads() -> Threads:
    return Threads()


os.register_at_fork(after_in_child=threads.cache_clear)  # the child process does not have the threads
