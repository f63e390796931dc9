"""The driver of MySQL and MariaDB: a database that nodes on many hosts share.

A unit of work is one transaction with READ COMMITTED.  A look locks the due fires that it returns, and passes
over those that others have locked.  A commit locks what it checks in the order fires, cells, jobs, ask, app.
A deadlock, or a lock that is held for too long, is a conflict.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import islice
from typing import Any, TypeVar

from detent import clock
from detent.errors import StoreUnavailable
from detent.model import Found, Query, Row, Size, Tally
from detent.stores.base import leap
from detent.stores.engine.driver import VIEW_S, Committed, Expect, Group, Header, Read
from detent.stores.engine.unit import Conflict
from detent.stores.mysql.link import LATER_S, SOON_S, Link, Links
from detent.stores.mysql.schema import kind_of, prepare
from detent.stores.mysql.session import MysqlSession
from detent.stores.mysql.url import read_url
from detent.stores.mysql.world import EXCLUDE, SHARE, Observer, Sight, new_version, set_right
from detent.stores.sql import queries
from detent.stores.sql.dialect import Steps, drive
from detent.stores.sql.reads import reading
from detent.stores.sql.server_clock import SEEN_S
from detent.stores.sql.writes import Stamp, Versions, locking, unpark, write_groups

LOOK_S, LOOK_MAX_S = 0.05, 0.2  # between two looks of `wait`; longer while nothing changes
PRUNE_MAX = 1000  # rows of one transaction
TRIES = 4  # of a transaction: to find a state that needs no correction, or to meet no deadlock
T = TypeVar("T")


class Transaction:
    """An open transaction: its statements, the state of the store, and what remains to be done at its end."""

    def __init__(self, session: MysqlSession, sight: Sight) -> None:
        self.session, self.sight = session, sight
        self.woken_app, self.longest_ttl_s = "", 0.0

    def end(self) -> None:
        """Write the rows that all transactions write: last, because each has to wait for the others."""
        session, (header, world, _) = self.session, self.sight
        is_late = header.steady > world.seen + SEEN_S and session.rows(_FREE_WORLD)
        if is_late or self.longest_ttl_s > world.longest_ttl_s:
            session.run_many(_BEAT, [(header.steady, self.longest_ttl_s)])
        if self.woken_app:
            session.run_many(_WAKE, [(self.woken_app,)])


class MysqlDriver:
    def __init__(self, url: str, boottime: Callable[[], float] = clock.boottime) -> None:
        self.links = Links(read_url(url), self._prepare)
        self._observer = Observer(boottime)
        self._mine = threading.local()  # `open`: the transaction of this thread's unit of work
        self._closing, self._heard = threading.Event(), dict[str, int]()
        self._pause_s = LOOK_S

    def _prepare(self, link: Link) -> None:
        kind = kind_of(link)
        prepare(link, kind)
        self._observer.kind = kind

    # Units of work.

    @contextmanager
    def hand(self, app: str) -> Iterator[None]:
        if getattr(self._mine, "open", None):
            yield
            return
        with self._writing(app) as transaction:
            self._mine.open = transaction
            try:
                yield
            finally:
                self._mine.open = None
            transaction.end()

    def _writing(self, app: str, within_s: int = SOON_S) -> AbstractContextManager[Transaction]:
        return self._transaction(app, lambda: self.links.writing(SHARE, within_s))

    def _reading(self, app: str = "", within_s: int = LATER_S) -> AbstractContextManager[Transaction]:
        return self._transaction(app, lambda: self.links.reading(within_s))

    @contextmanager
    def _transaction(
        self, app: str, begin: Callable[[], AbstractContextManager[Link]]
    ) -> Iterator[Transaction]:
        """A transaction that finds a state of the store that needs no correction."""
        for _ in range(TRIES):
            with begin() as link:
                session = MysqlSession(link)
                sight = self._observer.read(session, app)
                if not sight.correction:
                    yield Transaction(session, sight)
                    return
            with suppress(Conflict), self.links.writing(EXCLUDE, LATER_S) as link:
                session = MysqlSession(link)
                sight = self._observer.read(session, app)
                if sight.correction:  # no other process has made it meanwhile
                    set_right(session, sight.correction, sight.header.wall)
        raise StoreUnavailable(
            f"the clock of the store {self.links.address.name} is being corrected: try again"
        )

    def look(self, app: str, reads: Sequence[Read]) -> tuple[Header, list[Any]]:
        if transaction := getattr(self._mine, "open", None):
            return _look(transaction.session, app, reads, self._header(transaction, app))
        with self._reading(app, SOON_S) as transaction:
            return _look(transaction.session, app, reads, transaction.sight.header)

    def _header(self, transaction: Transaction, app: str) -> Header:
        """The state of the store now.  If the clock was set meanwhile, the unit of work begins again."""
        transaction.sight = self._observer.read(transaction.session, app)
        if transaction.sight.correction:
            raise Conflict
        return transaction.sight.header

    def commit(self, app: str, expect: Expect, groups: Sequence[Group]) -> Committed | None:
        with self.hand(app):
            transaction: Transaction = self._mine.open
            session = transaction.session
            checks = [locking(session, app, groups, waits=expect.is_whole), _asking(expect)]
            versions: Versions
            versions, is_new_ask, fence = drive(session, [*checks, _locking_app(app, expect)])
            if fence is None:  # a row that does not exist cannot be locked
                session.insert("apps", ("app",), [(app,)])
                (fence,) = drive(session, [_locking_app(app, expect)])
            header = self._header(transaction, app)
            if not (is_new_ask and _holds(expect, header)):
                return None
            done = [versions.allow(group, header.steady) for group in groups]
            if expect.is_whole and not all(done):
                return None
            fence = fence or leap(0, header.wall)
            stamp = Stamp(new_version(), fence + 1 if expect.fences else 0)
            allowed = [group for group, is_done in zip(groups, done, strict=True) if is_done]
            fresh = write_groups(session, app, allowed, versions, stamp)
            is_woken = unpark(session, [wake for group in allowed for wake in group.wakes], stamp.version)
            if expect.fences:
                session.run_many(_SET_FENCE, [(fence + expect.fences, app)])
            if expect.ask:
                session.upsert("asks", ("node", "number", "asked_at"), [(*expect.ask, header.steady)])
            if expect.new_generation or expect.new_controls:
                session.run_many(_CHANGE_APP, [(expect.new_generation, expect.new_controls, app)])
            transaction.longest_ttl_s = max(transaction.longest_ttl_s, expect.longest_ttl_s)
            transaction.woken_app = app if is_woken or expect.wakes_nodes else transaction.woken_app
            return Committed(header, done, fresh, *stamp)

    # Queries.

    def find(self, query: Query) -> Found:
        with self._reading() as transaction:
            return queries.find(transaction.session, query)

    def newest(self, app: str, jobs: Sequence[str], each: int) -> dict[str, list[Row]]:
        with self._reading(app) as transaction:
            return queries.newest(transaction.session, jobs, each, transaction.sight.header.wall)

    def tally(self, app: str, starts: range) -> list[Tally]:
        with self._reading(app) as transaction:
            return queries.tally(transaction.session, app, starts)

    def count(self, app: str, queues: Sequence[str]) -> dict[str, Size]:
        with self._reading(app) as transaction:
            return queries.count(transaction.session, app, queues, transaction.sight.header.wall)

    def apps(self) -> list[str]:
        with self._reading() as transaction:
            return queries.apps(transaction.session)

    def prune(self, app: str, older_than_s: float, keep: int) -> int:
        self._repeatedly(app, lambda one: queries.sweep(one.session, app, one.sight.header))
        with self._reading(app) as transaction:
            wall, limits = transaction.sight.header.wall, (older_than_s, keep)
            found = iter(queries.prunable(transaction.session, app, wall, limits))
        gone = 0
        while batch := list(islice(found, PRUNE_MAX)):
            gone += self._repeatedly(app, _pruning(batch))
        return gone

    def _repeatedly(self, app: str, act: Callable[[Transaction], T]) -> T:
        """Act in a transaction, which is repeated after a deadlock."""
        for _ in range(TRIES):
            with suppress(Conflict), self._writing(app, LATER_S) as transaction:
                return act(transaction)
        raise StoreUnavailable(f"the store {self.links.address.name} is too busy; it will be tried again")

    # Waiting.

    def wait(self, app: str, seconds: float) -> bool:
        closing, until = self._closing, clock.monotonic() + seconds
        now = self._wakeups(app)
        before, self._heard[app] = self._heard.get(app, now), now
        if before != now:  # a wake-up came after the last wait
            return True
        while (left := until - clock.monotonic()) > 0 and not closing.wait(min(left, self._pause_s)):
            if (now := self._wakeups(app)) != before:
                self._heard[app], self._pause_s = now, LOOK_S
                return True
            self._pause_s = min(self._pause_s * 1.1, LOOK_MAX_S)
        return False

    def _wakeups(self, app: str) -> int:
        return int(self.links.look("SELECT COALESCE(MAX(number), 0) FROM wakeups WHERE app = %s", app)[0][0])

    def close(self) -> None:
        closing, self._closing = self._closing, threading.Event()
        closing.set()
        self.links.close()


def _look(session: MysqlSession, app: str, reads: Sequence[Read], header: Header) -> tuple[Header, list[Any]]:
    return header, drive(session, [reading(session, app, one, header) for one in reads])


def _pruning(batch: Sequence[tuple[int, str]]) -> Callable[[Transaction], int]:
    return lambda transaction: queries.prune(transaction.session, batch)


def _asking(expect: Expect) -> Steps[bool]:
    """Lock the node's newest ask.  Returns whether this one is newer."""
    if expect.ask is None:
        return True
    node, number = expect.ask
    _, ((newest,),) = yield [(_FIRST_ASK, (node,)), (_NEWEST_ASK, (node,))]
    return bool(number > newest)


