"""A stream that nobody waits for: a log whose reader is stalled must not stop the node.

Lines are worded and written by a thread of its own.  Where they come faster than they are taken, the
newest are dropped and counted; how many is told when there is room again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

LINES_MAX = 50_000
WRITE_MAX = 1000  # lines in one write
GATHER_S = 0.05  # a burst of events must not become a burst of wake-ups and writes
BURST = 100  # lines in that time: what they tell of comes before the telling
BURST_MAX_S = 0.5
Line = str | Callable[[], str]  # one that is yet to be worded has no line break


class BackgroundWriter:
    def __init__(self, fd: int, dropped: Callable[[int], str]) -> None:
        self._fd, self._word = fd, dropped
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
        """Have the rest written, if somebody reads it."""
        self._lines.put(None)
        self._closing.set()
        self._thread.join(seconds)

    def _write_all(self) -> None:
        while lines := self._next_lines():
            with suppress(OSError):  # the reader is gone, or the disk is full: jobs go on
                if self._dropped and self._lines.qsize() < LINES_MAX // 2:
                    count, self._dropped = self._dropped, 0
                    self._write(self._word(count))
                self._write("".join(line if isinstance(line, str) else f"{line()}\n" for line in lines))

    def _next_lines(self) -> list[Line]:
        """What is there a moment after the first one, in one piece.  No line: the end."""
        lines: list[Line] = []
        while not lines or (len(lines) < WRITE_MAX and not self._lines.empty()):
            line = self._lines.get()
            if line is None:
                self._lines.put(None)  # for the next time, if there is something to write first
                break
            if not lines:
                self._gather()
            lines.append(line)
        return lines

    def _gather(self) -> None:
        """Wait for more, and while it comes fast, as far as there is room: who emits it needs the interpreter
        that wording takes."""
        for _ in range(round(BURST_MAX_S / GATHER_S)):
            before = self._lines.qsize()
            if self._closing.wait(GATHER_S) or not before + BURST < self._lines.qsize() < LINES_MAX // 2:
                return

    def _write(self, line: str) -> None:
        """Past the stream's buffer, in which a line that nobody takes would stay until the end."""
        rest = line.encode("utf-8", "backslashreplace")
        while rest:
            rest = rest[os.write(self._fd, rest) :]
