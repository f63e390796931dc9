"""Finds, counts and prunes fires of the SQLite store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from detent.clock import instant
from detent.model import DEAD, Found, Policy, Query, Row, Size
from detent.stores.base import LOOK_MAX, REMEMBER_ASKS_S, app_of
from detent.stores.record import page, row_of
from detent.stores.sqlite.rows import Kept, attempt_of_row
from detent.stores.sqlite.transaction import Transaction

RESULT_S = Policy().result_s
Condition = tuple[str, tuple[Any, ...]]  # the text of a condition, and its values


def find(transaction: Transaction, query: Query) -> Found:
    where, values = _condition(query)
    if query.upcoming:
        return Found(_rows(transaction, query, f"{where} ORDER BY run_at, key LIMIT ?", values))
    span, span_values = _span(query)
    if few := _few(transaction, query):  # few enough to read and sort all of them
        sorted_so = f"{where} AND {span} ORDER BY +due DESC, +key DESC LIMIT ?"
        return page(_rows(transaction, query, sorted_so, values + span_values, few), query.limit, None)
    history = f"fires INDEXED BY {_index(query)} WHERE {span} ORDER BY due DESC, key DESC LIMIT {LOOK_MAX}"
    rows = _rows(transaction, query, f"{where} LIMIT ?", span_values + values, f"(SELECT * FROM {history})")
    stopped_at = None
    if len(rows) < query.limit:
        last = transaction.one(f"SELECT due, key FROM {history} OFFSET {LOOK_MAX - 1}", *span_values)
        stopped_at = (instant(last[0]), last[1]) if last else None
    return page(rows, query.limit, stopped_at)


def _rows(
    transaction: Transaction, query: Query, where: str, values: tuple[Any, ...], source: str = "fires"
) -> list[Row]:
    entries = list(transaction.fires.select(where, (*values, query.limit), source))
    _add_attempts(transaction, entries, whole=bool(query.key))
    return [row_of(entry, bool(query.key)) for entry in entries]


def _few(transaction: Transaction, query: Query) -> str:
    """The table or index to read if it gives at most `LOOK_MAX` fires; "": there is none."""
    if query.key or query.keys:
        return "fires"
    index = {"pending": "fires_ready", "claimed": "fires_claimed"}.get(query.state)
    if index is None:
        return ""
    source, app = f"fires INDEXED BY {index}", query.app or app_of(query.job)
    among, values = f"{source} WHERE state = '{query.state}'", (app,) if app else ()
    among += " AND app = ?" if app else ""
    counted = transaction.one(f"SELECT count(*) FROM (SELECT 1 FROM {among} LIMIT {LOOK_MAX + 1})", *values)
    return source if counted and counted[0] <= LOOK_MAX else ""


def _index(query: Query) -> str:
    """The index that gives the order of the history."""
    if query.job:
        return "fires_job"
    return "fires_dead" if _is_without_success(query) else "fires_due"


def _span(query: Query) -> Condition:
    """The conditions that the index supports."""
    texts, values = ["1"], list[Any]()
    if query.job:
        texts, values = ["job = ?"], [query.job]
    elif _is_without_success(query):
        texts = [_HAD_NO_SUCCESS]
    for text, at in (("due >= ?", query.since), ("due <= ?", query.until)):
        if at:
            texts.append(text)
            values.append(at.timestamp())
    if query.before:
        texts.append("(due, key) < (?, ?)")
        values += [query.before[0].timestamp(), query.before[1]]
    return " AND ".join(texts), tuple(values)


def _is_without_success(query: Query) -> bool:
    return bool(query.kinds) and "succeeded" not in query.kinds


def _condition(query: Query) -> Condition:
    """The state is a literal, so that SQLite can use the partial indexes."""
    origins, queues, kinds = (
        json.dumps(words) if words else "" for words in (query.origins, query.queues, query.kinds)
    )
    keys, jobs = (json.dumps(words) if words else "" for words in (query.keys, query.jobs))
    state = query.state if query.state in ("", "pending", "claimed", "over") else "none"
    state = state if not query.upcoming else "pending" if state in ("", "pending") else "none"
    one, several = ("", queues) if len(query.queues) != 1 else (query.queues[0], "")
    parts: list[tuple[str, Any]] = [
        ("app = ?", query.app),
        ("job = ?", query.job),
        ("key = ?", query.key),
        (f"state = '{state}' AND state = ?", state),
        ("origin IN (SELECT value FROM json_each(?))", origins),
        ("queue = ?", one),  # a single queue is read in index order
        ("queue IN (SELECT value FROM json_each(?))", several),
        (_OF_KINDS, kinds),
        ("key IN (SELECT value FROM json_each(?))", keys),
        ("job IN (SELECT value FROM json_each(?))", jobs),
    ]
    given = [(text, value) for text, value in parts if value not in ("", None)]
    return " AND ".join(["1", *(text for text, _ in given)]), tuple(value for _, value in given)


def count(transaction: Transaction, app: str, queues: Sequence[str]) -> dict[str, Size]:
    found: dict[str, Size] = {}
    values = {"now": transaction.wall, "app": app, "queues": json.dumps(list(queues))}
    among = _AMONG if queues else ""
    for words, text in (_COUNT_WAITING, _COUNT_RUNNING, _COUNT_DEAD):
        for queue, *numbers in transaction.db.execute(f"{text}{among} GROUP BY queue", values):
            found[queue] = found.get(queue, Size())._replace(**dict(zip(words, numbers, strict=True)))
    return found


def _add_attempts(transaction: Transaction, entries: Sequence[Kept], whole: bool) -> None:
    by_id = {entry.id: entry for entry in entries}
    statement = _ATTEMPTS_WITH_TAILS if whole else _ATTEMPTS
    for fire, *attempt in transaction.db.execute(statement, (json.dumps(list(by_id)),)):
        by_id[fire].attempts.append(attempt_of_row(tuple(attempt)))


def prunable(
    transaction: Transaction, app: str, now: float, limits: tuple[float, int]
) -> list[tuple[int, str]]:
    """Id and key of the finished fires that are older than the first limit, or not among the newest of their
    job, as many as the second limit says."""
    older_than_s, keep = limits
    return transaction.db.execute(_PRUNABLE, (app, now - older_than_s, keep, now, now, now, now)).fetchall()


def prune(transaction: Transaction, found: Sequence[tuple[int, str]], now: float) -> int:
    """Delete those of these fires that may still be deleted: a row may have changed since it was found."""
    gone = []
    for id, key in found:
        if row := transaction.one(_STILL_PRUNABLE, id, key, now, now):
            transaction.jobs.reach(*row)
            gone.append(id)
    transaction.fires.delete(gone)
    return len(gone)


def forget_the_expired(transaction: Transaction) -> None:
    transaction.db.execute("DELETE FROM asks WHERE asked_at <= ?", (transaction.monotonic - REMEMBER_ASKS_S,))
    transaction.db.execute("DELETE FROM graces WHERE until <= ?", (transaction.monotonic,))
    transaction.db.execute("DELETE FROM notes WHERE expires <= ?", (transaction.monotonic,))
    transaction.db.execute("DELETE FROM charges WHERE until <= ?", (transaction.monotonic,))


_IS_TO_COME = "(origin = 'schedule' AND due > min(coalesce(at, ?), ?))"
# A dead letter, or its key is still unique, or its result is still kept.
_IS_WANTED = f"""
(origin = 'push' AND (substr(outcome, 1, 10) <> 'succeeded '
    OR due + iif(instr(policy, '"unique_s":'), json_extract(policy, '$.unique_s'), 0) > ?
    OR instr(policy, '"drop_result":true') = 0
        AND over_at + iif(instr(policy, '"result_s":'), json_extract(policy, '$.result_s'), {RESULT_S}) > ?))
