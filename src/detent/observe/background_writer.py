"""Formats and writes log lines in a thread, so that a stalled reader of the log does not stop the node.

If the queue is full, new lines are dropped; their number is logged when there is room again.
"""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

LINES_MAX = 50_000
WRITE_MAX = 1000  # lines in one write
GATHER_S = 0.05  # lines of this time are written at once
BURST = 100  # more new lines than this in GATHER_S: wait longer, as formatting would slow down the node
BURST_MAX_S = 0.5
Line = str | Callable[[], str]  # a callable formats the line, without its line break


class BackgroundWriter:
    def __init__(self, fd: int, dropped: Callable[[int], str]) -> None:
        """`dropped` formats the line that reports how many lines were dropped."""
        self._fd, self._format_dropped = fd, dropped
        self._lines: SimpleQueue[Line | None] = SimpleQueue()
        self._dropped, self._closing = 0, threading.Event()
        self._thread = threading.Thread(target=self._write_all, name="detent-log", daemon=True)
        self._thread.start()

    def write(self, line: Line) -> None:
        if self._lines.qsize() >= LINES_MAX:
            self._dropped += 1
        else:
            self._lines.put(line)

    def close(self, seconds: float) -> None:
        """Write the remaining lines, but stop after this time."""
        self._lines.put(None)
        self._closing.set()
        self._thread.join(seconds)

    def _write_all(self) -> None:
        while lines := self._next_lines():
            with suppress(OSError):  # the reader is gone, or the disk is full
                if self._dropped and self._lines.qsize() < LINES_MAX // 2:
                    count, self._dropped = self._dropped, 0
                    self._write(self._format_dropped(count))
                self._write("".join(line if isinstance(line, str) else f"{line()}\n" for line in lines))

    def _next_lines(self) -> list[Line]:
        """Return the lines that arrive shortly after each other; none at the end."""
        lines: list[Line] = []
        while not lines or (len(lines) < WRITE_MAX and not self._lines.empty()):
            line = self._lines.get()
            if line is None:
                self._lines.put(None)  # for the next call
                break
            if not lines:
                self._gather()
            lines.append(line)
        return lines

    def _gather(self) -> None:
        """Wait for more lines, and longer during a burst while there is room in the queue."""
        for _ in range(round(BURST_MAX_S / GATHER_S)):
            before = self._lines.qsize()
            if self._closing.wait(GATHER_S) or not before + BURST < self._lines.qsize() < LINES_MAX // 2:
                return

    def _write(self, line: str) -> None:
        """Write past the stream's buffer: a stalled reader would make its flush at exit hang."""
        rest = line.encode("utf-8", "backslashreplace")
        while rest:
            rest = rest[os.write(self._fd, rest) :]
