"""The interface of a driver: it keeps versioned records, ordered indexes and small cells, and knows no rule.

A unit of work is look, decide, commit.  A look reads one state of the store.  A commit writes only if what
was read has not changed: every record, cell and job has a version, which each write replaces by a new one.
Versions keep a store correct.  `hand` keeps it fast: no other unit of work gets the fires that a look
returned as due, and so few commits are refused.

A driver keeps two clocks.  `wall` decides what is due.  `steady` decides what has expired; no step of the
wall clock moves it.  When a driver notices a step, it moves `run_at` of the pending records that are due
after a delay (`moves_with_clock`), and unparks all.  When it may have lost data, it begins a new epoch.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, TypeVar

from detent.model import Attempt, Found, Query, Row, Size, Tally
from detent.stores.engine.record import Record, Tier

VIEW_S = 4.0  # a commit is refused if its look is older; on a slow network each look takes a second


class Header(NamedTuple):
    """The state of the store as a whole, read with every look and commit."""

    wall: float
    steady: float
    epoch: str
    quarantined_until: float = 0.0  # on the steady clock; nothing is granted before
    generation: int = 0  # of the app's jobs
    controls: int = 0  # grows with every change of a pause or a rate


NO_HEADER = Header(0.0, 0.0, "")  # of a unit of work that has not looked


class Place(NamedTuple):
    """A position in an index of due fires."""

    look_at: float
    run_at: float
    key: str


# What a look reads.  Each kind of read has one kind of reply.


class Due(NamedTuple):
    """Pending records of a queue and tier that are due now, by (look_at, run_at, key).  Reply: a list."""

    tier: Tier
    queue: str
    most: int
    after: Place | None = None


class Expired(NamedTuple):
    """Claimed records whose claim has expired, the earliest expiry first: those of a queue or, without a
    queue, those of the app that have a lane.  Reply: a list."""

    queue: str | None
    most: int


class Asked(NamedTuple):
    """Claimed records that this node got; with a number, in that ask.  Reply: a list, by id."""

    node: str
    number: int | None = None


class Fires(NamedTuple):
    """The records with these keys.  Reply: a list of those that exist."""

    keys: tuple[str, ...]


class LaneMembers(NamedTuple):
    """Open records of each lane.  Reply: a dict of lists.

    Always: the claimed ones.  `waiting`: the first pending ones that wait (`waits`), at most so many, by id.
    `rivals`: the latest due, at most so many, by (fire.due_at, key).  `parked`: the first parked ones of each
    queue, at most so many, by (run_at, key)."""

    lanes: tuple[str, ...]
    rivals: int = 0
    parked: int = 0
    waiting: int = 1


class Jobs(NamedTuple):
    """Jobs by name, or all of the app.  Reply: a dict of `JobState`."""

    names: tuple[str, ...] | None = None
    newest: bool = False  # with their newest open instant that is due


class Planned(NamedTuple):
    """Pending records of these jobs that were never claimed, with origin schedule or hook.  Reply: a list."""

    jobs: tuple[str, ...]


class Cells(NamedTuple):
    """Cells by name, or all whose name starts with `prefix`.  Reply: a dict of `Cell`."""

    names: tuple[str, ...] = ()
    prefix: str = ""


class LastAsk(NamedTuple):
    """The number of the newest ask of this node that was committed.  Reply: a number, 0 if there is none."""

    node: str


class Next(NamedTuple):
    """When something happens next on these queues, and how many records these reads could find if others held
    none of them.  Reply: `Upcoming`."""

    queues: tuple[str, ...]
    reads: tuple[Due, ...] = ()


Read = Due | Expired | Asked | Fires | LaneMembers | Jobs | Planned | Cells | LastAsk | Next


class JobState(NamedTuple):
    at: float | None  # watermark; None: the job is not one of the app's jobs
    revision: str
    version: int
    succeeded: float | None = None  # when one of its fires last succeeded
    reached: float | None = None  # its newest instant that was claimed, cancelled or pruned
    newest_due: float | None = None


class Cell(NamedTuple):
    text: str
    version: int  # 0: there is no such cell


class Upcoming(NamedTuple):
    look_at: float | None  # the earliest `look_at` of a pending record after now
    expires: float | None  # the earliest expiry of a claim after now
    due: tuple[int, ...] = ()  # for each read; empty if what others hold has a `look_at` after now


NO_CELL = Cell("", 0)
NO_JOB = JobState(None, "", 0)


# What a commit writes.


class Write(NamedTuple):
    """A record.  `version` must still be its version; 0: insert it unless its key exists, and never refuse.

    A fence below 0 in `fence` or `ran_fence` stands for a new one: -1 is the first that the commit gives."""

    record: Record
    version: int
    attempt: Attempt | None = None  # to add to its history
    must_live: bool = False  # refuse unless its claim is live at the moment of the commit
    is_new_fire: bool = False  # it replaces an older fire with this key: drop that one's history


class Drop(NamedTuple):
    """Delete a record and its history.  None: whatever its version, if it is pending."""

    key: str
    version: int | None


class SetCell(NamedTuple):
    """`version` must still be the cell's version; None: any.  `text` None: keep the text, as only the version
    changes.  An empty text deletes the cell, unless it is a lane's."""

    name: str
    text: str | None
    version: int | None = None


