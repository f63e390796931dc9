"""Threads that a call leaves behind: which of them still work, and how long a warm child waits for them.

1. A daemon thread does not count.  Neither does a thread of an executor that waits for work
   (`asyncio.to_thread`, name lookups, SDKs): the child keeps it and runs the next call.
2. Any other thread has `GRACE_S` to end after the function returned.  After that the child exits, with its
   threads.
3. Threads that the import of a module started belong to the module: no call waits for them.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from detent.clock import monotonic

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

GRACE_S = 1.0
POLL_S = 0.001
NAMED_MAX = 3
EXECUTOR, WORKER = "concurrent.futures.thread", "_worker"


class Leftovers:
    def __init__(self) -> None:
        self._of_modules: set[threading.Thread] = set()
        self._before: set[threading.Thread] = set()

    def note_import(self, is_under_way: bool) -> None:
        """An import begins or has ended."""
        threads = set(threading.enumerate())
        if is_under_way:
            self._before = threads
        else:
            self._of_modules = (self._of_modules & threads) | (threads - self._before)

    def wait(self, is_over: Callable[[], bool]) -> list[threading.Thread]:
        """Return the threads that still work after `GRACE_S`, or when `is_over` ends the wait."""
        until = monotonic() + GRACE_S
        while left := self.left():
            if is_over() or monotonic() >= until:
                return sorted(left, key=lambda thread: thread.name)
            threading.Event().wait(POLL_S)
        return []

    def left(self) -> set[threading.Thread]:
        """Return the threads of calls that work now."""
        return working() - self._of_modules


def working() -> set[threading.Thread]:
    """Return the threads for which a normal exit would wait, without those that wait for work."""
    if threading.active_count() == 1:
        return set()
    frames, ours = sys._current_frames(), threading.main_thread()
    return {
        thread
        for thread in threading.enumerate()
        if not thread.daemon and thread is not ours and not _is_idle(frames.get(thread.ident or 0))
    }


def _is_idle(frame: FrameType | None) -> bool:
    """Whether this is a thread of an executor that waits for work."""
    if frame is None or frame.f_code.co_name != WORKER or frame.f_globals.get("__name__") != EXECUTOR:
        return False
    known = frame.f_locals
    return "work_item" not in known and "work_queue" in known and bool(known["work_queue"].empty())


def named(threads: list[threading.Thread]) -> str:
    """Return `2 threads ("a", "b")`."""
    names = ", ".join(f'"{thread.name}"' for thread in threads[:NAMED_MAX])
    more = ", …" if len(threads) > NAMED_MAX else ""
    return f"{len(threads)} thread{'s' if len(threads) > 1 else ''} ({names}{more})"
