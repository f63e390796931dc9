"""The driver of PostgreSQL: a schema in a database that nodes on many hosts share.

A unit of work is one transaction at READ COMMITTED.  A look locks the due fires that it returns, and passes
over those that others have locked.  A commit locks everything whose version it checks, in one order; an ask
waits for none of it.  Each look, and each half of a commit, is one round trip.

Locks are taken in this order: the fires of a look; the world (advisory, shared); the node's ask; cells that
are new; fires by key, cells by name, jobs by name.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, TypeVar

from detent.errors import StoreUnavailable
from detent.model import Found, Query, Row, Size, Tally
from detent.stores.engine.driver import VIEW_S, Committed, Expect, Group, Header, Read
from detent.stores.engine.unit import Conflict
from detent.stores.postgres.link import LACKING, LATER_S, SERVER_SHARE, SOON_S, Link, Links
from detent.stores.postgres.listen import Listener
from detent.stores.postgres.session import PostgresSession
from detent.stores.postgres.world import (
    SEEN,
    STEADY,
    State,
    beginning,
    heading,
    locking_world,
    new_app,
    set_right,
    state_of,
    unknown_header,
)
from detent.stores.sql import queries
from detent.stores.sql.dialect import Statement, Steps, drive
from detent.stores.sql.reads import reading
from detent.stores.sql.server_clock import SEEN_S, Recollection, judge
from detent.stores.sql.writes import Stamp, Versions, locking, unpark, write_groups

T = TypeVar("T")
IDLE_S = 2.0  # a process that was stopped inside its transaction holds its locks no longer
LARGE = 1000  # writes of a commit that gets more time
PRUNE_MAX = 1000  # fires of one transaction
TRIES = 8
PAUSE_S = 0.05  # the longest pause after a deadlock
_AGAIN = ("40001", "40P01", "25P03")  # serialization failure, deadlock, idle for too long
_ASK = """
INSERT INTO asks AS old (node, number, asked_at) VALUES (?, ?, ?)
ON CONFLICT (node) DO UPDATE SET number = excluded.number, asked_at = excluded.asked_at
WHERE old.number < excluded.number RETURNING number
"""


class Transaction:
    session: PostgresSession

    def __init__(self, link: Link, within_s: float) -> None:
        self.link, self.within_s = link, within_s
        self.is_begun = False
        self.state: State | None = None  # as the first look found it
        self.depth = 1  # of the units of work that it is for
        self.is_committed = False  # or may be: the reply has not arrived yet

    def commit(self) -> None:
        self.session.send("COMMIT")
        self.is_begun, self.is_committed, self.state = False, True, None


class PostgresDriver:
    def __init__(self, links: Links, boottime: Callable[[], float]) -> None:
        self.links, self.boottime = links, boottime
        self._mine = threading.local()  # `open`: the transaction of this thread's unit of work
        self._recollection = Recollection()
        self.listener = Listener(links)

    # Units of work.

    @contextmanager
    def hand(self, app: str) -> Iterator[None]:
        with self._transaction(SOON_S):
            yield

    @contextmanager
    def _transaction(self, within_s: float) -> Iterator[Transaction]:
        """This thread's unit of work, or a new one."""
        transaction: Transaction | None = getattr(self._mine, "open", None)
        if transaction:
            transaction.depth += 1
            try:
                yield transaction
            finally:
                transaction.depth -= 1
            return
        with self._errors(), self.links.link(within_s) as link, self._rolling_back(link):
            link.limit(within_s)
            transaction = Transaction(link, within_s)
            with _retrying_lost(transaction), link.db.pipeline() as pipeline:
                transaction.session = PostgresSession(link.db, pipeline)
                self._mine.open = transaction
                try:
                    yield transaction
                finally:
                    self._mine.open = None
                if transaction.is_begun:
                    transaction.commit()
                    transaction.session.several([])

    @contextmanager
    def _rolling_back(self, link: Link) -> Iterator[None]:
        try:
            yield
        except BaseException:
            with suppress(Exception):
                link.db.rollback()
            if link.db.info.transaction_status != 0:  # TransactionStatus.IDLE
                link.close()
            raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            if error.sqlstate in LACKING:
                self.links.open().close()  # the schema was dropped: a new connection creates it
                raise Conflict from error
            if error.sqlstate in _AGAIN:
                threading.Event().wait(PAUSE_S * (1 + os.urandom(1)[0]) / 256)
                raise Conflict from error
            raise self.links.explain(error) from error

    def look(self, app: str, reads: Sequence[Read]) -> tuple[Header, list[Any]]:
        if getattr(self._mine, "open", None) is None:
            return self._repeatedly(SOON_S, lambda transaction: self._look(transaction, app, reads))
        return self._look(self._mine.open, app, reads)

    def _look(self, transaction: Transaction, app: str, reads: Sequence[Read]) -> tuple[Header, list[Any]]:
        session, header = transaction.session, unknown_header()
        state, replies = self._read(transaction, app, [reading(session, app, one, header) for one in reads])
        return state.header, replies

    def _repeatedly(self, within_s: float, act: Callable[[Transaction], T]) -> T:
        """Act in a transaction, which is repeated if it has to be."""
        for _ in range(TRIES):
            with suppress(Conflict), self._transaction(within_s) as transaction:
                return act(transaction)
        raise StoreUnavailable(f"the store {self.links.name} was too busy; it will be tried again")

    # The world.

    def _beginning(self, transaction: Transaction, app: str) -> Steps[State]:
        transaction.is_begun, within_s = True, transaction.within_s
        limits_s = within_s * SERVER_SHARE, within_s / SOON_S * IDLE_S
        row = yield from beginning(self.links.schema, app, limits_s)
        return state_of(row, self.boottime())

    def _read(self, transaction: Transaction, app: str, steps: list[Steps[Any]]) -> tuple[State, list[Any]]:
        """The state of the store, as the first look of the transaction found it, and what these steps return:
        in one round trip."""
        session = transaction.session
        if transaction.state:
            return transaction.state, drive(session, steps)
        sent, state = self.boottime(), transaction.state
        state, *values = drive(session, [self._beginning(transaction, app), *steps])
        assert state
        if self._is_wrong(state, sent):
            self._set_right(transaction, app)
            raise Conflict
        transaction.state = state
        if state.steady > state.world.seen + SEEN_S:
            session.send(SEEN, (state.steady, state.steady))
        return state, values

    def _is_wrong(self, state: State, sent: float) -> bool:
        """Whether something must be corrected before the store can be used."""
        memory = self._recollection.recall(sent, state.answered)
        if judge(state.world, memory, state.wall, state.system):
            return True
        self._recollection.learn(state.world.epoch, state.steady, sent, state.answered)
        return False

    def _set_right(self, transaction: Transaction, app: str) -> None:
        """Correct the store in a transaction of its own, unless another process has just done so."""
        session, sent = transaction.session, self.boottime()
        session.rows("ROLLBACK")
        drive(session, [self._beginning(transaction, app), locking_world(exclusively=True)])
        state = state_of(drive(session, [heading(self.links.schema, app, NO_FENCES)])[0], self.boottime())
        memory = self._recollection.recall(sent, state.answered)
        if correction := judge(state.world, memory, state.wall, state.system):
            world = set_right(session, correction, state.wall)
            self._recollection.learn(world.epoch, correction.now, sent, state.answered)
        session.rows("COMMIT")
        transaction.is_begun = False

    # Committing.

    def commit(self, app: str, expect: Expect, groups: Sequence[Group]) -> Committed | None:
        with self._transaction(SOON_S) as transaction:
            session, before = transaction.session, transaction.state
            assert before, "a unit of work looks before it commits"
            if sum(map(_size, groups)) > LARGE:
                transaction.link.limit(LATER_S)
                session.send("SELECT set_config('statement_timeout', ?, true)", (f"{LATER_S * 800:.0f}",))
            changes_world, app_id = expect.new_generation or expect.new_controls, before.app_id
            if app_id is None and (expect.fences or changes_world):
                app_id = new_app(session, app, before.wall)
            sent = self.boottime()
            _, is_new_ask, versions, row = drive(
                session,
                [
                    locking_world(exclusively=changes_world),
                    _asking(expect),
                    locking(session, app, groups, waits=expect.is_whole),
                    heading(self.links.schema, app, _fences(app_id, expect.fences)),
                ],
            )
            state, stamp = state_of(row, self.boottime()), _stamp(row, expect.fences)
            is_right = not self._is_wrong(state, sent) and before.world.steps == state.world.steps
            if not (is_right and is_new_ask and stamp and _holds(expect, state.header)):
                return None
            done = [versions.allow(group, state.steady) for group in groups]
            if expect.is_whole and not all(done):
                return None
            allowed = [group for group, is_done in zip(groups, done, strict=True) if is_done]
            fresh = self._write(transaction, app, (expect, allowed), (versions, state, stamp))
            return Committed(state.header, done, fresh, *stamp)

    def _write(
        self,
        transaction: Transaction,
        app: str,
        wanted: tuple[Expect, Sequence[Group]],
        found: tuple[Versions, State, Stamp],
    ) -> frozenset[str]:
        """Write the groups, and what the commit changes as a whole.  Returns the keys that are new."""
        session, (expect, groups), (versions, state, stamp) = transaction.session, wanted, found
        fresh = write_groups(session, app, groups, versions, stamp)
        is_woken = unpark(session, [wake for group in groups for wake in group.wakes], stamp.version)
        if expect.new_generation or expect.new_controls:
            session.send(_CHANGE_APP, (int(expect.new_generation), int(expect.new_controls), app))
        if expect.longest_ttl_s > state.world.longest_ttl_s:
            session.send(_LENGTHEN, (expect.longest_ttl_s,))
        if is_woken or expect.wakes_nodes:
            session.send("SELECT nextval('wakeups'), pg_notify(?, ?)", (self.links.schema, app))
        if transaction.depth <= 2:
            transaction.commit()
        session.several([])
        return fresh & session.inserted()

    # Queries.

    def find(self, query: Query) -> Found:
        return self._query("", lambda session, state: queries.find(session, query))

    def newest(self, app: str, jobs: Sequence[str], each: int) -> dict[str, list[Row]]:
        return self._query(app, lambda session, state: queries.newest(session, jobs, each, state.wall))

    def tally(self, app: str, starts: range) -> list[Tally]:
        return self._query(app, lambda session, state: queries.tally(session, app, starts))

    def count(self, app: str, queues: Sequence[str]) -> dict[str, Size]:
        return self._query(app, lambda session, state: queries.count(session, app, queues, state.wall))

    def apps(self) -> list[str]:
        return self._query("", lambda session, state: queries.apps(session))

    def prune(self, app: str, older_than_s: float, keep: int) -> int:
        limits, gone = (older_than_s, keep), 0
        self._query(app, lambda session, state: queries.sweep(session, app, state.header))
        prunable = self._query(app, lambda session, state: queries.prunable(session, app, state.wall, limits))
        found = iter(prunable)
        while batch := list(islice(found, PRUNE_MAX)):
            gone += self._query(app, lambda session, _, some=batch: queries.prune(session, some))  # type: ignore[misc]
        return gone

    def _query(self, app: str, act: Callable[[PostgresSession, State], T]) -> T:
        def run(transaction: Transaction) -> T:
            state, _ = self._read(transaction, app, [])
            return act(transaction.session, state)

        return self._repeatedly(LATER_S, run)

    # Waiting.

    def wait(self, app: str, seconds: float) -> bool:
        return self.listener.wait(app, seconds)

    def close(self) -> None:
        self.listener.close()
        self.links.close()


