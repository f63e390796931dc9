"""Transactions of the stores on a database server, which has a clock of its own.

The state of the store is read with the first look of a transaction, in the same round trip.  A unit of work
that reads nothing else goes by the last reply instead, and its commit is the first round trip.  A commit
locks the world, shared; so the clock and the controls do not change before its writes are visible.  It locks
records first: while it waits for one that a slow node has in hand, it must not keep the world from others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from detent.stores.engine.driver import Cells, Expect, Fires, Group, Header, Read
from detent.stores.engine.unit import Conflict
from detent.stores.sql.corrections import correct
from detent.stores.sql.dialect import Reading, Rows, Session, Statement, Steps, drive
from detent.stores.sql.driver import Checked
from detent.stores.sql.reads import reading
from detent.stores.sql.server_clock import SEEN_S, Correction, Recollection, World, judge
from detent.stores.sql.writes import Stamp, asking, locking

LARGE = 1000  # writes of a commit that gets more time
GUESS_S = 10.0  # the clock of the server is known for this long after a reply,
GUESS_ROUND_TRIP_S = 0.1  # if that reply came so soon
NOTHING = (Fires(()), Cells())  # reads that name nothing
HEADER = ", ".join((*(f"world.{name}" for name in World._fields), "coalesce(apps.generation, 0)"))
HEADER += ", coalesce(apps.controls, 0)"  # a header is a row of these, the wall clock, and `World.system` now


class ServerSession(Session, Protocol):
    """A connection of a server, for one transaction after the other."""

    WALL: Reading
    STEADY: Reading

    def begin(self) -> None:
        """Begin a transaction, with the next statement that returns rows."""

    def header(self, app: str, fences: int | None = None) -> list[Statement]:
        """Read the clock and, with `fences`, what `stamp` needs.  The last statement reads the header."""

    def end(self, statement: str) -> None:
        """Send COMMIT or ROLLBACK."""

    def lock_world(self, *, exclusively: bool) -> Statement: ...

    def stamp(self, found: list[Rows], app: str, fences: int) -> Stamp | None:
        """Give a version and so many fences.  None: the fences are not in a row."""

    def raise_fences(self, wall: float) -> None: ...

    def wake_nodes(self, app: str) -> None: ...

    def allow_more_time(self) -> None:
        """For a large commit."""


class State(NamedTuple):
    """What every look and commit reads first."""

    world: World
    wall: float
    system: str
    generation: int
    controls: int
    sent: float  # by the client's clock
    answered: float

    @property
    def steady(self) -> float:
        return self.wall - self.world.steps

    @property
    def header(self) -> Header:
        epoch, calm = self.world.epoch, self.world.quarantined_until
        return Header(self.wall, self.steady, epoch, calm, self.generation, self.controls)


class Observer:
    """Judges the state of a store that was read, and remembers what it needs to judge the next one."""

    def __init__(self, boottime: Callable[[], float], *, notices_loss: bool) -> None:
        self.boottime, self.recollection = boottime, Recollection()
        self._notices_loss = notices_loss  # whether a restored backup does not look like another server
        self._seen = ("", 0.0)  # the newest `World.seen`, and its epoch
        self._known: dict[str, State] = {}  # app -> what was read last

    def guess(self, app: str) -> tuple[State, Header] | None:
        """The state and the header as they are now, unless something has changed them.

        The steady clock is not behind the server's, so that no claim is shorter than its node believes."""
        known, now = self._known.get(app), self.boottime()
        if known is None or not now - known.answered <= GUESS_S:
            return None
        if known.answered - known.sent > GUESS_ROUND_TRIP_S:
            return None
        state = known._replace(wall=known.wall + now - known.answered)
        return state, state.header._replace(steady=known.steady + now - known.sent)

    def judge(self, app: str, state: State) -> Correction | None:
        """What must be corrected before the store can be used.  If a newer state was seen in this epoch, the
        server has lost data."""
        world, memory = state.world, self.recollection.recall(state.sent, state.answered)
        has_lost = self._notices_loss and self._seen[0] == world.epoch and self._seen[1] > world.seen
        correction = judge(world, memory, state.wall, "" if has_lost else state.system)
        if correction is None:
            self.recollection.learn(world.epoch, state.steady, state.sent, state.answered)
            self._known[app] = state
            return None
        self._known.clear()
        corrected = correction.world._replace(system=state.system)
        if self._notices_loss:
            corrected = corrected._replace(seen=max(correction.now, world.seen))
        return correction._replace(world=corrected)

    def see(self, world: World) -> None:
        """Remember what was committed."""
        self._seen = world.epoch, world.seen


