"""The SQLite store: one file that all processes of a host share.

Every call is one transaction, whatever the size of its batch.  A claim expires by the monotonic clock of this
boot; a reboot expires all claims.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice

from detent import clock
from detent.clock import instant
from detent.errors import StoreUnavailable
from detent.model import (
    Ask,
    Cause,
    Claim,
    Fire,
    Found,
    Grants,
    Note,
    Origin,
    Outcome,
    Plan,
    Query,
    Rate,
    Report,
    Size,
    Usage,
    Verdict,
    Watermark,
    Watermarks,
)
from detent.stores.base import BREAKER, GONE, PAUSE, RATE, RETURN_S, app_of, continues, is_planned, resume_at
from detent.stores.sqlite.claim import SOON_S, Far, Round, grant_again, next_in_s
from detent.stores.sqlite.clocks import Clocks, boot_id
from detent.stores.sqlite.file import File
from detent.stores.sqlite.finish import end, finish, renew
from detent.stores.sqlite.limits import Gates
from detent.stores.sqlite.queries import count, find, forget_the_expired, prunable, prune
from detent.stores.sqlite.reserve import keep_reserve
from detent.stores.sqlite.transaction import Transaction

LOOK_S, LOOK_MAX_S = 0.05, 0.2  # between two looks of `wait`; longer while nothing changes
PRUNE_MAX = 1000  # rows of one transaction; other writers run between two
PRUNE_FULL_MAX = 50  # on a full disk, where the log has little space


class SqliteStore:
    def __init__(
        self,
        path: str | os.PathLike[str],
        wall: Callable[[], float] = clock.wall,
        monotonic: Callable[[], float] = clock.monotonic,
        boot_id: Callable[[], str] = boot_id,
    ) -> None:
        self._file, self._clocks = File(path), Clocks(wall, monotonic, boot_id())
        self._closing, self._heard = threading.Event(), 0  # 0: nobody has waited yet
        self._pause_s = LOOK_S
        self._far: Far = {}

    # Planning.

    def set_jobs(self, app: str, seen: int, revisions: Mapping[str, str]) -> Watermarks:
        with self._writing() as transaction:
            watermarks = _read_watermarks(transaction, app, transaction.jobs.watermarks(app))
            in_force = {job: watermark.revision for job, watermark in watermarks.by_job.items()}
            if seen != watermarks.generation or revisions == in_force:
                return watermarks
            for job in {**watermarks.by_job, **revisions}:
                _revise(transaction, job, watermarks.by_job.get(job), revisions.get(job))
            transaction.db.execute(_SET_GENERATION, (app, seen + 1))
            transaction.wake()
            return _read_watermarks(transaction, app, transaction.jobs.watermarks(app))

    def look(self, app: str) -> Watermarks:
        with self._current() as transaction:
            return _read_watermarks(transaction, app, transaction.jobs.watermarks(app))

    def advance(self, app: str, plans: Sequence[Plan]) -> Watermarks:
        with self._writing() as transaction:
            by_job = {
                plan.job: watermark for plan in plans if (watermark := transaction.jobs.watermark(plan.job))
            }
            for plan in plans:
                watermark = by_job.get(plan.job)
                if watermark and watermark.revision == plan.revision and continues(plan, watermark.at):
                    for fire in plan.fires:
                        if (fire.first_at or fire.due_at) > watermark.at:
                            transaction.fires.record(fire, fire.due_at.timestamp())
                    by_job[plan.job] = watermark._replace(at=plan.until)
                    transaction.jobs.set_watermark(plan.job, by_job[plan.job])
            return _read_watermarks(transaction, app, by_job)

    def put(self, fires: Sequence[Fire], delay_s: float = 0) -> list[bool]:
        with self._writing() as transaction:
            run_at = transaction.now() + delay_s
            fresh = transaction.fires.record_all(fires, run_at)
            if any(fresh):
                transaction.wake()
            return fresh

    # Running.

    def claim(self, ask: Ask) -> Grants:
        with self._writing() as transaction:
            return _claim(transaction, ask, self._far)

    def renew(self, claims: Sequence[Claim]) -> list[Outcome | None]:
        with self._writing() as transaction:
            transaction.fires.fetch(claim.fire.key for claim in claims)
            return [renew(transaction, claim) for claim in claims]

    def finish(self, reports: Sequence[Report]) -> list[Verdict | None]:
        with self._writing() as transaction:
            transaction.now()
            return finish(transaction, reports)

    def finish_and_claim(self, reports: Sequence[Report], ask: Ask) -> tuple[list[Verdict | None], Grants]:
        with self._writing() as transaction:
            transaction.now()
            return finish(transaction, reports), _claim(transaction, ask, self._far)

    def cancel(self, key: str, reason: str = "", cause: Cause = "stopped") -> bool:
        with self._writing() as transaction:
            transaction.now()
            entry = transaction.fires.open_entry(key)
            if entry is None:
                return False
            entry.stop = Outcome("cancelled", reason, cause)
            transaction.fires.change(entry)
            if entry.state == "pending":
                transaction.jobs.reach(entry.fire.job, entry.fire.due_at.timestamp(), entry.fire.origin)
                end(transaction, entry, entry.stop)
            transaction.wake()
            return True

    # Queues.

    def charge(self, app: str, name: str, rate: Rate, count: int = 1) -> Usage:
        with self._writing() as transaction:
            transaction.now()
            return Gates(transaction, app).charge(name, rate, count)

    def reset(self, app: str, name: str) -> None:
        with self._writing() as transaction:
            Gates(transaction, app).reset(name)
            transaction.wake()

    def forget(self, keys: Sequence[str]) -> int:
        with self._writing() as transaction:
            gone = [
                id for (id,) in transaction.db.execute(_FORGETTABLE, (json.dumps(list(keys)),)).fetchall()
            ]
            transaction.fires.delete(gone)
            return len(gone)

    def count(self, app: str, queues: Sequence[str] = ()) -> dict[str, Size]:
        with self._current() as transaction:
            return count(transaction, app, queues)

    # Records.

    def find(self, query: Query) -> Found:
        with self._file.reading() as link:
            return find(Transaction(link, self._clocks), query)

    def apps(self) -> list[str]:
        with self._file.reading() as link:
            return [app for (app,) in link.db.execute(_APPS)]

    def prune(self, app: str, older_than_s: float, keep: int) -> int:
        try:
            gone = self._prune(app, older_than_s, keep, PRUNE_MAX)
        except StoreUnavailable:
            if not self._file.make_room():
                raise
            return self._prune(app, older_than_s, keep, PRUNE_FULL_MAX)
        keep_reserve(self._file.path)  # for the next full disk
        return gone

    def _prune(self, app: str, older_than_s: float, keep: int, at_once: int) -> int:
        with self._writing() as transaction:
            now = transaction.now()
            forget_the_expired(transaction)
        with self._file.reading() as link:
            found = iter(prunable(Transaction(link, self._clocks), app, now, (older_than_s, keep)))
        gone = 0
        while batch := list(islice(found, at_once)):
            with self._writing() as transaction:
                gone += prune(transaction, batch, now)
        return gone

    def note(self, app: str, name: str, text: str, ttl_s: float = 0) -> None:
        with self._writing() as transaction:
            transaction.now()
            transaction.notes.write(app, name, text, ttl_s)
            if name.startswith((PAUSE, RATE, BREAKER)):
                transaction.wake()

    def notes(self, app: str, prefix: str = "") -> list[Note]:
        with self._current() as transaction:
            return transaction.notes.find(app, prefix)

    def wait(self, app: str, seconds: float) -> bool:
        closing, until = self._closing, clock.monotonic() + seconds
        version = self._file.look(_VERSION)
        wakeups, self._heard = self._heard or self._file.look(_WAKEUPS), self._file.look(_WAKEUPS)
        if wakeups != self._heard:  # a wake-up came after the last wait
            return True
        while (left := until - clock.monotonic()) > 0 and not closing.wait(min(left, self._pause_s)):
            seen, version = version, self._file.look(_VERSION)
            self._pause_s = min(self._pause_s * 1.1, LOOK_MAX_S) if seen == version else LOOK_S
            # Most changes of the file are claims and outcomes, which wake nobody.
            if seen != version and (heard := self._file.look(_WAKEUPS)) != wakeups:
                self._heard = heard
                return True
        return False

    def close(self) -> None:
        closing, self._closing = self._closing, threading.Event()
        closing.set()
        self._file.close()

    @contextmanager
    def _current(self) -> Iterator[Transaction]:
        """A transaction that reads.  If the clocks were set, it first records that, and so it writes."""
        with self._file.reading() as link:
            transaction = Transaction(link, self._clocks)
            if transaction.is_current:
                yield transaction
                return
        with self._writing() as transaction:
            transaction.now()
            yield transaction

    @contextmanager
    def _writing(self) -> Iterator[Transaction]:
        with self._file.writing() as link:
            transaction = Transaction(link, self._clocks)
            transaction.check_header()
            yield transaction
            transaction.save()


def _claim(transaction: Transaction, ask: Ask, far: Far) -> Grants:
    now, gates = transaction.now(), Gates(transaction, ask.app)
    newest = transaction.one("SELECT number FROM asks WHERE node = ?", ask.node) or (0,)
    if not transaction.is_quarantined and ask.number > newest[0]:
        seen = (ask.node, ask.number, transaction.monotonic)
        transaction.db.execute("INSERT OR REPLACE INTO asks VALUES (?, ?, ?)", seen)
        answer = Round(transaction, ask, gates, far)
        claims, is_cut_short = answer.grant_due(), answer.is_cut_short
    else:
        claims, is_cut_short = grant_again(transaction, ask), False
    wait_s = SOON_S if is_cut_short else next_in_s(transaction, ask, gates)
    return Grants(claims, instant(now), wait_s, transaction.header.epoch)


def _read_watermarks(transaction: Transaction, app: str, by_job: Mapping[str, Watermark]) -> Watermarks:
    generation = transaction.one("SELECT generation FROM apps WHERE app = ?", app) or (0,)
    now, left_s = transaction.now(), transaction.header.quarantined_until - transaction.monotonic
    quarantine = instant(now + left_s) if left_s > 0 else None
    return Watermarks(instant(now), transaction.header.epoch, generation[0], by_job, quarantine)


# Changing a plan.


def _revise(transaction: Transaction, job: str, watermark: Watermark | None, revision: str | None) -> None:
    if watermark and watermark.revision == revision:
        return
    app = app_of(job)
    if revision is None:
        transaction.db.execute("DELETE FROM marks WHERE job = ?", (job,))
        transaction.notes.write(
            app, GONE + job, str(watermark.at.timestamp() if watermark else 0.0), RETURN_S
        )
        return
    gone, reached_at = transaction.notes.read(app, GONE + job), transaction.jobs.reached(job)
    ended_at = watermark.at if watermark else instant(float(gone)) if gone else None
    planned = [row for row in transaction.db.execute(_UNATTEMPTED, (job,)) if _is_planned(row)]
    starts = [instant(start) for _, _, origin, start in planned if origin == "schedule"]
    first_at = min((at for at in starts if not reached_at or at > reached_at), default=None)
    since = resume_at(instant(transaction.now()), ended_at, reached_at, first_at)
    if withdrawn := [row[0] for row in planned if not ended_at or row[3] > since.timestamp()]:
        transaction.fires.delete(withdrawn)
    transaction.jobs.set_watermark(job, Watermark(since, revision))
    transaction.notes.write(app, GONE + job, "")


def _is_planned(row: tuple[int, str, Origin, float]) -> bool:
    _, key, origin, start = row
    return is_planned(Fire(key, "", instant(start), origin=origin))


# Steps from app to app in the index, so that the number of pending fires does not matter.
_APPS = """
WITH RECURSIVE pending(app) AS (
    SELECT min(app) FROM fires WHERE state = 'pending'
    UNION ALL
    SELECT (SELECT min(app) FROM fires WHERE state = 'pending' AND app > pending.app)
    FROM pending WHERE app IS NOT NULL
)
SELECT app FROM pending WHERE app IS NOT NULL
UNION SELECT app FROM apps UNION SELECT app FROM marks UNION SELECT app FROM notes
ORDER BY app
"""
_VERSION = "PRAGMA data_version"
_WAKEUPS = "SELECT coalesce(max(rings), 0) FROM world"
_SET_GENERATION = (
    "INSERT INTO apps (app, generation) VALUES (?, ?)"
    " ON CONFLICT (app) DO UPDATE SET generation = excluded.generation"
)
_UNATTEMPTED = """
SELECT id, key, origin, coalesce(first, due) FROM fires WHERE job = ? AND state = 'pending' AND attempt = 0
"""
_FORGETTABLE = """
SELECT id FROM fires WHERE key IN (SELECT value FROM json_each(?)) AND state = 'over' AND origin <> 'schedule'
"""