@contextmanager
def _retrying_lost(transaction: Transaction) -> Iterator[None]:
    """If the server closed the connection before the commit was sent, nothing was written: try again."""
    import psycopg

    try:
        yield
    except psycopg.OperationalError as error:
        is_lost = error.sqlstate is None and not isinstance(error.__cause__, TimeoutError)
        if is_lost and not transaction.is_committed:
            raise Conflict from error
        raise


def _size(group: Group) -> int:
    return len(group.writes) + len(group.drops) + len(group.cells) + len(group.jobs)


def _asking(expect: Expect) -> Steps[bool]:
    """Whether the number of the ask is new.  Then it is the newest from now on, and a repeated ask waits."""
    if expect.ask is None:
        return True
    (found,) = yield [(_ASK, (*expect.ask, STEADY))]
    return bool(found)


NO_FENCES: Statement = ("ARRAY[0]", ())


def _fences(app_id: int | None, count: int) -> Statement:
    """Gives so many fences."""
    given = f"ARRAY(SELECT nextval('fence_{app_id}') FROM generate_series(1, ?))"
    return (given, (count,)) if count else NO_FENCES


def _stamp(row: Sequence[Any], fences: int) -> Stamp | None:
    """None: the fences are not in a row, because another commit took one between them."""
    version, numbers = row[-2:]
    return Stamp(version, numbers[0]) if numbers[-1] - numbers[0] == max(fences - 1, 0) else None


def _holds(expect: Expect, header: Header) -> bool:
    if expect.epoch not in ("", header.epoch):
        return False
    if expect.seen is not None and header.steady - expect.seen > VIEW_S:
        return False
    if expect.generation not in (None, header.generation) or expect.controls not in (None, header.controls):
        return False
    return expect.ask is None or header.steady >= header.quarantined_until


_CHANGE_APP = "UPDATE apps SET generation = generation + ?, controls = controls + ? WHERE app = ?"
_LENGTHEN = "UPDATE world SET longest_ttl_s = greatest(longest_ttl_s, ?)"
