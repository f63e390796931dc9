"""The driver of all SQL stores.  A database gives it transactions; here is what they do.

A unit of work is one transaction.  A look locks the due fires that it returns, and passes over those that
others have locked.  A commit locks what it checks, then checks, then writes.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

from detent import clock
from detent.errors import StoreUnavailable
from detent.model import Found, Query, Row, Size, Tally
from detent.stores.base import leap
from detent.stores.engine.driver import Committed, Expect, Group, Header, Read
from detent.stores.engine.unit import Conflict
from detent.stores.sql import queries
from detent.stores.sql.dialect import Rows, Session, Statement
from detent.stores.sql.writes import Stamp, Versions, unpark, write_groups

SOON_S = 5  # for a call on which a claim depends
LATER_S = 30  # for a call that may read or change a hundred thousand rows
TRIES = 8  # of a transaction that met a deadlock, or a clock that needed a correction
PRUNE_MAX = 1000  # fires of one transaction; other writers run between two
LOOK_S, LOOK_MAX_S = 0.05, 0.2  # between two looks of a `Poller`; longer while nothing changes
T = TypeVar("T")


class Checked(NamedTuple):
    """What a commit found, after it has locked everything that it depends on."""

    header: Header
    versions: Versions
    stamp: Stamp


class Transaction(Protocol):
    depth: int  # of the units of work that use it

    @property
    def session(self) -> Session: ...

    def look(self, app: str, reads: Sequence[Read]) -> tuple[Header, list[Any]]:
        """Read the state of the store as a whole, and a reply for each read."""

    def check(self, app: str, expect: Expect, groups: Sequence[Group]) -> Checked | None:
        """Lock what the commit depends on, and read it.  None: it is refused, for example as an old ask."""

    def finish(self, app: str, longest_ttl_s: float, *, wakes: bool) -> None:
        """Write what a commit changes of the store as a whole.  The last one may end the transaction."""


class Database(Protocol):
    name: str  # for messages

    def transaction(self, within_s: float, *, writes: bool) -> AbstractContextManager[Transaction]:
        """Begin a transaction, which is committed unless an exception ends it.  `within_s` limits each wait.
        Raises `Conflict` if nothing was written, and it may succeed when it is repeated."""

    def close(self) -> None: ...


class Waiter(Protocol):
    def wait(self, app: str, seconds: float) -> bool: ...

    def close(self) -> None: ...


class SqlDriver:
    def __init__(self, database: Database, waiter: Waiter) -> None:
        self.database, self.waiter = database, waiter
        self._mine = threading.local()  # `open`: the transaction of this thread's unit of work

    # Units of work.

    @contextmanager
    def hand(self, app: str) -> Iterator[None]:
        with self._transaction(SOON_S, writes=True):
            yield

    @contextmanager
    def _transaction(self, within_s: float, *, writes: bool) -> Iterator[Transaction]:
        """This thread's unit of work, or a new one."""
        transaction: Transaction | None = getattr(self._mine, "open", None)
        if transaction:
            transaction.depth += 1
            try:
                yield transaction
            finally:
                transaction.depth -= 1
            return
        with self.database.transaction(within_s, writes=writes) as transaction:
            self._mine.open = transaction
            try:
                yield transaction
            finally:
                self._mine.open = None

    def _act(self, act: Callable[[Transaction], T], within_s: float = LATER_S, *, writes: bool = False) -> T:
        """Act in a transaction, which is repeated if it has to be; not in a unit of work."""
        if transaction := getattr(self._mine, "open", None):
            return act(transaction)
        for _ in range(TRIES):
            with suppress(Conflict), self._transaction(within_s, writes=writes) as transaction:
                return act(transaction)
        raise StoreUnavailable(f"the store {self.database.name} is too busy; it will be tried again")

    def look(self, app: str, reads: Sequence[Read]) -> tuple[Header, list[Any]]:
        return self._act(lambda transaction: transaction.look(app, reads), SOON_S)

    def commit(self, app: str, expect: Expect, groups: Sequence[Group]) -> Committed | None:
        transaction: Transaction = self._mine.open
        session, found = transaction.session, transaction.check(app, expect, groups)
        if found is None or not expect.holds(found.header):
            return None
        header, versions, stamp = found
        done = [versions.allow(group, header.steady) for group in groups]
        if expect.is_whole and not all(done):
            return None
        allowed = [group for group, is_done in zip(groups, done, strict=True) if is_done]
        fresh = write_groups(session, app, allowed, versions, stamp)
        is_woken = unpark(session, [wake for group in allowed for wake in group.wakes], stamp.version)
        if expect.ask:
            node, number = expect.ask
            session.run_many(_NEW_ASK, [(number, header.steady, node)])
        if expect.new_generation or expect.new_controls:
            session.insert("apps", ("app",), [(app,)])
            session.run_many(_CHANGE_APP, [(int(expect.new_generation), int(expect.new_controls), app)])
        transaction.finish(app, expect.longest_ttl_s, wakes=is_woken or expect.wakes_nodes)
        return Committed(header, done, session.inserted(fresh), *stamp)

    # Queries.

    def find(self, query: Query) -> Found:
        return self._query("", lambda session, header: queries.find(session, query))

    def newest(self, app: str, jobs: Sequence[str], each: int) -> dict[str, list[Row]]:
        return self._query(app, lambda session, header: queries.newest(session, jobs, each, header.wall))

    def tally(self, app: str, starts: range) -> list[Tally]:
        return self._query(app, lambda session, header: queries.tally(session, app, starts))

    def count(self, app: str, queues: Sequence[str]) -> dict[str, Size]:
        return self._query(app, lambda session, header: queries.count(session, app, queues, header.wall))

    def apps(self) -> list[str]:
        return self._query("", lambda session, header: queries.apps(session))

    def prune(self, app: str, older_than_s: float, keep: int, at_once: int = PRUNE_MAX) -> int:
        limits, gone = (older_than_s, keep), 0
        self._query(app, lambda session, header: queries.sweep(session, app, header), writes=True)
        unused = iter(self._query(app, lambda session, header: queries.unused_cells(session, app, header)))
        while cells := list(islice(unused, at_once)):
            self._query(app, _deleting(cells), writes=True)
        old = self._query(app, lambda session, header: queries.prunable(session, app, header.wall, limits))
        found = iter(old)
        while batch := list(islice(found, at_once)):
            gone += self._query(app, _pruning(batch), writes=True)
        return gone

    def _query(self, app: str, act: Callable[[Session, Header], T], *, writes: bool = False) -> T:
        return self._act(lambda one: act(one.session, one.look(app, ())[0]), writes=writes)

    # Waiting.

    def wait(self, app: str, seconds: float) -> bool:
        return self.waiter.wait(app, seconds)

    def close(self) -> None:
        self.waiter.close()
        self.database.close()


