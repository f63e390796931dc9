"""One call of the SQLite store: its transaction, its instant, and the fires it has touched.

1. The clocks are read once, together, when the transaction has begun.
2. A fire is one object for the length of a call, however it was found; what changed is written in one
   batch by `save`, so a statement that looks for what the call itself changed comes after that.
3. Whatever the world did meanwhile (a new epoch, another boot, a step of the wall clock) is put down by
   the first call that writes and notices.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, cast

from detent.clock import instant
from detent.model import Attempt, Fire, Watermark
from detent.rules.lanes import OpenFire
from detent.rules.trust import STEP_S
from detent.stores.base import BREAKER, ORPHANS_TTL_S, PAUSE, RATE, is_spent, leap
from detent.stores.encoding import policy_of
from detent.stores.record import open_fire
from detent.stores.sqlite.clocks import Clocks, Header
from detent.stores.sqlite.file import Link
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

DRIFT_S = 0.05  # the clocks drift apart; only more than this is worth a write


class Transaction:
    def __init__(self, link: Link, clocks: Clocks) -> None:
        self.db, self._link, self._boot = link.db, link, clocks.boot_id
        self.wall, self.monotonic = clocks.read()
        row = self.one(_HEADER)
        self._found = self.header = Header(*row) if row else Header("", "", "", "", 0.0)
        self._entries: dict[str, Kept] = {}
        self._gone: set[str] = set()
        self._lanes: dict[str, list[Kept]] = {}
        self._open_fires: dict[str, list[OpenFire]] = {}  # of lanes in which nothing changed since
        self._holders: dict[str, list[OpenFire]] = {}  # of lanes in which nobody got or lost a claim since
        self._changed: dict[int, Kept] = {}
        self._attempts: list[tuple[int, Attempt]] = []
        self._fences: dict[str, int] = {}
        self._jobs: dict[str, tuple[float | None, float | None]] = {}
        self._read: dict[tuple[str, str], Any] = {}

    # The world.

    @property
    def is_current(self) -> bool:
        """Has nothing happened to the world that must be put down?"""
        w, step = self._found, self.wall - self.monotonic - self._found.clock
        return (w.file, w.device, w.boot) == (*self._identity(), self._boot) and abs(step) <= DRIFT_S

    @property
    def is_quarantined(self) -> bool:
        return self.monotonic < self.header.quarantined_until

    def arrive(self) -> None:
        """Notice another boot and a new epoch."""
        (file, device), found = self._identity(), self._found
        if not found.epoch:
            self.header = Header(os.urandom(8).hex(), file, device, self._boot, self.wall - self.monotonic)
            if self._has_orphans():
                self.set_header(quarantined_until=self.monotonic + ORPHANS_TTL_S)
            return
        if found.boot != self._boot:
            self._new_boot()
        # The number of a device may change with a boot; within one, another device is another file.
        if found.file != file or (found.boot == self._boot and found.device != device):
            self._new_epoch()
        self.set_header(file=file, device=device)

    def set_header(self, **changes: Any) -> None:
        self.header = self.header._replace(**changes)

    def lengthen(self, ttl_s: float) -> None:
        self.set_header(longest_ttl_s=max(self.header.longest_ttl_s, ttl_s))

    def wake(self) -> None:
        self.set_header(wakeups=self._found.wakeups + 1)

    def now(self) -> float:
        """The wall clock.  Where it was set, retries and delays move along: they are durations."""
        step = self.wall - self.monotonic - self.header.clock
        if abs(step) > DRIFT_S:
            self.set_header(clock=self.header.clock + step)
        if abs(step) > STEP_S:
            self.db.execute(
                "UPDATE fires SET run_at = run_at + ? WHERE state = 'pending'"
                " AND NOT (origin = 'schedule' AND run_at = due)",
                (step,),
            )
        return self.wall

    def _new_boot(self) -> None:
        """Nothing of the old boot runs any more, and its monotonic clock means nothing now."""
        self.db.execute("UPDATE fires SET expires = ? WHERE state = 'claimed'", (self.monotonic,))
        self.db.execute("DELETE FROM graces")
        self.db.execute("DELETE FROM asks")
        ahead = self.header.clock - (self.wall - self.monotonic)  # of the old clock against the new one
        self.db.execute(_MOVE_CHARGES, (ahead, self.monotonic, ahead, self.monotonic))
        self.db.execute(
            "UPDATE notes SET expires = ? + min(lasts, written + lasts - ?) WHERE lasts IS NOT NULL",
            (self.monotonic, self.wall),
        )
        self.set_header(boot=self._boot, clock=self.wall - self.monotonic, quarantined_until=self.monotonic)

    def _new_epoch(self) -> None:
        """What the store remembers may be old: fences leap, and no claim is granted too soon."""
        now = self.now()
        for app, fence in self.db.execute("SELECT app, fence FROM apps WHERE fence IS NOT NULL"):
            self._fences[app] = leap(fence, now)
        self.set_header(
            epoch=os.urandom(8).hex(), quarantined_until=self.monotonic + self._longest_that_may_live()
        )

    def _longest_that_may_live(self) -> float:
        """Of claims that were forgotten: what is pending may have been claimed, for the first time."""
        open_ones = self.db.execute("SELECT DISTINCT policy FROM fires WHERE state = 'pending'")
        longest_s = max((policy_of(text).claim_s for (text,) in open_ones), default=0.0)
        return max(longest_s, self.header.longest_ttl_s or ORPHANS_TTL_S)

    def _identity(self) -> tuple[str, str]:
        device, inode = self._link.identity
        return str(inode), str(device)

    def _has_orphans(self) -> bool:
        """Was the file deleted under running nodes?  Their locks lie beside it."""
        with suppress(FileNotFoundError):
            return any(name.endswith(".lock") for name in os.listdir(self._link.path + ".nodes"))
        return False

    # Fires.

    def entry(self, key: str) -> Kept | None:
        known = self._entries.get(key)
        return known or next(self.select("key = ?", (key,)), None)

    def open_entry(self, key: str) -> Kept | None:
        entry = self.entry(key)
        return entry if entry and entry.state != "over" else None

    def fetch(self, keys: Iterable[str]) -> None:
        """Read these fires at once; `entry` finds them then."""
        for _ in self.select("key IN (SELECT value FROM json_each(?))", (json.dumps(list(keys)),)):
            pass

    def select(
        self, where: str, values: tuple[Any, ...] | dict[str, Any] = (), source: str = "fires"
    ) -> Iterator[Kept]:
        for row in self.db.execute(f"SELECT {COLUMNS} FROM {source} WHERE {where}", values):
            yield self._entries.get(row[1]) or self._entries.setdefault(row[1], entry_of(row))

    def lane(self, lane: str) -> list[OpenFire]:
        """The fires of a lane that count: those claimed, due, or told to wait, as they were recorded.
        Those planned ahead are many, and count for nothing yet."""
        if lane and lane not in self._lanes:
            self._lanes[lane] = list(self.select(_LANE, (lane, lane, self.wall, lane)))
        if lane and lane not in self._open_fires:
            self._open_fires[lane] = [self.open_fire(entry) for entry in self._lanes[lane]]
        return self._open_fires[lane] if lane else []

    def holders(self, lane: str) -> list[OpenFire]:
        """Those of a lane that are claimed."""
        if lane not in self._holders:
            self.save()
            found = self.select(f"id IN ({_OPEN} AND state = 'claimed') ORDER BY id", (lane,))
            self._holders[lane] = [self.open_fire(entry) for entry in found]
        return self._holders[lane]

    def waiters(self, lane: str) -> list[OpenFire]:
        """Those of a lane that were told to wait."""
        self.save()
        found = self.select("lane = ? AND state = 'pending' AND waits = 1 ORDER BY id", (lane,))
        return [self.open_fire(entry) for entry in found]

    def open_fire(self, entry: Kept) -> OpenFire:
        return open_fire(entry, self.wall, self.monotonic)

    def is_live(self, entry: Kept) -> bool:
        return entry.state == "claimed" and entry.expires > self.monotonic

    def record(self, fire: Fire, run_at: float) -> bool:
        values = record_values(fire, run_at)
        if self.db.execute(RECORD, values).rowcount == 1:
            return True
        return self._is_free(fire) and self.db.execute(RECORD, values).rowcount == 1

    def record_all(self, fires: Sequence[Fire], run_at: float) -> list[bool]:
        """Those whose key is new are most often all there are: they need no look at each."""
        keys = {fire.key for fire in fires}
        if len(keys) < len(fires) or self.one(_HAS_ANY, json.dumps(list(keys))):
            return [self.record(fire, run_at) for fire in fires]
        self.db.executemany(RECORD, (record_values(fire, run_at) for fire in fires))
        return [True] * len(fires)

    def _is_free(self, fire: Fire) -> bool:
        """Has the fire of this key had its time?  Then it goes, to make room for another."""
        old = self.entry(fire.key) if fire.policy.unique_s else None
        if not old or old.state != "over" or not old.outcome:
            return False
        if not is_spent(fire, old.fire, old.outcome, self.wall):
            return False
        self.save()
        self._forget(old)
        return True

    def forget_pending(self, key: str) -> None:
        entry = self.entry(key)
        if entry and entry.state == "pending":
            self._forget(entry)
            self._gone.add(key)

    def _forget(self, entry: Kept) -> None:
        self.delete([entry.id])
        self._changed.pop(entry.id, None)
        self.outdate([(entry.fire.key, entry.fire.lane)])

    def drop_late_hooks(self, fire: Fire) -> None:
        """It started, or is over: whoever was to be told that it is late need not be."""
        for hook in fire.policy.hooks:
            if hook.startswith("on_late"):
                self.forget_pending(f"{fire.key}/{hook}")

    def delete(self, ids: Sequence[int]) -> None:
        for statement in _DELETE:
            self.db.execute(statement, (json.dumps(ids),))

    def is_forgotten(self, entry: Kept) -> bool:
        """A statement that is under way may still come upon what was forgotten since it began."""
        return entry.fire.key in self._gone

    def outdate(self, fires: Iterable[tuple[str, str]]) -> None:
        """Rows of these keys and lanes were written past us: what was read before counts no longer."""
        by_lane = [read for read in (self._lanes, self._open_fires, self._holders) if read]
        if not self._entries and not by_lane:
            return
        for key, lane in fires:
            self._entries.pop(key, None)
            for read in by_lane:
                read.pop(lane, None)

    def change(self, entry: Kept) -> None:
        self._changed[entry.id] = entry
        self._open_fires.pop(entry.fire.lane, None)
        if entry.state != "pending":
            self._holders.pop(entry.fire.lane, None)

    def add_attempt(self, entry: Kept, attempt: Attempt) -> None:
        self._attempts.append((entry.id, attempt))

    def has_attempt(self, entry: Kept) -> bool:
        """Is the newest attempt of the claimed entry on record?  The claim's own is not yet."""
        if entry.ran[1] == entry.fence:
            return False
        where = "SELECT 1 FROM attempts WHERE fire = ? AND number = ?"
        return self.one(where, entry.id, entry.attempt) is not None

    def add_words(self, said: Sequence[tuple[int, int, bytes, str]]) -> None:
        """What attempts said: fire and number of each, its tail and its result."""
        tails = [(id, number, tail) for id, number, tail, _ in said if tail]
        self.db.executemany("INSERT OR REPLACE INTO tails VALUES (?, ?, ?)", tails)
        results = [(id, number, result) for id, number, _, result in said if result]
        self.db.executemany("INSERT OR REPLACE INTO results VALUES (?, ?, ?)", results)

    def save(self) -> None:
        """Write what changed."""
        if self._changed:
            self.db.executemany(CHANGE, map(change_values, self._changed.values()))
        if self._attempts:
            self.db.executemany(_ADD_ATTEMPT, (attempt_values(*one) for one in self._attempts))
            self.add_words([(id, one.number, one.tail, one.result) for id, one in self._attempts])
        self.db.executemany(_SET_FENCE, self._fences.items())
        self.db.executemany(
            f"INSERT INTO jobs VALUES (?, ?, ?) {SET_JOB}",
            ((job, *values) for job, values in self._jobs.items()),
        )
        for written in (self._changed, self._attempts, self._fences, self._jobs):
            written.clear()
        if self.header != self._found:
            self.db.execute("INSERT OR REPLACE INTO world VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?)", self.header)
            self._found = self.header

    # What else a decision depends on; read once a call.

    def watermark_of(self, job: str) -> Watermark | None:
        if ("mark", job) not in self._read:
            found = self.one("SELECT at, revision FROM marks WHERE job = ?", job)
            self._read["mark", job] = Watermark(instant(found[0]), found[1]) if found else None
        return cast(Watermark | None, self._read["mark", job])

    def successes(self, jobs: Iterable[str]) -> dict[str, float]:
        """When fires of these jobs were last over with success, of those that ever were: in one text, as each
        row would be a turn of the interpreter's lock."""
        (text,) = self.one(_SUCCESSES, json.dumps(list(jobs))) or ("{}",)
        return {job: micros / 1e6 for job, micros in json.loads(text).items()}

    def reached_of(self, job: str) -> datetime | None:
        found = self.one("SELECT reached FROM jobs WHERE job = ? AND reached IS NOT NULL", job)
        return instant(found[0]) if found else None

    def reach(self, job: str, due: float, origin: str) -> None:
        """This instant must not be recorded again, also when its row is gone and the clock set back."""
        if origin == "schedule":
            succeeded, reached = self._jobs.get(job, (None, None))
            self._jobs[job] = succeeded, due if reached is None else max(due, reached)

    def succeed(self, job: str, at: float) -> None:
        self._jobs[job] = at, self._jobs.get(job, (None, None))[1]

    def pauses(self, app: str) -> dict[str, str]:
        """The jobs of the app that are paused, and why."""
        controls = self.controls(app)
        return {name.removeprefix(PAUSE): controls[name] for name in controls if name.startswith(PAUSE)}

    def controls(self, app: str) -> dict[str, str]:
        """The notes of the app that a claim heeds."""
        if ("controls", app) not in self._read:
            rows = self.db.execute(_CONTROLS, (app, self.monotonic) * len(_CONTROLLING))
            self._read["controls", app] = dict(rows.fetchall())
        return cast(dict[str, str], self._read["controls", app])

    def read_note(self, app: str, name: str) -> str | None:
        found = self.one(
            "SELECT text FROM notes WHERE app = ? AND name = ? AND (expires IS NULL OR expires > ?)",
            app,
            name,
            self.monotonic,
        )
        return found[0] if found else None

    def write_note(self, app: str, name: str, text: str, ttl_s: float = 0) -> None:
        self._read.pop(("controls", app), None)
        if text:
            ends = (ttl_s, self.monotonic + ttl_s) if ttl_s else (None, None)
            values = (app, name, text, self.now(), *ends)
            self.db.execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?, ?, ?, ?)", values)
        else:
            self.db.execute("DELETE FROM notes WHERE app = ? AND name = ?", (app, name))

    def graces(self) -> dict[str, int]:
        """How many places of a lane are kept by the grace of fires that are over."""
        if ("graces", "") not in self._read:
            rows = self.db.execute(
                "SELECT lane, count(*) FROM graces WHERE until > ? GROUP BY lane", (self.monotonic,)
            )
            self._read["graces", ""] = dict(rows.fetchall())
        return cast(dict[str, int], self._read["graces", ""])

    def next_fence(self, app: str, count: int = 1) -> int:
        """The first of so many."""
        if app not in self._fences:
            found = self.one("SELECT fence FROM apps WHERE app = ? AND fence IS NOT NULL", app)
            self._fences[app] = found[0] if found else leap(0, self.wall)
        self._fences[app] += count
        return self._fences[app] - count + 1

    def one(self, statement: str, *values: Any) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self.db.execute(statement, values).fetchone()
        return row


