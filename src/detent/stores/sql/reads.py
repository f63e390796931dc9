"""The reads of a look, in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from detent.stores.engine.driver import (
    Asked,
    Cell,
    Cells,
    Due,
    Expired,
    Fires,
    Header,
    Jobs,
    JobState,
    LaneMembers,
    LastAsk,
    Next,
    Planned,
    Read,
    Upcoming,
)
from detent.stores.engine.record import Record
from detent.stores.sql.columns import SELECT, record_of
from detent.stores.sql.dialect import Rows, Session, Statement, Steps, drive

LAST_CHARACTER = "\U0010ffff"


def read(session: Session, app: str, one: Read, header: Header) -> Any:
    return drive(session, [reading(session, app, one, header)])[0]


def reading(session: Session, app: str, read: Read, header: Header) -> Steps[Any]:
    """The reply to a read."""
    match read:
        case Due():
            return _records(_due(session, app, read, header.wall))
        case Expired(queue=None):
            return _records(_select(_EXPIRED_LANED, app, header.steady, read.most))
        case Expired():
            return _records(_select(_EXPIRED, app, read.queue, header.steady, read.most))
        case Asked(number=None):
            return _records(_select(f"{_ASKED} ORDER BY id", read.node))
        case Asked():
            return _records(_select(f"{_ASKED} AND ask = ? ORDER BY id", read.node, read.number))
        case Fires():
            return _records(*_among(session, "{} WHERE key {}", read.keys))
        case Planned():
            return _records(*_among(session, _PLANNED, read.jobs))
        case LaneMembers():
            return _lane_members(session, read, header.wall)
        case Jobs():
            return _jobs(session, app, read, header.wall)
        case Cells():
            return _cells(session, app, read)
        case LastAsk():
            return _last_ask(read.node)
        case Next():
            return _next(session, app, read, header)


def _select(where: str, *values: Any) -> Statement:
    return f"SELECT {SELECT} FROM fires {where}", values


def _among(session: Session, statement: str, names: Sequence[str]) -> list[Statement]:
    """Selects fires by an array of names; none, if there are no names.  The statement has a place for what is
    selected, and for the array."""
    text = statement.format(f"SELECT {SELECT} FROM fires", session.AMONG)
    return [(text, (session.array(names),))] if names else []


def _records(*statements: Statement) -> Steps[list[Record]]:
    found = (yield list(statements)) if statements else []
    return [record_of(row) for rows in found for row in rows]


def _due(session: Session, app: str, read: Due, now: float) -> Statement:
    after, values = "", list[Any]([app, read.queue, read.tier, now])
    if read.after:
        # MySQL uses no index for a comparison of rows.
        after = " AND look_at >= ? AND (look_at, run_at, key) > (?, ?, ?)"
        values += [read.after.look_at, *read.after]
    return _select(f"{_DUE}{after} {_DUE_ORDER} LIMIT ? {session.LOCK_FREE}", *values, read.most)


def _lane_members(session: Session, read: LaneMembers, now: float) -> Steps[dict[str, list[Record]]]:
    statements = _among(session, "{} WHERE state = 'claimed' AND lane <> '' AND lane {}", read.lanes)
    if read.lanes:
        statements.append((_WAITING.format(session.EACH), (session.array(read.lanes), read.waiting)))
    statements += [_select(_RIVALS, lane, now, read.rivals) for lane in read.lanes if read.rivals]
    found = yield from _records(*statements)
    if read.parked and read.lanes:
        queues = yield [parked_queues(lane) for lane in read.lanes]
        lanes = zip(read.lanes, queues, strict=True)
        found += yield from _records(
            *(_first_parked(lane, queue, read.parked) for lane, rows in lanes for (queue,) in rows)
        )
    members: dict[str, list[Record]] = {}
    for record in {record.id: record for record in found}.values():
        members.setdefault(record.fire.lane, []).append(record)
    return members


def _first_parked(lane: str, queue: str, most: int) -> Statement:
    return _select(f"{PARKED} ORDER BY run_at, key LIMIT ?", lane, queue, most)


def parked_queues(lane: str) -> Statement:
    """Selects the queues that have parked fires of this lane."""
    return _PARKED_QUEUES, (lane, lane)


def _jobs(session: Session, app: str, read: Jobs, now: float) -> Steps[dict[str, JobState]]:
    if read.names == ():
        return {}
    newest = f"({_NEWEST})" if read.newest else "NULL"
    statement, values = (
        f"SELECT job, at, revision, version, succeeded, reached, {newest} FROM jobs",
        list[Any]([now] * read.newest),
    )
    if read.names is None:
        statement, values = f"{statement} WHERE app = ?", [*values, app]
    else:
        statement = f"{statement} WHERE job {session.AMONG}"
        values = [*values, session.array(read.names)]
    (found,) = yield [(statement, values)]
    return {name: JobState(*state) for name, *state in found}


def _cells(session: Session, app: str, read: Cells) -> Steps[dict[str, Cell]]:
    found: Rows = []
    if read.prefix:
        limits = (app, read.prefix, read.prefix + LAST_CHARACTER)
        (found,) = yield [(f"{_CELLS} AND name >= ? AND name < ?", limits)]
    elif read.names:
        some = f"{_CELLS} AND name {session.AMONG}"
        (found,) = yield [(some, (app, session.array(read.names)))]
    return {name: Cell(text, version) for name, text, version in found}


def _last_ask(node: str) -> Steps[int]:
    (found,) = yield [("SELECT number FROM asks WHERE node = ?", (node,))]
    return int(found[0][0]) if found else 0


def _next(session: Session, app: str, read: Next, header: Header) -> Steps[Upcoming]:
    array, due = session.array(read.queues), f"(SELECT min(({_NEXT_DUE})) FROM {session.EACH})"
    values = [one for tier in ("judged", "plain", "hook") for one in (app, tier, header.wall, array)]
    expires = f"(SELECT min(({_NEXT_EXPIRY})) FROM {session.EACH})"
    text, values = f"SELECT {due}, {due}, {due}, {expires}", [*values, app, header.steady, array]
    for one in read.reads if session.LOCK_FREE else ():
        text += f", ({_COUNT_DUE})"
        values += [app, one.queue, one.tier, header.wall, one.most]
    (found,) = yield [(text, values)]
    *starts, expiry = found[0][:4]
    return Upcoming(min((at for at in starts if at is not None), default=None), expiry, found[0][4:])


_DUE = "WHERE state = 'pending' AND app = ? AND queue = ? AND tier = ? AND look_at <= ?"
_COUNT_DUE = f"SELECT count(*) FROM (SELECT 1 FROM fires {_DUE} LIMIT ?) AS due"
_DUE_ORDER = "ORDER BY look_at, run_at, key"
_EXPIRED = "WHERE state = 'claimed' AND app = ? AND queue = ? AND expires <= ? ORDER BY expires LIMIT ?"
_EXPIRED_LANED = (
    "WHERE state = 'claimed' AND lane <> '' AND app = ? AND expires <= ? ORDER BY expires LIMIT ?"
)
_ASKED = "WHERE state = 'claimed' AND node = ?"
_PLANNED = "{} WHERE state = 'pending' AND attempt = 0 AND origin IN ('schedule', 'hook') AND job {}"
# Steps from fire to fire in the index, as a lane may have any number of waiting messages.
_WAITING = f"""
WITH RECURSIVE found(of_lane, found_id, place) AS (
    SELECT value, (SELECT min(id) FROM fires WHERE state = 'pending' AND waits AND lane = value), 1 FROM {{}}
    UNION ALL
    SELECT of_lane, (
        SELECT min(id) FROM fires WHERE state = 'pending' AND waits AND lane = of_lane AND id > found_id
    ), place + 1 FROM found WHERE found_id IS NOT NULL AND place < ?
)
SELECT {SELECT} FROM fires JOIN found ON id = found_id
"""
_RIVALS = "WHERE state = 'pending' AND lane = ? AND run_at <= ? ORDER BY due DESC, key DESC LIMIT ?"
PARKED = "WHERE state = 'pending' AND parked AND lane = ? AND queue = ?"
# Steps from queue to queue in the index, whatever the number of parked fires.
_PARKED_QUEUES = """
WITH RECURSIVE found(queue) AS (
    SELECT min(queue) FROM fires WHERE state = 'pending' AND parked AND lane = ?
    UNION ALL
    SELECT (
        SELECT min(queue) FROM fires WHERE state = 'pending' AND parked AND lane = ? AND queue > found.queue
    ) FROM found WHERE queue IS NOT NULL
)
SELECT queue FROM found WHERE queue IS NOT NULL
"""
_NEWEST = """
SELECT max(due) FROM fires
WHERE fires.job = jobs.job AND state <> 'over' AND origin = 'schedule' AND due <= ?
"""
_CELLS = "SELECT name, text, version FROM cells WHERE app = ?"
_NEXT_DUE = """
SELECT look_at FROM fires WHERE state = 'pending' AND app = ? AND queue = value AND tier = ? AND look_at > ?
ORDER BY look_at LIMIT 1
"""
_NEXT_EXPIRY = """
SELECT expires FROM fires WHERE state = 'claimed' AND app = ? AND queue = value AND expires > ?
ORDER BY expires LIMIT 1
"""