def _deleting(cells: Sequence[tuple[str, str, int]]) -> Callable[[Session, Header], None]:
    return lambda session, header: queries.delete_cells(session, cells)


def _pruning(batch: Sequence[tuple[int, str]]) -> Callable[[Session, Header], int]:
    return lambda session, header: queries.prune(session, batch)


_NEW_ASK = "UPDATE asks SET number = ?, asked_at = ? WHERE node = ?"
_CHANGE_APP = "UPDATE apps SET generation = generation + ?, controls = controls + ? WHERE app = ?"


class Poller:
    """Waits for wake-ups of an app, by looking at their number again and again."""

    def __init__(self, number: Callable[[str], int]) -> None:
        self._number = number
        self._closing, self._heard, self._pause_s = threading.Event(), dict[str, int](), LOOK_S

    def wait(self, app: str, seconds: float) -> bool:
        closing, until = self._closing, clock.monotonic() + seconds
        now = self._number(app)
        before, self._heard[app] = self._heard.get(app, now), now
        if before != now:  # a wake-up came after the last wait
            return True
        while (left := until - clock.monotonic()) > 0 and not closing.wait(min(left, self._pause_s)):
            if (now := self._number(app)) != before:
                self._heard[app], self._pause_s = now, LOOK_S
                return True
            self._pause_s = min(self._pause_s * 1.1, LOOK_MAX_S)
        return False

    def close(self) -> None:
        closing, self._closing = self._closing, threading.Event()
        closing.set()


# Counters in tables, for databases without sequences.

WAKEUPS = "SELECT coalesce(max(number), 0) FROM wakeups WHERE app = ?"


def wake_nodes(session: Session, app: str) -> None:
    session.upsert("wakeups", ("app", "number"), [(app, 1)], changes="number = wakeups.number + 1")


def fence_of(session: Session, app: str) -> Statement:
    """Selects and locks the newest fence of an app."""
    return f"SELECT number FROM fences WHERE app = ? {session.LOCK}", (app,)


def give_fences(session: Session, app: str, count: int, newest: Rows, first: int) -> int:
    """Give so many fences after the newest one, the very first of which is `first`.  Returns the first."""
    if not newest:
        session.insert("fences", ("app", "number"), [(app, first - 1)])
        newest = session.rows(*fence_of(session, app))
    last = int(newest[0][0])
    session.run_many("UPDATE fences SET number = ? WHERE app = ?", [(last + count, app)])
    return last + 1


def raise_fences(session: Session, wall: float) -> None:
    """Raise the fences for a new epoch."""
    found = session.rows(f"SELECT app, number FROM fences {session.LOCK}")
    session.run_many(
        "UPDATE fences SET number = ? WHERE app = ?", [(leap(last, wall), app) for app, last in found]
    )
