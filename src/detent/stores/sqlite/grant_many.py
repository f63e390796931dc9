"""Grants thousands of fires that are due at one instant with a few statements, in the SQLite store.

Some decisions are obvious in SQL.  A fire runs if nothing can prevent it, its lane is free and its breaker is
closed.  It is missed if its deadline has passed, or if it is late and a newer instant is due.  The due fires
of a queue are granted in bulk up to the first one that is not obvious; `claim` decides on the rest.

The rows come back as one JSON text, because reading each row would release the interpreter's lock.
"""

from __future__ import annotations

import json
from datetime import datetime
from itertools import takewhile
from typing import Any, NamedTuple

from detent.clock import instant
from detent.model import Ask, Claim, Fire, Outcome
from detent.rules.outcomes import NEWER_INSTANT, missed
from detent.stores.encoding import policy_of, policy_text
from detent.stores.sqlite.candidates import (
    AFTER,
    BY_NOW,
    DOUBTFUL,
    IS_DOUBTFUL,
    IS_ELSEWHERE,
    IS_FREE,
    IS_HELD,
    IS_MISSED,
    IS_OUTDATED,
    MAY_BE_SETTLED,
    READY,
    Due,
)
from detent.stores.sqlite.jobs import SET_JOB
from detent.stores.sqlite.limits import Gates
from detent.stores.sqlite.rows import Kept, outcome_column
from detent.stores.sqlite.transaction import Transaction


class Room(NamedTuple):
    """How many more fires the ask may run and settle."""

    places: int
    dispositions: int


class Burst(NamedTuple):
    claims: list[tuple[int, Claim]]  # with the ids of their rows
    runs: int
    longest_ttl_s: float
    goes_on: bool  # the next fires may be obvious too


def grant_burst(transaction: Transaction, ask: Ask, gates: Gates, due: Due, room: Room) -> Burst | None:
    """Claim the first due fires whose decision is obvious; None: the first one is not."""
    rows, is_all = _obvious(gates, _due(transaction, due, room), room)
    if not rows:
        return None
    fence = transaction.jobs.next_fence(ask.app, len(rows))
    ttl_of = {policy: ask.ttl_s or policy_of(policy).claim_s for policy in {row[8] for row in rows}}
    granted = [
        Granted(row, number, ttl_of[row[8]], _disposition(row)) for number, row in enumerate(rows, fence)
    ]
    runs = _grant(transaction, ask, granted)
    if any(row[9] == "schedule" for row in rows):
        transaction.db.execute(_REACH, (json.dumps([row[0] for row in rows]),))
    if runs:
        gates.count(rows[0][5], runs)
    transaction.fires.outdate((row[1], row[6]) for row in rows)
    goes_on = is_all and runs < len(rows)
    return Burst(_claims(transaction, ask, granted), runs, max(ttl_of.values()), goes_on)


class Granted(NamedTuple):
    row: list[Any]
    fence: int
    ttl_s: float
    disposition: Outcome | None


def _obvious(gates: Gates, rows: list[list[Any]], room: Room) -> tuple[list[list[Any]], bool]:
    """The first rows, up to one that is not obvious or that has no place; and whether that was all."""
    (places, dispositions), obvious = room, list[list[Any]]()
    passable = dict[str, bool]()  # by policy; there are only a few
    lanes = set[str]()  # that this burst has taken
    for row in rows:
        lane, policy, fate = row[6], row[8], row[-1]
        if policy not in passable:
            passable[policy] = gates.is_passable(policy_of(policy).breaker)
        if not fate or (fate != _MISSED and lane in lanes):
            return obvious, False
        if fate == _RUNS:
            if not places or not passable[policy]:
                return obvious, False
            places -= 1
            lanes.update([lane] if lane else ())
        elif fate == _HELD or not dispositions:
            continue
        else:
            dispositions -= 1
        obvious.append(row)
    return obvious, True


def _disposition(row: list[Any]) -> Outcome | None:
    match row[-1]:
        case "missed":
            return missed(instant(row[7] / 1e6))
        case "outdated":
            return NEWER_INSTANT
    return None


def _grant(transaction: Transaction, ask: Ask, granted: list[Granted]) -> int:
    """Write the claims.  Returns how many of them run."""
    runs = [one for one in granted if one.disposition is None]
    for ttl_s in {one.ttl_s for one in granted}:
        claim = ask.node, ask.number, ttl_s, transaction.monotonic + ttl_s
        if fences := {one.fence: one.row[0] for one in runs if one.ttl_s == ttl_s}:
            transaction.db.execute(_GRANT, (*claim, ask.node, transaction.wall, json.dumps(fences)))
        if settled := [
            (one.row[0], one.fence, outcome_column(one.disposition))
            for one in granted
            if one.disposition and one.ttl_s == ttl_s
        ]:
            transaction.db.execute(_SETTLE, (*claim, json.dumps(settled)))
    return len(runs)