""".strip()
_PRUNABLE = f"""
WITH ranked AS (
    SELECT id, key, job, due, origin, over_at, outcome, policy,
           row_number() OVER (PARTITION BY job ORDER BY due DESC, key DESC) AS place
    FROM fires WHERE app = ? AND state = 'over'
)
SELECT id, key FROM ranked LEFT JOIN marks USING (job)
WHERE (over_at < ? OR place > ? AND NOT {_IS_WANTED}) AND NOT {_IS_TO_COME}
"""
_STILL_PRUNABLE = f"""
SELECT job, due, origin FROM fires LEFT JOIN marks USING (job)
WHERE id = ? AND key = ? AND state = 'over' AND NOT {_IS_TO_COME}
"""
_ATTEMPTS = """
SELECT fire, number, node, fence, started, ended, outcome, status, took, NULL, result
FROM attempts LEFT JOIN results USING (fire, number)
WHERE fire IN (SELECT value FROM json_each(?)) ORDER BY fire, number
"""
_ATTEMPTS_WITH_TAILS = """
SELECT fire, number, node, fence, started, ended, outcome, status, took, tail, result
FROM attempts LEFT JOIN tails USING (fire, number) LEFT JOIN results USING (fire, number)
WHERE fire IN (SELECT value FROM json_each(?)) ORDER BY fire, number
"""
_OF_KINDS = "substr(outcome, 1, instr(outcome, ' ') - 1) IN (SELECT value FROM json_each(?))"
_HAD_NO_SUCCESS = "substr(outcome, 1, 10) <> 'succeeded '"  # must be the text of the index's condition
_COUNT_WAITING = (
    ("delayed", "pending"),
    """
SELECT queue, sum(run_at > :now), sum(run_at <= :now) FROM fires
WHERE state = 'pending' AND origin = 'push' AND app = :app
""".strip(),
)
_COUNT_RUNNING = (
    ("running",),
    """
SELECT queue, count(*) FROM fires WHERE state = 'claimed' AND origin = 'push' AND app = :app
""".strip(),
)
_COUNT_DEAD = (
    ("dead",),
    f"""
SELECT queue, count(*) FROM fires WHERE state = 'over' AND origin = 'push' AND app = :app
AND {_HAD_NO_SUCCESS} AND substr(outcome, 1, instr(outcome, ' ') - 1) IN ('{"', '".join(DEAD)}')
""".strip(),
)
_AMONG = " AND queue IN (SELECT value FROM json_each(:queues))"
