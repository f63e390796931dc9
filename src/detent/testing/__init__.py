"""For tests of apps: a fake clock and an app in memory, also as pytest fixtures (`plugin`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from detent.app.dry_run import FakeClock, Fired

__all__ = ["FakeClock", "Fired", "app_in_memory"]

if TYPE_CHECKING:
    from detent.app.app import Detent


def app_in_memory(name: str = "test", clock: FakeClock | None = None) -> Detent:
    """An app whose store is in memory and uses this clock."""
    from detent.app.app import Detent
    from detent.stores.memory.store import MemoryStore

    clock = clock or FakeClock()
    return Detent(name, store=MemoryStore(clock.wall, clock.monotonic), clock=clock)
