"""The writer lock: lets processes begin write transactions one at a time.

SQLite's own lock is not fair: a process that writes without a pause can starve the others for seconds.  So a
writer first locks a file beside the store, and holds that lock until its transaction has begun.  The kernel
frees the lock of a process that dies.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from detent import clock

PAUSE_S = 0.002  # the longest pause between two tries


class WriterLock:
    def __init__(self, store: str) -> None:
        self._path = store + "-writer"

    @contextmanager
    def taken(self, deadline: float) -> Iterator[bool]:
        """Hold the lock.  Yields False if it was not free by the deadline."""
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            yield _lock(fd, deadline)
        finally:
            os.close(fd)


def pause() -> None:
    """Sleep for a random time, so that waiting processes do not stay in step."""
    threading.Event().wait(PAUSE_S * (1 + os.urandom(1)[0]) / 256)


def _lock(fd: int, deadline: float) -> bool:
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if clock.monotonic() >= deadline:
                return False
        pause()
