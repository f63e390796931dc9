"""Receipts in a SQLite file, for the processes of one host.

- There are two tables; the file may contain others.  Only the owner can read a new file.
- Each transaction has its own connection, so threads, forks and a replaced file do no harm.
- Leases use the clock of this boot, which cannot be set.  A reboot ends them.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

from detent import clock
from detent.errors import StoreMismatch, StoreUnavailable
from detent.receive.receipts.base import PRUNE_EVERY, PRUNE_MAX, Arrival, BeginResult, ReceiptOptions
from detent.stores.sqlite.clocks import boot_id
from detent.stores.sqlite.file import refuse_network_disk
from detent.text import quote

BUSY_S = 5.0
TABLES = (
    "CREATE TABLE IF NOT EXISTS detent_receive_receipts (job TEXT, key TEXT, owner TEXT NOT NULL,"
    " boot TEXT NOT NULL, until REAL NOT NULL, answer TEXT, forget_at REAL NOT NULL,"
    " PRIMARY KEY (job, key)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS detent_receive_fences (job TEXT PRIMARY KEY, newest INTEGER NOT NULL,"
    " seen_at REAL)",
    "CREATE INDEX IF NOT EXISTS detent_receive_old ON detent_receive_receipts (forget_at)",
)
_FENCE = (
    "INSERT INTO detent_receive_fences VALUES (?, ?, ?) ON CONFLICT (job) DO UPDATE"
    " SET newest = max(newest, excluded.newest), seen_at = excluded.seen_at"
)
_NEWEST = "SELECT newest FROM detent_receive_fences WHERE job = ?"
_FIND = "SELECT answer, boot, until FROM detent_receive_receipts WHERE job = ? AND key = ?"
_TAKE = "INSERT OR REPLACE INTO detent_receive_receipts VALUES (?, ?, ?, ?, ?, NULL, ?)"
_OURS = "WHERE job = ? AND key = ? AND owner = ? AND answer IS NULL"
_RENEW = f"UPDATE detent_receive_receipts SET until = ? {_OURS}"
_FINISH = f"UPDATE detent_receive_receipts SET answer = ?, forget_at = ? {_OURS}"
_RELEASE = f"DELETE FROM detent_receive_receipts {_OURS}"
_PRUNE = (
    "DELETE FROM detent_receive_receipts WHERE (job, key) IN"
    " (SELECT job, key FROM detent_receive_receipts WHERE forget_at < ?"
    " AND (answer IS NOT NULL OR boot <> ? OR until < ?) LIMIT ?)"
)
_PRUNE_FENCES = "DELETE FROM detent_receive_fences WHERE seen_at < ?"


class SqliteReceipts:
    def __init__(self, path: str) -> None:
        self._path, self._boot, self._begun = Path(path).absolute(), boot_id(), count()
        self._is_made = False

    def begin(self, arrival: Arrival, options: ReceiptOptions) -> BeginResult:
        with self._transaction() as db:
            if next(self._begun) % PRUNE_EVERY == 0:
                db.execute(_PRUNE, (clock.wall(), self._boot, clock.boottime(), PRUNE_MAX))
                db.execute(_PRUNE_FENCES, (clock.wall() - options.keep_s,))
            found = self._judge(db, arrival, options)
            if found.kind == "ours":
                lease = (arrival.owner, self._boot, clock.boottime() + options.lease_s)
                db.execute(_TAKE, (_job(arrival), arrival.key, *lease, clock.wall() + options.keep_s))
            return found

    def _judge(self, db: sqlite3.Connection, arrival: Arrival, options: ReceiptOptions) -> BeginResult:
        db.execute(_FENCE, (_job(arrival), arrival.fence, clock.wall()))
        (newest,) = db.execute(_NEWEST, (_job(arrival),)).fetchone()
        answer, boot, until = db.execute(_FIND, (_job(arrival), arrival.key)).fetchone() or (None, "", 0.0)
        if answer is not None:
            return BeginResult("handled", answer=answer)
        if options.is_fenced and arrival.fence < newest:
            return BeginResult("stale", newest=newest)
        left_s = until - clock.boottime() if boot == self._boot else 0.0
        return BeginResult("running", left_s=left_s) if left_s > 0 else BeginResult("ours")

    def renew(self, arrivals: Sequence[Arrival], options: ReceiptOptions) -> None:
        with self._transaction() as db:
            until = clock.boottime() + options.lease_s
            db.executemany(_RENEW, [(until, *_identity(one)) for one in arrivals])

    def finish(self, arrival: Arrival, answer: str, options: ReceiptOptions) -> None:
        with self._transaction() as db:
            db.execute(_FINISH, (answer, clock.wall() + options.keep_s, *_identity(arrival)))

    def release(self, arrival: Arrival) -> None:
        with self._transaction() as db:
            db.execute(_RELEASE, _identity(arrival))

    def close(self) -> None:
        """Do nothing: no connection is open between two calls."""

    def _prepare_file(self) -> None:
        if not self._path.parent.is_dir():
            folder = quote(str(self._path.parent))
            raise StoreUnavailable(f"the folder {folder} for receipts does not exist: create it")
        refuse_network_disk(self._path.parent)
        try:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            pass
        except OSError as error:
            raise StoreUnavailable(
                f"cannot create {quote(str(self._path))} for receipts: {error.strerror}; "
                "let the user of this process write to its folder"
            ) from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            if not self._is_made:
                self._prepare_file()
            with closing(sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None)) as db:
                db.execute("BEGIN IMMEDIATE")
                for statement in () if self._is_made else TABLES:
                    db.execute(statement)
                yield db
                db.execute("COMMIT")
                self._is_made = True
        except sqlite3.OperationalError as error:
            self._is_made = False  # the file may have been replaced by one without our tables
            raise StoreUnavailable(f"cannot use the receipts in {quote(str(self._path))}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise StoreMismatch(f"{quote(str(self._path))} is not a SQLite database: {error}") from error


def _job(arrival: Arrival) -> str:
    return f"{arrival.app}.{arrival.job}"


def _identity(arrival: Arrival) -> tuple[str, str, str]:
    return _job(arrival), arrival.key, arrival.owner
