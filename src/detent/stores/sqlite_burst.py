"""Thousands of fires due at one instant, in the SQLite store: granted by the same few statements.

A fire surely runs if nothing can sentence it, nobody else is in its lane and its breaker is closed: it needs
no judgement.  The first of those that are due on a queue are granted at once, up to the first that is not so
sure; from there on each is judged.  What they are comes back as one JSON text: each row that is fetched would
be a turn of the interpreter's lock, for which the attempts that are being started compete.
"""

from __future__ import annotations

from datetime import datetime
from itertools import takewhile

from detent import jsontext as json
from detent.clock import instant
from detent.model import Ask, Claim, Fire
from detent.stores.sqlite_call import SET_JOB, Call
from detent.stores.sqlite_due import IS_CONTESTED, MAY_BE_SENTENCED, late
from detent.stores.sqlite_gates import Gates
from detent.stores.sqlite_rows import Kept
from detent.stores.texts import policy_of, policy_text
from detent.values import Any, NamedTuple


class Burst(NamedTuple):
    claims: list[tuple[int, Claim]]  # with the ids of their rows
    longest_ttl_s: float


def grant_burst(call: Call, ask: Ask, gates: Gates, queue: str, most: int) -> Burst | None:
    """Claim the first of what is due on this queue as far as it surely runs; None: the first is not sure."""
    rows, passable = [], dict[str, bool]()  # by their policies, of which there are few
    for row in _due(call, ask, queue, most):
        policy = row[8]
        if policy not in passable:
            passable[policy] = gates.is_passable(policy_of(policy).breaker)
        if not row[-1] or not passable[policy]:
            break
        rows.append(row)
    if not rows:
        return None
    fence, ids = call.next_fence(ask.app, len(rows)), [row[0] for row in rows]
    ttl_of = {policy: ask.ttl_s or policy_of(policy).claim_s for policy in passable}
    ttls = [ttl_of[row[8]] for row in rows]
    for ttl_s in set(ttls):
        chosen = {place: id for place, id in enumerate(ids) if ttls[place] == ttl_s}
        claim = fence, ask.node, ask.number, ttl_s, call.monotonic + ttl_s
        call.db.execute(_GRANT, (*claim, ask.node, fence, call.wall, json.dumps(chosen)))
    if any(row[9] == "schedule" for row in rows):
        call.db.execute(_REACH, (json.dumps(ids),))
    gates.count(queue, len(rows))
    call.outdate((row[1], row[6]) for row in rows)
    return Burst(_claims(call, ask, fence, rows, ttls), max(ttls))


def put_off_likes(call: Call, ask: Ask, first: Kept, place: tuple[float, str], most: int) -> int:
    """Put off what comes right after this one's place and is surely put off for the same reason: with its
    policy, never sentenced and in no lane.  Says how many."""
    fire = first.fire
    if fire.lane or fire.start_by or first.sentence or fire.origin in ("schedule", "hook"):
        return 0
    alike = policy_text(fire.policy), json.dumps(ask.without)
    rows = call.db.execute(_NEXT, (*alike, ask.app, fire.queue, call.wall, *place, most)).fetchall()
    likes = list(takewhile(lambda row: row[2], rows))
    call.db.execute(_PUT_OFF, (first.run_at, json.dumps([id for id, *_ in likes])))
    call.outdate((key, "") for _, key, _ in likes)
    return len(likes)


def _due(call: Call, ask: Ask, queue: str, most: int) -> list[list[Any]]:
    now, paused = call.wall, json.dumps(list(call.pauses(ask.app)))
    lanes, without = json.dumps([*call.graces()]), json.dumps(ask.without)
    surely = (paused, *late(call), without, lanes, now)
    (text,) = call.one(_DUE, *surely, ask.app, queue, now, most) or (None,)
    found: list[list[Any]] = json.loads(text) if text else []
    return found


def _claims(
    call: Call, ask: Ask, fence: int, rows: list[list[Any]], ttls: list[float]
) -> list[tuple[int, Claim]]:
    succeeded = call.successes({row[2] for row in rows})
    successes = {job: instant(at) for job, at in succeeded.items()}
    ends = {ttl_s: instant(call.wall + ttl_s) for ttl_s in set(ttls)}
    instants: dict[int | None, datetime | None] = {None: None}  # many have the same
    claims = []
    for place, row in enumerate(rows):
        id, key, job, due, run_id, queue, lane, start_by, policy, *rest = row
        origin, revision, payload, first, count, attempts, _ = rest
        for at in (due, start_by, first):
            if at not in instants:
                instants[at] = instant(at / 1e6)
        fire = Fire(
            key, job, instants[due], run_id, queue, lane, instants[start_by], policy_of(policy), origin,  # type: ignore[arg-type]
            revision, payload, instants[first], count,
        )  # fmt: skip
        ttl_s = ttls[place]
        claim = Claim(
            fire, ask.node, fence + place, attempts + 1, ttl_s, ends[ttl_s], None, successes.get(job)
        )
        claims.append((id, claim))
    return claims


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
SELECT '[' || group_concat(row) || ']' FROM (
    SELECT json_array(
        id, key, job, CAST(round(due * 1e6) AS INTEGER), run_id, queue, lane,
        CAST(round(start_by * 1e6) AS INTEGER), policy, origin, revision, payload,
        CAST(round(first * 1e6) AS INTEGER), instants, attempt,
        {_SURELY_RUNS}
    ) AS row FROM fires INDEXED BY fires_ready
    WHERE state = 'pending' AND app = ? AND queue = ? AND run_at <= ? ORDER BY run_at, key LIMIT ?
)
"""
_NEXT = """
SELECT id, key, policy = ? AND lane = '' AND start_by IS NULL AND sentence IS NULL
    AND origin NOT IN ('schedule', 'hook') AND NOT (job IN (SELECT value FROM json_each(?)))
FROM fires INDEXED BY fires_ready
WHERE state = 'pending' AND app = ? AND queue = ? AND run_at <= ? AND (run_at, key) > (?, ?)
ORDER BY run_at, key LIMIT ?
"""
_PUT_OFF = "UPDATE fires SET run_at = ? WHERE id IN (SELECT value FROM json_each(?))"
_GRANT = """
UPDATE fires SET state = 'claimed', attempt = attempt + 1, fence = ? + place, node = ?, ask = ?, ttl = ?,
    expires = ?, ran_node = ?, ran_fence = ? + place, ran_at = ?
FROM (SELECT key AS place, value AS chosen FROM json_each(?)) WHERE id = chosen
"""
_REACH = f"""
INSERT INTO jobs SELECT job, NULL, max(due) FROM fires
WHERE id IN (SELECT value FROM json_each(?)) AND origin = 'schedule' GROUP BY job {SET_JOB}
"""
