"""The writes of a commit, in SQL: one statement for each kind of write, where the database can."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from detent.stores.base import app_of
from detent.stores.engine.driver import Expect, Group, Progress, Wake, Write, progressed
from detent.stores.sql.columns import ATTEMPT, COLUMNS, attempt_values, fire_values, state_values
from detent.stores.sql.dialect import Rows, Session, Statement, Steps
from detent.stores.sql.reads import PARKED, parked_queues


class Stored(NamedTuple):
    """What a record is now."""

    id: int
    version: int
    state: str
    expires: float


class Versions:
    """The versions of everything that the groups depend on."""

    def __init__(self, fires: Rows, cells: Rows, jobs: Rows, absent: int = 0) -> None:
        self.fires: dict[str, Stored] = {key: Stored(*state) for key, *state in fires}
        self.cells: dict[str, int] = dict(cells)
        self.jobs: dict[str, int] = dict(jobs)
        self._absent = absent  # the version of a cell that was not found

    def allow(self, group: Group, steady: float) -> bool:
        return (
            all(self._is_same(write, steady) for write in group.writes if write.version)
            and all(one.version in (None, self._version(one.key)) for one in group.drops)
            and all(one.version in (None, self.cells.get(one.name, self._absent)) for one in group.cells)
            and all(one.version == self.jobs.get(one.name, 0) for one in group.jobs)
        )

    def _version(self, key: str) -> int:
        return self.fires[key].version if key in self.fires else 0

    def _is_same(self, write: Write, steady: float) -> bool:
        stored = self.fires.get(write.record.fire.key)
        if stored is None or stored.version != write.version:
            return False
        return not write.must_live or (stored.state == "claimed" and stored.expires > steady)


def asking(session: Session, expect: Expect) -> Steps[bool]:
    """Lock the node's newest ask.  Returns whether this one is newer."""
    if expect.ask is None:
        return True
    node, number = expect.ask
    newest = f"SELECT number FROM asks WHERE node = ? {session.LOCK}", (node,)
    (found,) = yield [newest]
    if not found:  # a row that does not exist cannot be locked
        session.insert("asks", ("node", "number", "asked_at"), [(node, 0, 0.0)])
        (found,) = yield [newest]
    return bool(number > found[0][0])


def locking(session: Session, app: str, groups: Sequence[Group], *, waits: bool = True) -> Steps[Versions]:
    """Lock and read the versions, with one statement a table.  Unless it `waits`, what another transaction
    has locked counts as missing, because that transaction is about to change it; only what is dropped
    whatever its version is waited for."""
    lock = session.LOCK if waits else session.LOCK_FREE
    writes = [write for group in groups for write in group.writes]
    keys = {write.record.fire.key for write in writes if write.version or not session.INSERT_TELLS}
    drops = [drop for group in groups for drop in group.drops]
    keys |= {drop.key for drop in drops if drop.version is not None}
    loose = {drop.key for drop in drops} - keys
    cells = [cell for group in groups for cell in group.cells]
    if session.LOCK:  # a cell that does not exist cannot be locked
        rows = [(app, name, "", 0) for name in sorted({cell.name for cell in cells if cell.version == 0})]
        session.insert("cells", ("app", "name", "text", "version"), rows)
    names, jobs = {cell.name for cell in cells}, {job.name for group in groups for job in group.jobs}
    wanted = (
        (f"{_FIRES} {lock}", keys, ()),
        (f"{_FIRES} {session.LOCK}", loose, ()),
        (f"{_CELLS} {lock}", names, (app,)),
        (f"{_JOBS} {session.LOCK}", jobs, ()),
    )
    found = iter((yield [_locked(session, text, some, *more) for text, some, more in wanted if some]))
    fires, dropped, states, watermarks = (next(found) if some else [] for _, some, _ in wanted)
    # All cells exist now, so one that was not found is locked.
    return Versions([*fires, *dropped], states, watermarks, absent=-1 if session.LOCK else 0)


class Stamp(NamedTuple):
    """What this commit gives to what it writes."""

    version: int
    first_fence: int


def write_groups(
    session: Session, app: str, groups: Sequence[Group], versions: Versions, stamp: Stamp
) -> frozenset[str]:
    """Write the groups.  Returns the keys of the records that were inserted."""
    stored = versions.fires
    gone = {
        drop.key for group in groups for drop in group.drops
        if drop.key in stored and (drop.version is not None or stored[drop.key].state == "pending")
    }  # fmt: skip
    writes = [write for group in groups for write in group.writes]
    gone |= {write.record.fire.key for write in writes if write.is_new_fire}
    delete_fires(session, [stored[key].id for key in gone if key in stored])
    new = [w for w in writes if w.is_new_fire or (not w.version and w.record.fire.key not in stored)]
    changed = [write for write in writes if write.version and not write.is_new_fire]
    session.insert("fires", COLUMNS, [_values(write, stamp) for write in new])
    session.update_fires([
        (*state_values(write.record, *stamp), stored[write.record.fire.key].id) for write in changed
    ])  # fmt: skip
    attempts = [(stored[w.record.fire.key].id, w.attempt) for w in changed if w.attempt]
    session.upsert("attempts", ATTEMPT, [attempt_values(fire, one) for fire, one in attempts])
    _write_cells(session, app, groups, stamp.version)
    _write_jobs(session, groups, stamp.version)
    return frozenset(write.record.fire.key for write in new if not write.version)