class SetJob(NamedTuple):
    """Set a job's watermark.  `at` None: it is no longer one of the app's jobs."""

    name: str
    at: float | None
    revision: str
    version: int


class Progress(NamedTuple):
    """What is known of a job's past: `succeeded` replaces the old value, `reached` only grows."""

    job: str
    succeeded: float | None = None
    reached: float | None = None


P = TypeVar("P", JobState, Progress)


class Wake(NamedTuple):
    """Unpark the first parked records of a lane in each queue, by (run_at, key), or all of a job: their
    `look_at` becomes `run_at`, and the nodes are woken.  With `at` they stay parked, and their `look_at`
    becomes at most `at`.

    The engine wakes the next fires of a lane whenever one that was in sight leaves it with room.  So a lane
    with room and parked fires always has a fire in sight."""

    lane: str = ""
    job: str = ""
    most: int = 0
    at: float = 0.0


class Group(NamedTuple):
    """Is committed as a whole, or refused as a whole."""

    writes: Sequence[Write] = ()
    drops: Sequence[Drop] = ()
    cells: Sequence[SetCell] = ()
    jobs: Sequence[SetJob] = ()
    progress: Sequence[Progress] = ()
    wakes: Sequence[Wake] = ()


class Expect(NamedTuple):
    """What must hold for the commit as a whole, and what it changes as a whole."""

    epoch: str = ""  # "": any
    seen: float | None = None  # `steady` of the look; refused if older than `VIEW_S`
    ask: tuple[str, int] | None = None  # node and number: refused in quarantine, or unless the number is new
    generation: int | None = None
    controls: int | None = None
    fences: int = 0  # how many new fences to give
    longest_ttl_s: float = 0.0  # of the claims that it grants, or of the fires that it records
    new_generation: bool = False
    new_controls: bool = False
    wakes_nodes: bool = False
    is_whole: bool = True  # one refused group refuses all

    def holds(self, header: Header) -> bool:
        """Whether the state of the store as a whole is as expected.  The driver checks the ask's number."""
        return (
            self.epoch in ("", header.epoch)
            and (self.seen is None or header.steady - self.seen <= VIEW_S)
            and self.generation in (None, header.generation)
            and self.controls in (None, header.controls)
            and (self.ask is None or header.steady >= header.quarantined_until)
        )


class Committed(NamedTuple):
    header: Header
    done: Sequence[bool]  # for each group, whether it was committed
    fresh: frozenset[str]  # keys of the records that were inserted
    version: int  # of everything that this commit wrote
    first_fence: int  # the fence that -1 stands for


class Driver(Protocol):
    def hand(self, app: str) -> AbstractContextManager[None]:
        """A unit of work.  What it looked at as due is not offered to others until it ends."""

    def look(self, app: str, reads: Sequence[Read]) -> tuple[Header, list[Any]]:
        """Read one state of the store.  Returns a reply for each read."""

    def commit(self, app: str, expect: Expect, groups: Sequence[Group]) -> Committed | None:
        """Write the groups.  None: nothing was written, because `expect` no longer holds or, if it is whole,
        because a group was refused."""

    # Queries, by the driver's own indexes.

    def find(self, query: Query) -> Found: ...

    def newest(self, app: str, jobs: Sequence[str], each: int) -> Mapping[str, list[Row]]:
        """Rows without attempts.  Jobs without fires may be missing."""

    def tally(self, app: str, starts: range) -> Iterable[Tally]:
        """Count the fires that ended in these intervals, which start at Unix seconds; in any order."""

    def count(self, app: str, queues: Sequence[str]) -> Mapping[str, Size]: ...

    def apps(self) -> list[str]: ...

    def prune(self, app: str, older_than_s: float, keep: int) -> int: ...

    def wait(self, app: str, seconds: float) -> bool: ...

    def close(self) -> None: ...


def progressed(old: P, one: Progress) -> P:
    reached = max((at for at in (old.reached, one.reached) if at is not None), default=None)
    return old._replace(succeeded=old.succeeded if one.succeeded is None else one.succeeded, reached=reached)


def place_of(record: Record) -> Place:
    return Place(record.look_at, record.run_at, record.fire.key)


def moves_with_clock(record: Record) -> bool:
    """Whether a step of the wall clock moves `run_at`: it is a delay, not an instant of a schedule."""
    is_nominal = record.fire.origin == "schedule" and record.run_at == record.fire.due_at.timestamp()
    return record.state == "pending" and not is_nominal
