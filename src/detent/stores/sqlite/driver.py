"""The driver of SQLite: one file that all processes of a host share.

A unit of work is one write transaction, so that no commit is refused.  A claim expires by the monotonic clock
of this boot; a reboot expires all claims.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from detent import clock
from detent.errors import StoreUnavailable
from detent.model import Found, Query, Row, Size, Tally
from detent.stores.base import leap
from detent.stores.engine.driver import VIEW_S, Committed, Expect, Group, Header, Read
from detent.stores.sql import queries
from detent.stores.sql.dialect import drive
from detent.stores.sql.reads import reading
from detent.stores.sql.writes import Stamp, Versions, locking, unpark, write_groups
from detent.stores.sqlite.clocks import Clocks, boot_id
from detent.stores.sqlite.file import File
from detent.stores.sqlite.reserve import keep_reserve
from detent.stores.sqlite.session import SqliteSession
from detent.stores.sqlite.world import World

LOOK_S, LOOK_MAX_S = 0.05, 0.2  # between two looks of `wait`; longer while nothing changes
PRUNE_MAX = 1000  # rows of one transaction; other writers run between two
PRUNE_FULL_MAX = 20  # on a full disk, where the log has little space


class Transaction:
    """An open transaction: its statements, and the state of the store as a whole."""

    def __init__(self, session: SqliteSession, world: World) -> None:
        self.session, self.world = session, world


class SqliteDriver:
    def __init__(
        self,
        path: str | os.PathLike[str],
        wall: Callable[[], float] = clock.wall,
        monotonic: Callable[[], float] = clock.monotonic,
        boot_id: Callable[[], str] = boot_id,
    ) -> None:
        self.file, self._clocks = File(path), Clocks(wall, monotonic, boot_id())
        self._mine = threading.local()  # `open`: the transaction of this thread's unit of work
        self._closing, self._heard = threading.Event(), 0  # 0: no call of `wait` yet
        self._pause_s = LOOK_S

    # Units of work.

    @contextmanager
    def hand(self, app: str) -> Iterator[None]:
        if getattr(self._mine, "open", None):
            yield
            return
        with self._writing() as transaction:
            self._mine.open = transaction
            try:
                yield
            finally:
                self._mine.open = None

    @contextmanager
    def _writing(self) -> Iterator[Transaction]:
        with self.file.writing() as link:
            session = SqliteSession(link.db)
            world = World(session, link, self._clocks)
            world.notice_changes()
            yield Transaction(session, world)
            world.save()

    @contextmanager
    def _current(self) -> Iterator[Transaction]:
        """This thread's unit of work, or a transaction that reads.  If the clocks were set, it first records
        that, and so it writes."""
        if transaction := getattr(self._mine, "open", None):
            yield transaction
            return
        with self.file.reading() as link:
            session = SqliteSession(link.db)
            world = World(session, link, self._clocks)
            if world.is_current:
                yield Transaction(session, world)
                return
        with self._writing() as transaction:
            yield transaction

    def look(self, app: str, reads: Sequence[Read]) -> tuple[Header, list[Any]]:
        with self._current() as transaction:
            header = _header(transaction, app)
            session = transaction.session
            return header, drive(session, [reading(session, app, one, header) for one in reads])

    def commit(self, app: str, expect: Expect, groups: Sequence[Group]) -> Committed | None:
        with self.hand(app):
            transaction: Transaction = self._mine.open
            session, world, header = transaction.session, transaction.world, _header(transaction, app)
            versions: Versions
            (versions,) = drive(session, [locking(session, app, groups)])
            if not _holds(session, expect, header):
                return None
            done = [versions.allow(group, header.steady) for group in groups]
            if expect.is_whole and not all(done):
                return None
            stamp = Stamp(world.next_version(), _give_fences(session, app, expect.fences, header.wall))
            allowed = [group for group, is_done in zip(groups, done, strict=True) if is_done]
            fresh = write_groups(session, app, allowed, versions, stamp)
            is_woken = unpark(session, [wake for group in allowed for wake in group.wakes], stamp.version)
            self._finish_commit(transaction, app, expect, is_woken)
            return Committed(_header(transaction, app), done, fresh, *stamp)

    def _finish_commit(self, transaction: Transaction, app: str, expect: Expect, is_woken: bool) -> None:
        session, world = transaction.session, transaction.world
        if expect.ask:
            session.upsert("asks", ("node", "number", "asked_at"), [(*expect.ask, world.steady)])
        if expect.new_generation or expect.new_controls:
            session.insert("apps", ("app",), [(app,)])
            session.run_many(_CHANGE_APP, [(expect.new_generation, expect.new_controls, app)])
        world.lengthen(expect.longest_ttl_s)
        if is_woken or expect.wakes_nodes:
            world.wake_nodes()

    # Queries.

    def find(self, query: Query) -> Found:
        with self._current() as transaction:
            return queries.find(transaction.session, query)

    def newest(self, app: str, jobs: Sequence[str], each: int) -> dict[str, list[Row]]:
        with self._current() as transaction:
            return queries.newest(transaction.session, jobs, each, transaction.world.wall)

    def tally(self, app: str, starts: range) -> list[Tally]:
        with self._current() as transaction:
            return queries.tally(transaction.session, app, starts)

    def count(self, app: str, queues: Sequence[str]) -> dict[str, Size]:
        with self._current() as transaction:
            return queries.count(transaction.session, app, queues, transaction.world.wall)

    def apps(self) -> list[str]:
        with self._current() as transaction:
            return queries.apps(transaction.session)

    def prune(self, app: str, older_than_s: float, keep: int) -> int:
        try:
            gone = self._prune(app, (older_than_s, keep), PRUNE_MAX)
        except StoreUnavailable:
            if not self.file.make_room():
                raise
            return self._prune(app, (older_than_s, keep), PRUNE_FULL_MAX)
        keep_reserve(self.file.path)  # for the next full disk
        return gone

    def _prune(self, app: str, limits: tuple[float, int], at_once: int) -> int:
        with self._writing() as transaction:
            queries.sweep(transaction.session, app, _header(transaction, app))
        with self._current() as transaction:
            found = iter(queries.prunable(transaction.session, app, transaction.world.wall, limits))
        gone = 0
        while batch := list(islice(found, at_once)):
            with self._writing() as transaction:
                gone += queries.prune(transaction.session, batch)
        return gone

    # Waiting.

    def wait(self, app: str, seconds: float) -> bool:
        closing, until = self._closing, clock.monotonic() + seconds
        version = self.file.look(_VERSION)
        wakeups, self._heard = self._heard or self.file.look(_WAKEUPS), self.file.look(_WAKEUPS)
        if wakeups != self._heard:  # a wake-up came after the last wait
            return True
        while (left := until - clock.monotonic()) > 0 and not closing.wait(min(left, self._pause_s)):
            seen, version = version, self.file.look(_VERSION)
            self._pause_s = min(self._pause_s * 1.1, LOOK_MAX_S) if seen == version else LOOK_S
            # Most changes of the file are claims and outcomes, which wake no node.
            if seen != version and (heard := self.file.look(_WAKEUPS)) != wakeups:
                self._heard = heard
                return True
        return False

    def close(self) -> None:
        closing, self._closing = self._closing, threading.Event()
        closing.set()
        self.file.close()


def _header(transaction: Transaction, app: str) -> Header:
    world = transaction.world
    found = transaction.session.rows("SELECT generation, controls FROM apps WHERE app = ?", (app,))
    generation, controls = found[0] if found else (0, 0)
    return Header(world.wall, world.steady, world.epoch, world.quarantined_until, generation, controls)


def _holds(session: SqliteSession, expect: Expect, header: Header) -> bool:
    if expect.epoch not in ("", header.epoch):
        return False
    if expect.seen is not None and header.steady - expect.seen > VIEW_S:
        return False
    if expect.generation not in (None, header.generation) or expect.controls not in (None, header.controls):
        return False
    if expect.ask is None:
        return True
    node, number = expect.ask
    is_old = session.rows("SELECT 1 FROM asks WHERE node = ? AND number >= ?", (node, number))
    return header.steady >= header.quarantined_until and not is_old


def _give_fences(session: SqliteSession, app: str, count: int, now: float) -> int:
    """Returns the first of so many new fences."""
    if not count:
        return 0
    session.insert("apps", ("app",), [(app,)])
    ((last,),) = session.rows("SELECT coalesce(fence, 0) FROM apps WHERE app = ?", (app,))
    last = last or leap(0, now)
    session.run_many("UPDATE apps SET fence = ? WHERE app = ?", [(last + count, app)])
    return last + 1


_VERSION = "PRAGMA data_version"
_WAKEUPS = "SELECT coalesce(max(wakeups), 0) FROM world"
_CHANGE_APP = "UPDATE apps SET generation = generation + ?, controls = controls + ? WHERE app = ?"
