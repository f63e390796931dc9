"""Whose turn it is to begin a transaction that writes.

SQLite gives its lock to whoever asks at the right moment, so that a process that writes without a
pause can keep it from the others for seconds.  So a writer first takes the turn, a lock on a file
beside the store, and keeps it until its transaction has begun: there is one candidate at a time, and
whoever has just written queues up again with all the others.  The kernel frees the lock of a process
that dies.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from detent import clock

PAUSE_S = 0.002  # between two tries, at most


class WriterLock:
    def __init__(self, store: str) -> None:
        self._path = store + "-writer"

    @contextmanager
    def taken(self, deadline: float) -> Iterator[bool]:
        """Hold the turn meanwhile.  False: it was not to be had in time."""
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            yield _lock(fd, deadline)
        finally:
            os.close(fd)


def pause() -> None:
    """A pause of random length: those who wait must not stay in step."""
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