_HEADER = "SELECT era, file, device, boot, clock, calm_until, longest_ttl, rings FROM world"
_OPEN = "SELECT id FROM fires WHERE lane = ? AND lane <> '' AND state <> 'over'"  # so that its index serves
_LANE = f"""id IN (
    {_OPEN} AND state = 'claimed'
    UNION {_OPEN} AND state = 'pending' AND run_at <= ?
    UNION SELECT id FROM fires WHERE lane = ? AND state = 'pending' AND waits = 1
) ORDER BY id"""
_ADD_ATTEMPT = f"INSERT OR REPLACE INTO attempts VALUES ({', '.join('?' * 9)})"
_SET_FENCE = (
    "INSERT INTO apps (app, fence) VALUES (?, ?) ON CONFLICT (app) DO UPDATE SET fence = excluded.fence"
)
SET_JOB = """
ON CONFLICT (job) DO UPDATE SET
    succeeded = coalesce(excluded.succeeded, succeeded),
    reached = max(coalesce(excluded.reached, reached), coalesce(reached, excluded.reached))
"""
_IDS = "(SELECT value FROM json_each(?))"
_SUCCESSES = f"""
SELECT json_group_object(job, CAST(round(succeeded * 1e6) AS INTEGER)) FROM jobs
WHERE job IN {_IDS} AND succeeded IS NOT NULL
"""
_DELETE = (
    f"DELETE FROM fires WHERE id IN {_IDS}",
    f"DELETE FROM attempts WHERE fire IN {_IDS}",
    f"DELETE FROM tails WHERE fire IN {_IDS}",
    f"DELETE FROM results WHERE fire IN {_IDS}",
)
_HAS_ANY = f"SELECT 1 FROM fires WHERE key IN {_IDS} LIMIT 1"
_CONTROLLING = (PAUSE, RATE, BREAKER)
_CONTROLS = " UNION ALL ".join(
    f"SELECT name, text FROM notes WHERE app = ? AND name >= '{start}' AND name < '{start[:-1]}0'"
    " AND (expires IS NULL OR expires > ?)"
    for start in _CONTROLLING
)  # each a range of its key: 0 is what follows a slash
# How long a machine was off, only the wall clock can tell; no charge is younger than now.
_MOVE_CHARGES = "UPDATE charges SET until = until - at + min(at + ?, ?), at = min(at + ?, ?)"