def delay_alike(transaction: Transaction, ask: Ask, first: Kept, place: tuple[float, str], most: int) -> int:
    """Delay the fires right after this place for which the same reason holds: same policy, no lane.  Returns
    how many."""
    fire = first.fire
    if fire.lane or fire.start_by or first.disposition or fire.origin in ("schedule", "hook"):
        return 0
    values = policy_text(fire.policy), json.dumps(ask.without)
    rows = transaction.db.execute(
        _NEXT, (*values, ask.app, fire.queue, transaction.wall, *place, most)
    ).fetchall()
    alike = list(takewhile(lambda row: row[2], rows))
    transaction.db.execute(_DELAY, (first.run_at, json.dumps([id for id, *_ in alike])))
    transaction.fires.outdate((key, "") for _, key, _ in alike)
    return len(alike)


def _due(transaction: Transaction, due: Due, room: Room) -> list[list[Any]]:
    """Read as many rows as may run; if none may, as many as may be settled."""
    if room.dispositions:
        source, where = (READY, BY_NOW) if room.places else (DOUBTFUL, f"{BY_NOW} AND {IS_DOUBTFUL}")
    else:
        source, where = READY, f"{due.limit()} AND NOT ({IS_MISSED}) AND NOT ({IS_OUTDATED})"
    most = room.places or room.dispositions
    (text,) = transaction.db.execute(_DUE.format(source, where), {**due.values, "most": most}).fetchone()
    found: list[list[Any]] = json.loads(text) if text else []
    return found


def _claims(transaction: Transaction, ask: Ask, granted: list[Granted]) -> list[tuple[int, Claim]]:
    succeeded = transaction.jobs.successes({one.row[2] for one in granted})
    successes = {job: instant(at) for job, at in succeeded.items()}
    ends = {ttl_s: instant(transaction.wall + ttl_s) for ttl_s in {one.ttl_s for one in granted}}
    instants: dict[int | None, datetime | None] = {None: None}  # many fires share them
    claims = []
    for row, fence, ttl_s, disposition in granted:
        id, key, job, due, run_id, queue, lane, start_by, policy, *rest = row
        origin, revision, payload, first, count, attempts, _ = rest
        for at in (due, start_by, first):
            if at not in instants:
                instants[at] = instant(at / 1e6)
        fire = Fire(
            key, job, instants[due], run_id, queue, lane, instants[start_by], policy_of(policy), origin,  # type: ignore[arg-type]
            revision, payload, instants[first], count,
        )  # fmt: skip
        attempt = attempts if disposition else attempts + 1
        claim = Claim(fire, ask.node, fence, attempt, ttl_s, ends[ttl_s], disposition, successes.get(job))
        claims.append((id, claim))
    return claims


# Obvious decisions.  A free lane has a place for the first due fire, unless newer fires replace it.
_RUNS, _MISSED, _OUTDATED, _HELD = "runs", "missed", "outdated", "held"
_RUNS_OBVIOUSLY = f"""
origin <> 'hook' AND NOT ({MAY_BE_SETTLED}) AND instr(policy, 'on_late') = 0 AND NOT {IS_ELSEWHERE}
AND {IS_FREE}
"""
_FATE = f"""
CASE WHEN {_RUNS_OBVIOUSLY} THEN '{_RUNS}' WHEN {IS_MISSED} THEN '{_MISSED}'
    WHEN {IS_OUTDATED} THEN '{_OUTDATED}' WHEN {IS_HELD} THEN '{_HELD}' ELSE '' END
"""
# Instants are whole microseconds, because SQLite writes only 15 digits of a float.
_DUE = f"""
SELECT '[' || group_concat(row) || ']' FROM (
    SELECT json_array(
        id, key, job, CAST(round(due * 1e6) AS INTEGER), run_id, queue, lane,
        CAST(round(start_by * 1e6) AS INTEGER), policy, origin, revision, payload,
        CAST(round(first * 1e6) AS INTEGER), instants, attempt, {_FATE}
    ) AS row FROM {{}} WHERE {AFTER} AND {{}} ORDER BY run_at, key LIMIT :most
)
"""
_NEXT = """
SELECT id, key, policy = ? AND lane = '' AND start_by IS NULL AND sentence IS NULL
    AND origin NOT IN ('schedule', 'hook') AND NOT (job IN (SELECT value FROM json_each(?)))
FROM fires INDEXED BY fires_ready
WHERE state = 'pending' AND app = ? AND queue = ? AND run_at <= ? AND (run_at, key) > (?, ?)
ORDER BY run_at, key LIMIT ?
"""
_DELAY = "UPDATE fires SET run_at = ? WHERE id IN (SELECT value FROM json_each(?))"
_GRANT = """
UPDATE fires SET state = 'claimed', attempt = attempt + 1, fence = granted, node = ?, ask = ?, ttl = ?,
    expires = ?, ran_node = ?, ran_fence = granted, ran_at = ?
FROM (SELECT CAST(key AS INTEGER) AS granted, value AS chosen FROM json_each(?)) WHERE id = chosen
"""
_SETTLE = """
UPDATE fires SET state = 'claimed', node = ?, ask = ?, ttl = ?, expires = ?, fence = granted,
    sentence = settled
FROM (
    SELECT json_extract(value, '$[0]') AS chosen, json_extract(value, '$[1]') AS granted,
        json_extract(value, '$[2]') AS settled
    FROM json_each(?)
) WHERE id = chosen
"""
_REACH = f"""
INSERT INTO jobs SELECT job, NULL, max(due) FROM fires
WHERE id IN (SELECT value FROM json_each(?)) AND origin = 'schedule' GROUP BY job {SET_JOB}
"""
