"""Tokens of messages: those of one process grow, and no two processes make the same."""

from __future__ import annotations

import os
import secrets
import threading
from datetime import datetime

_COUNT_MAX = 1 << 20


class Tokens:
    """48 bits of milliseconds, 20 of a count within them, and 60 that are this process' own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._own = secrets.token_hex(8)[1:]
        self._milliseconds, self._count = 0, 0

    def take(self, count: int, at: datetime) -> list[str]:
        """So many, each greater than all before it, also where the clock was set back."""
        with self._lock:
            now = int(at.timestamp() * 1000)
            if now > self._milliseconds:
                self._milliseconds, self._count = now, 0
            tokens: list[str] = []
            while len(tokens) < count:
                tokens += self._next(count - len(tokens))
            return tokens

    def _next(self, most: int) -> list[str]:
        """As many as there are within a millisecond."""
        if self._count == _COUNT_MAX:
            self._milliseconds, self._count = self._milliseconds + 1, 0
        first, self._count = self._count, min(self._count + most, _COUNT_MAX)
        start, own = f"{self._milliseconds:012x}", self._own
        return [f"{start}{number:05x}{own}" for number in range(first, self._count)]


TOKENS = Tokens()
os.register_at_fork(after_in_child=TOKENS.__init__)  # type: ignore[misc]  # a fork makes tokens of its own
