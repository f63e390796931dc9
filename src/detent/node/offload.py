"""Blocking calls, away from the loop: one thread for each line of a node's business.

A line is a queue of its own, and the store gives each thread a connection of its own: so a renewal
never waits behind a claim.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class Threads:
    def __init__(self, width: dict[str, int] | None = None) -> None:
        self._width = width or {}  # lines that may do several things at once
        self._lines: dict[str, ThreadPoolExecutor] = {}

    def begin(self, *lines: str) -> None:
        """Starts the threads of these lines: a Python that shuts down (from 3.12 on) starts no more."""
        for line in lines:
            self._line(line).submit(bool)

    async def __call__(self, line: str, call: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._line(line), call, *args)

    def _line(self, line: str) -> ThreadPoolExecutor:
        if line not in self._lines:
            width = self._width.get(line, 1)
            self._lines[line] = ThreadPoolExecutor(width, thread_name_prefix=f"detent-{line}")
        return self._lines[line]

    def close(self) -> None:
        for executor in self._lines.values():
            executor.shutdown(wait=False, cancel_futures=True)