class ServerTransaction:
    def __init__(self, session: ServerSession, observer: Observer) -> None:
        self.session, self._observer = session, observer
        self._state: State | None = None  # as the first look found it
        self._is_open = False  # the transaction has begun
        self.depth = 1

    def look(self, app: str, reads: Sequence[Read]) -> tuple[Header, list[Any]]:
        session = self.session
        unknown = Header(session.WALL, session.STEADY, "")  # the server knows it, in the same round trip
        steps = [reading(session, app, one, unknown) for one in reads]
        if self._state and self._is_open:
            return self._state.header, drive(session, steps)
        if reads and all(one in NOTHING for one in reads) and (guess := self._observer.guess(app)):
            self._state, header = guess
            return header, drive(session, steps)
        self._begin()
        (state, _), *replies = drive(session, [self._reading(session.header(app)), *steps])
        if self._observer.judge(app, state):
            self._set_right(app)
            raise Conflict
        self._state = state
        self._see(state)
        return state.header, replies

    def _begin(self) -> None:
        if not self._is_open:
            self._is_open = True
            self.session.begin()

    def _see(self, state: State) -> None:
        """Remember this state, and write when the store was last called."""
        session, now = self.session, state.steady
        self._observer.see(state.world)
        if now > state.world.seen + SEEN_S and session.rows(_FREE_WORLD, (now,)):
            session.run_many("UPDATE world SET seen = ?", [(now,)])

    def _reading(self, statements: list[Statement]) -> Steps[tuple[State, list[Rows]]]:
        """Returns the state of the store, and the rows of all these statements."""
        sent = self._observer.boottime()
        found = yield statements
        row, count, answered = found[-1][0], len(World._fields), self._observer.boottime()
        generation, controls, wall, system = row[count : count + 4]
        return State(World(*row[:count]), wall, system, generation, controls, sent, answered), found

    def _set_right(self, app: str) -> None:
        """Correct the store in a transaction of its own, unless another process has just done so."""
        session = self.session
        session.end("ROLLBACK")
        session.begin()
        session.several([session.lock_world(exclusively=True)])
        ((state, found),) = drive(session, [self._reading(session.header(app, 0))])
        stamp, correction = session.stamp(found, app, 0), self._observer.judge(app, state)
        if stamp and correction:
            if correction.is_new_epoch:
                session.raise_fences(state.wall)
            world = correct(session, correction, stamp.version, os.urandom(8).hex())
            self._observer.recollection.learn(world.epoch, correction.now, state.sent, state.answered)
        session.end("COMMIT")
        session.several([])

    def check(self, app: str, expect: Expect, groups: Sequence[Group]) -> Checked | None:
        session, before = self.session, self._state
        assert before, "a unit of work looks before it commits"
        is_guess = not self._is_open
        self._begin()
        if sum(len(one.writes) + len(one.drops) + len(one.cells) + len(one.jobs) for one in groups) > LARGE:
            session.allow_more_time()
        lock = session.lock_world(exclusively=expect.new_generation or expect.new_controls)
        is_new_ask, versions, _, (state, found) = drive(
            session,
            [
                asking(session, expect),
                locking(session, app, groups, waits=expect.is_whole),
                _executing(lock),
                self._reading(session.header(app, expect.fences)),
            ],
        )
        stamp = session.stamp(found, app, expect.fences)
        is_right = self._observer.judge(app, state) is None and before.world.steps == state.world.steps
        if not (is_right and before.wall <= state.wall and is_new_ask and stamp):
            return None
        if is_guess:
            self._see(state)
        return Checked(state.header, versions, stamp)

    def finish(self, app: str, longest_ttl_s: float, *, wakes: bool) -> None:
        session = self.session
        assert self._state
        if longest_ttl_s > self._state.world.longest_ttl_s:
            session.run_many(_LENGTHEN, [(longest_ttl_s,)])
        if wakes:
            session.wake_nodes(app)
        if self.depth == 1:
            self.commit()
        else:
            session.several([])

    def commit(self) -> None:
        """Commit what is not committed yet."""
        if self._is_open:
            self._is_open = False
            self.session.end("COMMIT")
            self.session.several([])


def _executing(statement: Statement) -> Steps[None]:
    yield [statement]


_FREE_WORLD = "SELECT one FROM world WHERE seen < ? FOR UPDATE SKIP LOCKED"
_LENGTHEN = "UPDATE world SET longest_ttl_s = greatest(longest_ttl_s, ?)"
