"""Two engines on one store, of which the second acts exactly between a look and a commit of the first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from detent.model import Outcome, Query, Verdict
from detent.stores.engine.driver import Committed, Expect, Group
from detent.stores.engine.engine import Engine
from detent.stores.memory.driver import MemoryDriver
from detent.testing.hostile import Chances, HostileDriver
from detent.testing.stores.fixtures import FakeClock

ALWAYS = Chances(look=0.0, commit=1.0, lose=0.0, delay=0.0)
BACKEND = Verdict(Outcome("failed", "503", "backend"))


class Certain:
    def random(self) -> float:
        return 0.0


class World:
    """`me` is the unit of work under test, `other` acts between its look and its commit."""

    def __init__(self, driver_type: type[MemoryDriver]) -> None:
        self.clock = FakeClock()
        self.driver = driver_type(self.clock.wall, self.clock.monotonic)
        self.other = Engine(self.driver)
        rng: Any = Certain()
        hostile = HostileDriver(self.driver, rng, self._act, lambda commit: None, lambda: ALWAYS)
        self.me = Engine(hostile)
        self._between: Callable[[], object] | None = None

    def between(self, act: Callable[[], object]) -> None:
        """Do this once, before the next commit of `me`."""
        self._between = act

    def _act(self) -> None:
        act, self._between = self._between, None
        if act:
            act()

    def grants(self) -> list[str]:
        """The fires that run."""
        return [one.fire.key for one in self.other.find(Query("a", state="claimed"))]


class WithoutCells(MemoryDriver):
    prefix = ""

    def commit(self, app: str, expect: Expect, groups: Sequence[Group]) -> Committed | None:
        unchecked = [
            group._replace(
                cells=[
                    one._replace(version=None) if one.name.startswith(self.prefix) else one
                    for one in group.cells
                ]
            )
            for group in groups
        ]
        return super().commit(app, expect, unchecked)


class NoLaneVersion(WithoutCells):
    prefix = "lane/"
