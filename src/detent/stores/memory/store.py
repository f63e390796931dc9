"""The store in the memory of one process: for tests, dry runs and apps without a store."""

from detent import clock
from detent.stores.engine.engine import Engine
from detent.stores.memory.driver import Clock, MemoryDriver


class MemoryStore(Engine):
    """`wall` decides what is due, `steady` when a claim expires."""

    driver: MemoryDriver

    def __init__(self, wall: Clock = clock.wall, steady: Clock = clock.monotonic) -> None:
        super().__init__(MemoryDriver(wall, steady))
