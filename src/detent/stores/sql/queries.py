"""Finds, counts and prunes fires, in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from detent.clock import instant
from detent.model import DEAD, Attempt, Found, Query, Row, Size, Tally
from detent.rules.rates import charges_of
from detent.rules.tallies import BOUNDS_S, NEVER_RAN, tally_of
from detent.stores.base import (
    CHARGE_PREFIX,
    LANE_PREFIX,
    LOOK_MAX,
    NOTE_PREFIX,
    REMEMBER_ASKS_S,
    RETURN_S,
    app_of,
)
from detent.stores.encoding import live_graces, live_note
from detent.stores.engine.driver import Header, Progress
from detent.stores.engine.record import Record, row_of
from detent.stores.paging import page
from detent.stores.sql import columns
from detent.stores.sql.columns import ATTEMPT, ROW, SELECT, attempt_of, record_of
from detent.stores.sql.dialect import Session
from detent.stores.sql.writes import delete_fires, write_progress

Condition = tuple[str, list[Any]]  # the text of a condition, and its values


def find(session: Session, query: Query) -> Found:
    where, values = _condition(session, query)
    if query.upcoming:
        return Found(_rows(session, query, f"FROM fires WHERE {where} ORDER BY run_at, key LIMIT ?", values))
    span, span_values = _span(query)
    if few := _few(session, query):  # few enough to read and sort all of them
        source, source_values = few
        ordered = f"FROM {source} WHERE {where} AND {span} ORDER BY due DESC, key DESC LIMIT ?"
        return page(_rows(session, query, ordered, source_values + values + span_values), query.limit, None)
    source = f"FROM fires {session.hint(_index(query))} WHERE {span} ORDER BY due DESC, key DESC"
    history = f"FROM (SELECT * {source} LIMIT {LOOK_MAX}) AS history WHERE {where} LIMIT ?"
    rows, stopped_at = _rows(session, query, history, span_values + values), None
    if len(rows) < query.limit:
        last = session.rows(f"SELECT due, key {source} LIMIT 1 OFFSET {LOOK_MAX - 1}", span_values)
        stopped_at = (instant(last[0][0]), last[0][1]) if last else None
    return page(rows, query.limit, stopped_at)


def _rows(session: Session, query: Query, among: str, values: list[Any]) -> list[Row]:
    found = [record_of(row) for row in session.rows(f"SELECT {SELECT} {among}", (*values, query.limit))]
    attempts = _attempts(session, found, is_whole=bool(query.key))
    return [row_of(record, tuple(attempts.get(record.id, ()))) for record in found]


def _attempts(session: Session, records: Sequence[Record], *, is_whole: bool) -> dict[int, list[Attempt]]:
    attempts: dict[int, list[Attempt]] = {}
    ids = ", ".join(str(record.id) for record in records if record.recorded)
    if ids:
        columns = ", ".join(ATTEMPT if is_whole else ATTEMPT[:-1])
        found = session.rows(f"SELECT {columns} FROM attempts WHERE fire IN ({ids}) ORDER BY fire, number")
        for fire, *rest in found:
            attempts.setdefault(fire, []).append(attempt_of((*rest,) if is_whole else (*rest, b"")))
    return attempts


def _few(session: Session, query: Query) -> Condition | None:
    """What to read if it gives at most `LOOK_MAX` fires; None: there is no such subset."""
    if query.key or query.keys:
        keys = [query.key] if query.key else query.keys
        return f"({_subset(session, '', f'key {session.AMONG}')}) AS fires", [session.array(keys)]
    if query.state not in ("pending", "claimed"):
        return None
    app = query.app or app_of(query.job)
    condition, values = f"state = '{query.state}'{' AND app = ?' if app else ''}", [app] if app else []
    hint = session.hint(f"fires_{query.state}")
    counted = f"SELECT 1 FROM fires {hint} WHERE {condition} LIMIT {LOOK_MAX + 1}"
    ((count,),) = session.rows(f"SELECT count(*) FROM ({counted}) AS few", values)
    return (f"({_subset(session, hint, condition)}) AS fires", values) if count <= LOOK_MAX else None


def _subset(session: Session, hint: str, condition: str) -> str:
    return f"SELECT * FROM fires {hint} WHERE {condition} {session.APART}"


def _index(query: Query) -> str:
    """The index that gives the order of the history."""
    if query.job:
        return "fires_job"
    return "fires_unsuccessful" if _is_without_success(query) else "fires_history"


def _span(query: Query) -> Condition:
    """The conditions that the index supports."""
    texts, values = ["1 = 1"], list[Any]()
    if query.job:
        texts, values = ["job = ?"], [query.job]
    elif _is_without_success(query):
        texts = [UNSUCCESSFUL]
    for text, at in (("due >= ?", query.since), ("due <= ?", query.until)):
        if at:
            texts.append(text)
            values.append(at.timestamp())
    if query.before:
        before_at, key = query.before[0].timestamp(), query.before[1]
        texts.append("due <= ? AND (due, key) < (?, ?)")  # MySQL uses no index for a comparison of rows
        values += [before_at, before_at, key]
    return " AND ".join(texts), values


def _is_without_success(query: Query) -> bool:
    return bool(query.kinds) and "succeeded" not in query.kinds


def _condition(session: Session, query: Query) -> Condition:
    """The state is a literal, so that the database can use partial indexes."""
    state = query.state if query.state in ("", "pending", "claimed", "over") else "none"
    state = state if not query.upcoming else "pending" if state in ("", "pending") else "none"
    texts, values = ["1 = 1"], list[Any]()
    for column, value in (("app", query.app), ("job", query.job), ("key", query.key)):
        if value:
            texts.append(f"{column} = ?")
            values.append(value)
    if state:
        texts.append(f"state = '{state}'")
    several = (("origin", query.origins), ("kind", query.kinds), ("key", query.keys), ("job", query.jobs))
    for column, words in (*several, ("queue", query.queues)):
        if len(words) == 1:  # it is read in the order of an index
            texts.append(f"{column} = ?")
            values.append(words[0])
        elif words:
            texts.append(f"{column} {session.AMONG}")
            values.append(session.array(words))
    return " AND ".join(texts), values


def newest(session: Session, jobs: Sequence[str], each: int, now: float) -> dict[str, list[Row]]:
    statement = _NEWEST.format(", ".join(ROW), session.hint("fires_job"))
    found = session.several([(statement, (job, now, each)) for job in jobs])
    return {job: [columns.row_of(row) for row in rows] for job, rows in zip(jobs, found, strict=True)}


def tally(session: Session, app: str, starts: range) -> list[Tally]:
    start = f"{session.FLOOR.format(f'over_at / {starts.step}')} * {starts.step}"
    ended = _ENDED.format(start, session.hint("fires_over"))
    groups = f"start, job, queue, kind, {_bucket('late')}, {_bucket('took')}"
    statement = f"SELECT {groups}, count(*) FROM ({ended}) AS ended GROUP BY 1, 2, 3, 4, 5, 6"
    found = session.rows(statement, (starts.start, starts.stop, app))
    return [tally_of(start, group, fires) for start, *group, fires in found]


def _bucket(column: str) -> str:
    """The place of its bound in `BOUNDS_S`."""
    bounds = " ".join(f"WHEN {column} <= {bound} THEN {n}" for n, bound in enumerate(BOUNDS_S[:-1]))
    return f"CASE WHEN {column} IS NULL THEN {NEVER_RAN} {bounds} ELSE {len(BOUNDS_S) - 1} END"


def count(session: Session, app: str, queues: Sequence[str], now: float) -> dict[str, Size]:
    found: dict[str, Size] = {}
    among = f" AND queue {session.AMONG}" if queues else ""
    array = [session.array(queues)] if queues else []
    dead = ", ".join(f"'{kind}'" for kind in DEAD)
    for words, text, values in (
        (("delayed", "pending"), _COUNT_WAITING, [now, now]),
        (("running",), _COUNT_RUNNING, []),
        (("dead",), _COUNT_DEAD.format(UNSUCCESSFUL, dead), []),
    ):
        for queue, *numbers in session.rows(f"{text}{among} GROUP BY queue", [*values, app, *array]):
            sizes = dict(zip(words, map(int, numbers), strict=True))
            found[queue] = found.get(queue, Size())._replace(**sizes)
    return found


def apps(session: Session) -> list[str]:
    return sorted(app for (app,) in session.rows(_APPS))


# Pruning.


def prunable(session: Session, app: str, now: float, limits: tuple[float, int]) -> list[tuple[int, str]]:
    """Id and key of the finished fires that are older than the first limit, or not among the newest of their
    job, as many as the second limit says."""
    older_than_s, keep = limits
    return [(id, key) for id, key in session.rows(_PRUNABLE, (app, now - older_than_s, keep, now, now, now))]


def prune(session: Session, found: Sequence[tuple[int, str]]) -> int:
    """Delete those of these fires that are still the same."""
    keys = {key for _, key in found}
    among = f"state = 'over' AND key {session.AMONG}"
    statement = f"SELECT id, key, job, due, origin FROM fires WHERE {among}"
    wanted, gone, reached = set(found), [], list[Progress]()
    for id, key, job, due, origin in session.rows(statement, (session.array(sorted(keys)),)):
        if (id, key) in wanted:
            gone.append(id)
            if origin == "schedule":
                reached.append(Progress(job, reached=due))
    write_progress(session, reached)
    delete_fires(session, gone)
    return len(gone)


def sweep(session: Session, app: str, header: Header) -> None:
    """Forget old asks, and jobs that were removed long ago and have no fires."""
    session.run_many("DELETE FROM asks WHERE asked_at <= ?", [(header.steady - REMEMBER_ASKS_S,)])
    session.run_many(_FORGET_JOBS, [(app, header.wall - RETURN_S)])


def unused_cells(session: Session, app: str, header: Header) -> list[tuple[str, str, int]]:
    """The cells that are no longer needed, with their versions: expired notes and charges, and lanes without
    fires.  A fire that takes a lane changes the version of its cell."""
    found = []
    for name, text, version in session.rows("SELECT name, text, version FROM cells WHERE app = ?", (app,)):
        if name.startswith(NOTE_PREFIX):
            is_old = not live_note(text, header.steady)
        elif name.startswith(CHARGE_PREFIX):
            lasts_s, charges = charges_of(text)
            is_old = all(at <= header.steady - lasts_s for at, _ in charges)
        else:
            is_old = name.startswith(LANE_PREFIX) and not live_graces(text, header.steady)
            is_old = is_old and not session.rows(LANE_IS_USED, (name.removeprefix(LANE_PREFIX),) * 2)
        if is_old:
            found.append((app, name, version))
    return found


def delete_cells(session: Session, found: Sequence[tuple[str, str, int]]) -> None:
    """Delete those of these cells that are still the same."""
    session.run_many("DELETE FROM cells WHERE app = ? AND name = ? AND version = ?", found)


UNSUCCESSFUL = "kind <> 'succeeded' AND kind <> ''"  # must be the text of the index's condition
_NEWEST = "SELECT {} FROM fires {} WHERE job = ? AND due <= ? ORDER BY due DESC, key DESC LIMIT ?"
# As `rules.tallies.group_of` defines lateness and duration.  The states are the text of an index's condition.
_ENDED = """
SELECT {} AS start, job, queue, kind,
    CASE WHEN attempt = 1 AND origin = 'schedule' THEN ran_at - due WHEN attempt > 0 THEN ran_at - run_at END
    AS late,
    CASE WHEN attempt > 0 THEN over_at - ran_at END AS took
