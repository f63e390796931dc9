"""Thousands of fires due at one instant, in the SQLite store: granted by the same few statements.

A fire surely runs if nothing can sentence it and nobody else is in its lane: it needs no judgement.  The
first of those that are due are granted at once, up to the first that is not so sure; from there on each is
judged.  What they are comes back as one JSON text: each row that is fetched would be a turn of the
interpreter's lock, for which the attempts that are being started compete.
"""

from __future__ import annotations

import json
from datetime import datetime
from itertools import takewhile
from typing import Any

from detent.clock import instant
from detent.core.lanes import LATE_S
from detent.model import Ask, Fire
from detent.stores.sqlite_call import SET_JOB, Call
from detent.stores.sqlite_rows import Kept
from detent.stores.texts import policy_of

DOUBT_S = 0.001  # instants are compared in microseconds when they are judged; pass over none too many


def grant_burst(call: Call, ask: Ask) -> list[Kept]:
    """Claim the first of what is due for this ask as far as it surely runs."""
    if not ask.limit or call.one(_HAS_EXPIRED, ask.app, call.monotonic):
        return []  # what has expired comes first, and is sentenced
    rows = list(takewhile(lambda row: row[-1], _due(call, ask)))
    if not rows:
        return []
    ttl_s = ask.ttl_s or _ttl_s(rows[0])
    if not ask.ttl_s:
        rows = list(takewhile(lambda row: _ttl_s(row) == ttl_s, rows))
    fence = call.next_fence(ask.app, len(rows))
    ids = json.dumps([row[0] for row in rows])
    expires = call.monotonic + ttl_s
    call.db.execute(_GRANT, (fence, ask.node, ask.number, ttl_s, expires, ask.node, fence, call.wall, ids))
    call.db.execute(_REACH, (ids,))
    return [_granted(row, ask, (fence + place, ttl_s, expires)) for place, row in enumerate(rows)]


def _due(call: Call, ask: Ask) -> list[list[Any]]:
    now, paused = call.wall, json.dumps(list(call.pauses(ask.app)))
    late = now + DOUBT_S, now + DOUBT_S - LATE_S
    lanes, without = json.dumps([*call.graces()]), json.dumps(ask.without)
    surely = (paused, *late, without, lanes, now)
    row = call.one(_DUE, *surely, ask.app, now, json.dumps(ask.queues), ask.limit)
    found: list[list[Any]] = json.loads(row[0]) if row else []
    return found


def _ttl_s(row: list[Any]) -> float:
    return policy_of(row[8]).claim_s


def _granted(row: list[Any], ask: Ask, claim: tuple[int, float, float]) -> Kept:
    id, key, job, due, run_id, queue, lane, start_by, policy, *rest, run_at, attempt, _ = row
    origin, revision, payload, first, instants = rest
    fire = Fire(
        key, job, instant(due / 1e6), run_id, queue, lane, _instant(start_by), policy_of(policy), origin,
        revision, payload, _instant(first), instants,
    )  # fmt: skip
    entry = Kept(fire, run_at / 1e6, id)
    entry.state, entry.node, entry.ask, entry.attempt = "claimed", ask.node, ask.number, attempt + 1
    entry.fence, entry.ttl_s, entry.expires = claim
    return entry


def _instant(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else instant(microseconds / 1e6)


QUEUES = "queue IN (SELECT value FROM json_each(?))"
HAS_NO_JOB = "(origin = 'schedule' AND NOT EXISTS (SELECT 1 FROM marks WHERE marks.job = fires.job))"
IS_PAUSED = "(origin = 'schedule' AND job IN (SELECT value FROM json_each(?)))"
MAY_BE_SENTENCED = (
    f"sentence IS NOT NULL OR {HAS_NO_JOB} OR attempt = 0 AND ({IS_PAUSED} OR coalesce(start_by < ?, 0)"
    " OR (origin = 'schedule' AND due < ?))"
)
IS_CONTESTED = "lane IN (SELECT value FROM json_each(?))"
_HAS_EXPIRED = "SELECT 1 FROM fires WHERE state = 'claimed' AND app = ? AND expires <= ? LIMIT 1"
_OTHER = """
SELECT 1 FROM fires AS other WHERE other.lane = fires.lane AND other.lane <> '' AND other.state <> 'over'
""".strip()  # so that its index serves
_SURELY_RUNS = f"""
origin <> 'hook' AND NOT ({MAY_BE_SENTENCED}) AND instr(policy, 'on_late') = 0
AND NOT (job IN (SELECT value FROM json_each(?)))
AND (lane = '' OR NOT {IS_CONTESTED}
    AND NOT EXISTS ({_OTHER} AND other.state = 'claimed')
    AND NOT EXISTS ({_OTHER} AND other.state = 'pending' AND other.run_at <= ? AND other.id <> fires.id))
"""
# Instants as whole microseconds: as text, SQLite rounds a number to 15 digits.
_DUE = f"""
SELECT json_group_array(json(row)) FROM (
    SELECT json_array(
        id, key, job, CAST(round(due * 1e6) AS INTEGER), run_id, queue, lane,
        CAST(round(start_by * 1e6) AS INTEGER), policy, origin, revision, payload,
        CAST(round(first * 1e6) AS INTEGER), instants, CAST(round(run_at * 1e6) AS INTEGER), attempt,
        {_SURELY_RUNS}
    ) AS row FROM fires
    WHERE state = 'pending' AND app = ? AND run_at <= ? AND {QUEUES} ORDER BY run_at, key LIMIT ?
)
"""
_GRANT = """
UPDATE fires SET state = 'claimed', attempt = attempt + 1, fence = ? + place, node = ?, ask = ?, ttl = ?,
    expires = ?, ran_node = ?, ran_fence = ? + place, ran_at = ?
FROM (SELECT key AS place, value AS chosen FROM json_each(?)) WHERE id = chosen
"""
_REACH = f"""
INSERT INTO jobs SELECT job, NULL, max(due) FROM fires
WHERE id IN (SELECT value FROM json_each(?)) AND origin = 'schedule' GROUP BY job {SET_JOB}
"""