def _values(write: Write, stamp: Stamp) -> tuple[object, ...]:
    return *fire_values(write.record.fire), *state_values(write.record, *stamp)


def delete_fires(session: Session, ids: Sequence[int]) -> None:
    among = ", ".join(map(str, ids))
    for table, column in (("attempts", "fire"), ("fires", "id")) if ids else ():
        session.run_many(f"DELETE FROM {table} WHERE {column} IN ({among})", [()])


def _write_cells(session: Session, app: str, groups: Sequence[Group], version: int) -> None:
    cells = [cell for group in groups for cell in group.cells]
    written = [(app, cell.name, cell.text, version) for cell in cells if cell.text is not None]
    touched = [(app, cell.name, "", version) for cell in cells if cell.text is None]
    session.insert("cells", ("app", "name", "text", "version"), touched)
    if touched:
        change = f"UPDATE cells SET version = ? WHERE app = ? AND name {session.AMONG}"
        session.run_many(change, [(version, app, session.array(name for _, name, _, _ in touched))])
    session.upsert("cells", ("app", "name", "text", "version"), written)


def _write_jobs(session: Session, groups: Sequence[Group], version: int) -> None:
    jobs = [
        (one.name, app_of(one.name), one.at, one.revision, version) for group in groups for one in group.jobs
    ]
    session.upsert("jobs", ("job", "app", "at", "revision", "version"), jobs)
    write_progress(session, [one for group in groups for one in group.progress])


def write_progress(session: Session, progress: Iterable[Progress]) -> None:
    known: dict[str, Progress] = {}
    for one in progress:
        known[one.job] = progressed(known.get(one.job, one), one)
    rows = [(one.job, app_of(one.job), "", 0, one.succeeded, one.reached) for one in known.values()]
    columns = ("job", "app", "revision", "version", "succeeded", "reached")
    session.upsert("jobs", columns, rows, changes=_PROGRESS)


def unpark(session: Session, wakes: Iterable[Wake], version: int) -> bool:
    """Carry out the wakes.  Returns whether nodes should be woken."""
    lanes, jobs = dict[str, Wake](), list[Wake]()
    for wake in wakes:
        if wake.lane:
            lanes[wake.lane] = min(wake, lanes.get(wake.lane, wake), key=lambda one: one.at)
        else:
            jobs.append(wake)
    is_woken = False
    for lane in _with_parked(session, lanes):
        for (queue,) in session.rows(*parked_queues(lane)):
            wake = lanes[lane]
            first = f"SELECT id FROM fires {PARKED} ORDER BY run_at, key LIMIT ?"
            ids = [id for (id,) in session.rows(first, (lane, queue, wake.most))]
            if wake.at:
                session.run_many(_LOOK_AT, [(version, wake.at, id, wake.at) for id in ids])
            else:
                session.run_many(_UNPARK, [(version, id) for id in ids])
                is_woken = True
    for wake in jobs:
        found = session.rows(
            "SELECT id FROM fires WHERE state = 'pending' AND parked AND job = ?", (wake.job,)
        )
        session.run_many(_UNPARK, [(version, id) for (id,) in found])
        is_woken |= bool(found)
    return is_woken


def _with_parked(session: Session, lanes: Iterable[str]) -> Iterator[str]:
    names = sorted(lanes)
    if not names:
        return
    statement = f"SELECT value FROM {session.EACH} WHERE EXISTS ({_HAS_PARKED})"
    yield from (name for (name,) in session.rows(statement, (session.array(names),)))


def _locked(session: Session, statement: str, names: set[str], *more: str) -> Statement:
    return statement.format(session.AMONG), (*more, session.array(sorted(names)))


_FIRES = "SELECT key, id, version, state, expires FROM fires WHERE key {} ORDER BY key"
_CELLS = "SELECT name, version FROM cells WHERE app = ? AND name {} ORDER BY name"
_JOBS = "SELECT job, version FROM jobs WHERE job {} ORDER BY job"
_PROGRESS = """
succeeded = coalesce(excluded.succeeded, jobs.succeeded),
reached = CASE
    WHEN excluded.reached > coalesce(jobs.reached, -1e300) THEN excluded.reached ELSE jobs.reached
END
"""
_UNPARK = "UPDATE fires SET parked = FALSE, look_at = run_at, version = ? WHERE id = ?"
_LOOK_AT = "UPDATE fires SET version = ?, look_at = ? WHERE id = ? AND look_at > ?"
_HAS_PARKED = "SELECT 1 FROM fires WHERE state = 'pending' AND parked AND lane = value"
