"""The store in the memory of one process: for tests, dry runs and apps without a store."""

from __future__ import annotations

from collections.abc import Callable

from detent import clock
from detent.stores.engine.engine import Engine
from detent.stores.memory.driver import MemoryDriver


class MemoryStore(Engine):
    """`wall` decides what is due, `steady` when a claim expires.  `wake` is called when nodes should ask."""

    def __init__(
        self,
        wall: Callable[[], float] = clock.wall,
        steady: Callable[[], float] = clock.monotonic,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(MemoryDriver(wall, steady, wake))