FROM fires {} WHERE state <> 'pending' AND state <> 'claimed' AND over_at >= ? AND over_at < ? AND app = ?
"""
_COUNT_WAITING = """
SELECT queue, sum(CASE WHEN run_at > ? THEN 1 ELSE 0 END), sum(CASE WHEN run_at <= ? THEN 1 ELSE 0 END)
FROM fires
WHERE state = 'pending' AND origin = 'push' AND app = ?
""".strip()
_COUNT_RUNNING = "SELECT queue, count(*) FROM fires WHERE state = 'claimed' AND origin = 'push' AND app = ?"
_COUNT_DEAD = """
SELECT queue, count(*) FROM fires
WHERE {} AND state = 'over' AND kind IN ({}) AND origin = 'push' AND app = ?
""".strip()
# Steps from app to app in the index, whatever the number of pending fires.
_APPS = """
WITH RECURSIVE pending(app) AS (
    SELECT min(app) FROM fires WHERE state = 'pending'
    UNION ALL
    SELECT (SELECT min(app) FROM fires WHERE state = 'pending' AND app > pending.app)
    FROM pending WHERE app IS NOT NULL
)
SELECT app FROM pending WHERE app IS NOT NULL
UNION SELECT app FROM apps UNION SELECT app FROM jobs UNION SELECT app FROM cells
"""
_PRUNABLE = """
WITH ranked AS (
    SELECT id, key, job, due, origin, over_at, keep_until,
           row_number() OVER (PARTITION BY job ORDER BY due DESC, key DESC) AS place
    FROM fires WHERE app = ? AND state = 'over'
)
SELECT id, key FROM ranked LEFT JOIN jobs USING (job)
WHERE (over_at < ? OR place > ? AND keep_until <= ?)
    AND NOT (origin = 'schedule' AND (due > ? OR due > coalesce(at, ?)))
"""
# As the conditions of the indexes are written: without an index each lane would cost a scan of all fires.
LANE_IS_USED = """
SELECT 1 FROM fires WHERE lane = ? AND lane <> '' AND state = 'pending'
UNION ALL SELECT 1 FROM fires WHERE lane = ? AND lane <> '' AND state = 'claimed'
LIMIT 1
"""
_FORGET_JOBS = """
DELETE FROM jobs WHERE app = ? AND at IS NULL AND (reached IS NULL OR reached < ?)
    AND NOT EXISTS (SELECT 1 FROM fires WHERE fires.job = jobs.job)
"""
