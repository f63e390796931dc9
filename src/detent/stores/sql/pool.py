"""A bounded pool of connections.  A forked process opens its own, and does not touch those of its parent."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from detent import clock
from detent.errors import StoreUnavailable, UsageError
from detent.text import quote

SIZE, SIZE_MAX = 10, 1000  # connections of one process
REST_S = 600  # a connection that was not used for so long is closed


class Connection(Protocol):
    @property
    def is_open(self) -> bool: ...

    def close(self) -> None: ...


C = TypeVar("C", bound=Connection)


class _Process(Generic[C]):
    """The connections of one process."""

    def __init__(self, size: int) -> None:
        self.places, self.lock = threading.BoundedSemaphore(size), threading.Lock()
        self.free: dict[float, list[tuple[C, float]]] = {}  # with the time since when they rest


class Pool(Generic[C]):
    """Connections of several kinds share its places."""

    def __init__(self, size: int, name: str, open: Callable[[float], C]) -> None:
        self._size, self._name, self._open = size, name, open
        self._processes: dict[int, _Process[C]] = {}

    @contextmanager
    def connection(self, within_s: float, kind: float = 0) -> Iterator[C]:
        """A connection of this kind, as soon as there is a place."""
        process = self._processes.setdefault(os.getpid(), _Process(self._size))
        if not process.places.acquire(timeout=within_s):
            raise StoreUnavailable(
                f"the store {self._name} was not called: all {self._size} connections of this process were "
                "busy for too long; raise pool_size in the store's URL, or use fewer threads"
            )
        try:
            connection = self._take(process, kind) or self._open(kind)
            try:
                yield connection
            finally:
                self._give_back(process, kind, connection)
        finally:
            process.places.release()

    def _take(self, process: _Process[C], kind: float) -> C | None:
        with process.lock:
            free = process.free.setdefault(kind, [])
            return free.pop()[0] if free else None

    def _give_back(self, process: _Process[C], kind: float, connection: C) -> None:
        now = clock.monotonic()
        is_current = self._processes.get(os.getpid()) is process  # else the pool was closed meanwhile
        with process.lock:
            free = process.free.setdefault(kind, [])
            free.append((connection, now))
            # If this one is broken, then the others probably are, too.
            since = now - REST_S if is_current and connection.is_open else now
            while free and free[0][1] <= since:
                free.pop(0)[0].close()

    def close(self) -> None:
        process = self._processes.pop(os.getpid(), None)
        if process:
            with process.lock:
                for connection, _ in (one for free in process.free.values() for one in free):
                    connection.close()
                process.free.clear()


def read_size(text: str, scheme: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= SIZE_MAX):
        raise UsageError(
            f'bad store "{scheme}:": pool_size is {quote(text)}; give the number of connections that one '
            f"process may open, from 1 to {SIZE_MAX:,}"
        )
    return int(text)
