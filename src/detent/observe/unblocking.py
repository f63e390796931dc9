"""A stream that nobody waits for: a log whose reader is stalled must not stop the node.

Lines are written by a thread of its own.  Where they come faster than they are taken, the newest are
dropped and counted; how many is told when there is room again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

LINES_MAX = 10_000


class Unblocking:
    def __init__(self, fd: int, dropped: Callable[[int], str]) -> None:
        self._fd, self._word = fd, dropped
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._dropped = 0
        self._thread = threading.Thread(target=self._write_all, name="detent-log", daemon=True)
        self._thread.start()

    def write(self, line: str) -> None:
        if self._lines.qsize() >= LINES_MAX:
            self._dropped += 1
        else:
            self._lines.put(line)

    def flush(self) -> None:
        """There is no buffer."""

    def close(self, seconds: float) -> None:
        """Have the rest written, if somebody reads it."""
        self._lines.put(None)
        self._thread.join(seconds)

    def _write_all(self) -> None:
        while (line := self._lines.get()) is not None:
            with suppress(OSError):  # the reader is gone, or the disk is full: jobs go on
                if self._dropped and self._lines.qsize() < LINES_MAX // 2:
                    count, self._dropped = self._dropped, 0
                    self._write(self._word(count))
                self._write(line)

    def _write(self, line: str) -> None:
        """Past the stream's buffer, in which a line that nobody takes would stay until the end."""
        rest = line.encode("utf-8", "backslashreplace")
        while rest:
            rest = rest[os.write(self._fd, rest) :]
