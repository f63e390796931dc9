"""A driver that lets others act inside every unit of work: between its looks, and between look and commit.

It also loses replies of commits that happened, and lets commits arrive after their sender gave them up.
Whatever it does, the rules of the engine must hold: they depend on the checks of a commit alone, not on
which units of work run at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from random import Random
from typing import Any, NamedTuple

from detent.errors import StoreUnavailable
from detent.model import Found, Query, Row, Size, Tally
from detent.stores.engine.driver import Committed, Driver, Expect, Group, Header, Read


class Chances(NamedTuple):
    look: float = 0.15  # others act before a look
    commit: float = 0.5  # others act before a commit
    lose: float = 0.05  # the reply to a commit is lost
    delay: float = 0.03  # a commit arrives after its sender gave it up


CALM = Chances(0.0, 0.0, 0.0, 0.0)


class HostileDriver:
    """`act` lets others act, `defer` keeps a commit that arrives late.  `chances` is asked at each step."""

    def __init__(
        self,
        driver: Driver,
        rng: Random,
        act: Callable[[], None],
        defer: Callable[[Callable[[], object]], None],
        chances: Callable[[], Chances] = Chances,
    ) -> None:
        self._driver, self._rng, self._act, self._defer, self._chances = driver, rng, act, defer, chances
        self.refused = 0  # commits

    def hand(self, app: str) -> AbstractContextManager[None]:
        """No unit of work keeps others away."""
        return nullcontext()

    def look(self, app: str, reads: Sequence[Read]) -> tuple[Header, list[Any]]:
        if self._comes(self._chances().look):
            self._act()
        return self._driver.look(app, reads)

    def commit(self, app: str, expect: Expect, groups: Sequence[Group]) -> Committed | None:
        chances = self._chances()
        if self._comes(chances.commit):
            self._act()
        if self._comes(chances.delay):
            self._defer(partial(self._driver.commit, app, expect, groups))
            raise StoreUnavailable("the commit is still under way")
        committed = self._driver.commit(app, expect, groups)
        self.refused += committed is None or not all(committed.done)
        if self._comes(chances.lose):
            raise StoreUnavailable("the reply is lost")
        return committed

    def _comes(self, chance: float) -> bool:
        return chance > 0 and self._rng.random() < chance

    def find(self, query: Query) -> Found:
        return self._driver.find(query)

    def newest(self, app: str, jobs: Sequence[str], each: int) -> Mapping[str, list[Row]]:
        return self._driver.newest(app, jobs, each)

    def tally(self, app: str, starts: range) -> Iterable[Tally]:
        return self._driver.tally(app, starts)

    def count(self, app: str, queues: Sequence[str]) -> Mapping[str, Size]:
        return self._driver.count(app, queues)

    def apps(self) -> list[str]:
        return self._driver.apps()

    def prune(self, app: str, older_than_s: float, keep: int) -> int:
        return self._driver.prune(app, older_than_s, keep)

    def wait(self, app: str, seconds: float) -> bool:
        return self._driver.wait(app, seconds)

    def close(self) -> None:
        self._driver.close()
