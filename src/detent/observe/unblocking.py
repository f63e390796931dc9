"""A stream that nobody waits for: a log whose reader is stalled must not stop the node.

Lines are written by a thread of its own.  Where they come faster than they are taken, the newest are
dropped and counted; how many is told when there is room again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TextIO

LINES_MAX = 10_000


class Unblocking:
    def __init__(self, stream: TextIO, dropped: Callable[[int], str]) -> None:
        self._stream, self._word = stream, dropped
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
        """Each line is flushed when it is written."""

    def close(self, seconds: float) -> None:
        """Have the rest written, if somebody reads it."""
        self._lines.put(None)
        self._thread.join(seconds)

    def _write_all(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                if self._dropped and self._lines.qsize() < LINES_MAX // 2:
                    count, self._dropped = self._dropped, 0
                    self._stream.write(self._word(count))
                self._stream.write(line)
                self._stream.flush()
            except (OSError, ValueError):  # the reader is gone, or the disk is full: jobs go on
                continue
