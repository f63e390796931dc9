"""Makes the same calls on the in-memory and the SQLite store, and compares the results."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from detent.model import Ask, Claim, Fire, Outcome, Query, Row
from detent.stores.base import Store
from detent.stores.memory.store import MemoryStore
from detent.stores.sqlite.store import SqliteStore
from detent.testing.stores.fixtures import FakeClock


class Pair(NamedTuple):
    """Both stores, with the same clock."""

    clock: FakeClock
    stores: tuple[MemoryStore, SqliteStore]

    def same(self, call: Callable[[Store], list[Claim]]) -> list[tuple[str, Outcome | None]]:
        """The claims of both stores, which must be equal, as must all rows afterwards."""
        ours, theirs = ([(one.fire.key, one.disposition) for one in call(store)] for store in self.stores)
        assert sorted(theirs) == sorted(ours)
        assert rows(self.stores[1]) == rows(self.stores[0])
        assert self.waiting() == {
            key for key, one in self.stores[0].driver.state.records.items() if one.waits
        }
        return ours

    def waiting(self) -> set[str]:
        """The fires that wait for a lane.  No call returns them, but later decisions depend on them."""
        with closing(sqlite3.connect(self.stores[1].driver.file.path)) as db:
            return {key for (key,) in db.execute("SELECT key FROM fires WHERE waits")}

    def put(self, *fires: Fire) -> None:
        for store in self.stores:
            store.put(fires)

    def ask(self, number: int, limit: int, **fields: Any) -> list[tuple[str, Outcome | None]]:
        ask, waits_s = Ask("a", "n1", number, limit, **fields), list[float]()

        def claim(store: Store) -> list[Claim]:
            grants = store.claim(ask)
            waits_s.append(round(grants.next_in_s, 6))
            return list(grants.claims)

        granted = self.same(claim)
        assert waits_s[1] <= waits_s[0]
        return granted


def rows(store: Store) -> list[Row]:
    return store.find(Query(limit=10_000))


@contextmanager
def open_pair(path: Path) -> Iterator[Pair]:
    clock = FakeClock()
    sqlite = SqliteStore(path, clock.wall, clock.monotonic, lambda: "this boot")
    with closing(sqlite):
        yield Pair(clock, (MemoryStore(clock.wall, clock.monotonic), sqlite))
