"""The fires of one SQLite transaction: read once, changed as objects, and written back in one batch.

A statement reads what is in the file, so `save` comes before a statement that must see a changed fire.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from detent.model import Attempt, Fire
from detent.rules.lanes import OpenFire
from detent.stores.base import is_spent
from detent.stores.record import open_fire
from detent.stores.sqlite.rows import (
    CHANGE,
    COLUMNS,
    RECORD,
    Kept,
    attempt_values,
    change_values,
    entry_of,
    record_values,
)


class Fires:
    def __init__(self, db: sqlite3.Connection, wall: float, monotonic: float) -> None:
        self._db, self._wall, self._monotonic = db, wall, monotonic
        self._entries: dict[str, Kept] = {}
        self._forgotten: set[str] = set()
        self._lanes: dict[str, list[Kept]] = {}
        self._open_fires: dict[str, list[OpenFire]] = {}  # of lanes in which no fire changed since
        self._holders: dict[str, list[OpenFire]] = {}  # of lanes in which no claim changed since
        self._graces: dict[str, int] | None = None
        self._changed: dict[int, Kept] = {}
        self._attempts: list[tuple[int, Attempt]] = []

    # Read.

    def entry(self, key: str) -> Kept | None:
        return self._entries.get(key) or next(self.select("key = ?", (key,)), None)

    def open_entry(self, key: str) -> Kept | None:
        entry = self.entry(key)
        return entry if entry and entry.state != "over" else None

    def fetch(self, keys: Iterable[str]) -> None:
        """Read these fires with one statement; `entry` then finds them without another."""
        for _ in self.select(f"key IN {_IDS}", (json.dumps(list(keys)),)):
            pass

    def select(
        self, where: str, values: tuple[Any, ...] | dict[str, Any] = (), source: str = "fires"
    ) -> Iterator[Kept]:
        for row in self._db.execute(f"SELECT {COLUMNS} FROM {source} WHERE {where}", values):
            yield self._entries.get(row[1]) or self._entries.setdefault(row[1], entry_of(row))

    def lane(self, lane: str) -> list[OpenFire]:
        """The claimed, due and waiting fires of a lane, in the order of recording.  Fires that are planned
        ahead are left out: there may be thousands, and they do not affect a decision."""
        if lane and lane not in self._lanes:
            self._lanes[lane] = list(self.select(_LANE, (lane, lane, self._wall, lane)))
        if lane and lane not in self._open_fires:
            self._open_fires[lane] = [self.open_fire(entry) for entry in self._lanes[lane]]
        return self._open_fires[lane] if lane else []

    def holders(self, lane: str) -> list[OpenFire]:
        """The claimed fires of a lane."""
        if lane not in self._holders:
            self.save()
            found = self.select(f"id IN ({_OPEN} AND state = 'claimed') ORDER BY id", (lane,))
            self._holders[lane] = [self.open_fire(entry) for entry in found]
        return self._holders[lane]

    def waiters(self, lane: str) -> list[OpenFire]:
        """The fires that wait for a place in a lane."""
        self.save()
        found = self.select("lane = ? AND state = 'pending' AND waits = 1 ORDER BY id", (lane,))
        return [self.open_fire(entry) for entry in found]

    def graces(self) -> dict[str, int]:
        """For each lane, how many places are still taken by the grace of a finished fire."""
        if self._graces is None:
            counts = "SELECT lane, count(*) FROM graces WHERE until > ? GROUP BY lane"
            self._graces = dict(self._db.execute(counts, (self._monotonic,)).fetchall())
        return self._graces

    def open_fire(self, entry: Kept) -> OpenFire:
        return open_fire(entry, self._wall, self._monotonic)

    def is_live(self, entry: Kept) -> bool:
        return entry.state == "claimed" and entry.expires > self._monotonic

    def is_forgotten(self, entry: Kept) -> bool:
        """A statement that is still being read may return a fire that was deleted after it began."""
        return entry.fire.key in self._forgotten

    def has_attempt(self, entry: Kept) -> bool:
        """Whether the newest attempt of a claimed fire is recorded.  The claim's own attempt never is."""
        if entry.ran[1] == entry.fence:
            return False
        found = "SELECT 1 FROM attempts WHERE fire = ? AND number = ?"
        return self._db.execute(found, (entry.id, entry.attempt)).fetchone() is not None

    # Write.

    def record(self, fire: Fire, run_at: float) -> bool:
        """Record the fire if its key is free; say whether it was."""
        values = record_values(fire, run_at)
        if self._db.execute(RECORD, values).rowcount == 1:
            return True
        return self._make_room(fire) and self._db.execute(RECORD, values).rowcount == 1

    def record_all(self, fires: Sequence[Fire], run_at: float) -> list[bool]:
        """`record` for many.  Usually all keys are new, and one statement inserts them."""
        keys = {fire.key for fire in fires}
        if len(keys) < len(fires) or self._db.execute(_HAS_ANY, (json.dumps(list(keys)),)).fetchone():
            return [self.record(fire, run_at) for fire in fires]
        self._db.executemany(RECORD, (record_values(fire, run_at) for fire in fires))
        return [True] * len(fires)

    def _make_room(self, fire: Fire) -> bool:
        """Delete the finished fire that holds this key, if the key is no longer unique."""
        old = self.entry(fire.key) if fire.policy.unique_s else None
        if not old or old.state != "over" or not old.outcome:
            return False
        if not is_spent(fire, old.fire, old.outcome, self._wall):
            return False
        self.save()
        self._forget(old)
        return True

    def drop_late_hooks(self, fire: Fire) -> None:
        """Delete the pending `on_late` hooks of a fire that started or ended."""
        for hook in fire.policy.hooks:
            key = f"{fire.key}/{hook}"
            entry = self.entry(key) if hook.startswith("on_late") else None
            if entry and entry.state == "pending":
                self._forget(entry)
                self._forgotten.add(key)

    def _forget(self, entry: Kept) -> None:
        self.delete([entry.id])
        self._changed.pop(entry.id, None)
        self.outdate([(entry.fire.key, entry.fire.lane)])

    def delete(self, ids: Sequence[int]) -> None:
        for statement in _DELETE:
            self._db.execute(statement, (json.dumps(ids),))

    def outdate(self, fires: Iterable[tuple[str, str]]) -> None:
        """Drop what was read of these keys and lanes, because a statement changed their rows."""
        by_lane = [read for read in (self._lanes, self._open_fires, self._holders) if read]
        if not self._entries and not by_lane:
            return
        for key, lane in fires:
            self._entries.pop(key, None)
            for read in by_lane:
                read.pop(lane, None)

    def change(self, entry: Kept) -> None:
        """Mark a fire as changed, for the next `save`."""
        self._changed[entry.id] = entry
        self._open_fires.pop(entry.fire.lane, None)
        if entry.state != "pending":
            self._holders.pop(entry.fire.lane, None)

    def add_attempt(self, entry: Kept, attempt: Attempt) -> None:
        self._attempts.append((entry.id, attempt))

    def add_output(self, output: Sequence[tuple[int, int, bytes, str]]) -> None:
        """Record what attempts wrote and returned: fire, number of the attempt, tail and result of each."""
        tails = [(id, number, tail) for id, number, tail, _ in output if tail]
        self._db.executemany("INSERT OR REPLACE INTO tails VALUES (?, ?, ?)", tails)
        results = [(id, number, result) for id, number, _, result in output if result]
        self._db.executemany("INSERT OR REPLACE INTO results VALUES (?, ?, ?)", results)

    def save(self) -> None:
        if self._changed:
            self._db.executemany(CHANGE, map(change_values, self._changed.values()))
        if self._attempts:
            self._db.executemany(_ADD_ATTEMPT, (attempt_values(*one) for one in self._attempts))
            self.add_output([(id, one.number, one.tail, one.result) for id, one in self._attempts])
        self._changed.clear()
        self._attempts.clear()


_IDS = "(SELECT value FROM json_each(?))"
_OPEN = "SELECT id FROM fires WHERE lane = ? AND lane <> '' AND state <> 'over'"  # as the index is defined
_LANE = f"""id IN (
    {_OPEN} AND state = 'claimed'
    UNION {_OPEN} AND state = 'pending' AND run_at <= ?
    UNION SELECT id FROM fires WHERE lane = ? AND state = 'pending' AND waits = 1
) ORDER BY id"""
_ADD_ATTEMPT = f"INSERT OR REPLACE INTO attempts VALUES ({', '.join('?' * 9)})"
_HAS_ANY = f"SELECT 1 FROM fires WHERE key IN {_IDS} LIMIT 1"
_DELETE = [
    f"DELETE FROM {table} WHERE {column} IN {_IDS}"
    for table, column in (("fires", "id"), ("attempts", "fire"), ("tails", "fire"), ("results", "fire"))
]