def _locking_app(app: str, expect: Expect) -> Steps[int | None]:
    """Lock what the commit expects of the app.  Returns its newest fence; None: there is no row to lock."""
    changes = expect.fences or expect.new_generation or expect.new_controls
    if not changes and expect.generation is None and expect.controls is None:
        return 0
    lock = "FOR UPDATE" if changes else "LOCK IN SHARE MODE"
    (found,) = yield [(f"SELECT COALESCE(fence, 0) FROM apps WHERE app = ? {lock}", (app,))]
    return int(found[0][0]) if found else None


def _holds(expect: Expect, header: Header) -> bool:
    if expect.epoch not in ("", header.epoch):
        return False
    if expect.seen is not None and header.steady - expect.seen > VIEW_S:
        return False
    if expect.generation not in (None, header.generation) or expect.controls not in (None, header.controls):
        return False
    return expect.ask is None or header.steady >= header.quarantined_until


_FIRST_ASK = "INSERT INTO asks VALUES (?, 0, 0) ON DUPLICATE KEY UPDATE number = number"
_NEWEST_ASK = "SELECT number FROM asks WHERE node = ? FOR UPDATE"
_FREE_WORLD = "SELECT one FROM world FOR UPDATE SKIP LOCKED"
_BEAT = "UPDATE world SET seen = GREATEST(seen, ?), longest_ttl_s = GREATEST(longest_ttl_s, ?)"
_WAKE = "INSERT INTO wakeups VALUES (?, 1) ON DUPLICATE KEY UPDATE number = number + 1"
_SET_FENCE = "UPDATE apps SET fence = ? WHERE app = ?"
_CHANGE_APP = "UPDATE apps SET generation = generation + ?, controls = controls + ? WHERE app = ?"
