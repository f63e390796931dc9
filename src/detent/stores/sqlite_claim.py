"""Who gets what is due, in the SQLite store: asks without end must not read fires without end.

The answer is that of the reference, which judges every fire that is due.  Here an ask that has no
place left to run passes over the fires that would surely just run, and one that has no sentence left
over those that would surely be sentenced: both by the index alone.  In doubt a fire is judged; those that
surely run are granted without, all at once (`sqlite_burst`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from heapq import merge
from typing import Any

from detent.clock import instant
from detent.core.lanes import LATE_S, Facts, Judgement, is_late, judge
from detent.model import Ask, Claim, Outcome
from detent.stores.base import SENTENCES_MAX, app_of, is_hook
from detent.stores.entry import claim_of
from detent.stores.sqlite_burst import (
    DOUBT_S,
    HAS_NO_JOB,
    IS_CONTESTED,
    IS_PAUSED,
    MAY_BE_SENTENCED,
    QUEUES,
    grant_burst,
)
from detent.stores.sqlite_call import Call
from detent.stores.sqlite_rows import Kept


def grant_due(call: Call, ask: Ask) -> list[Kept]:
    """Claim what is due for this ask, in the order in which it was recorded."""
    for life in ask.dead:
        _bury(call, life)
    granted = grant_burst(call, ask)
    left, sentences, due = {False: ask.limit - len(granted), True: ask.hooks}, SENTENCES_MAX, Due(call, ask)
    while entry := due.next(left[False] > 0, sentences > 0):
        judgement = _judge(call, entry)
        for key in judgement.stop:
            _stop(call, key, Outcome("replaced", f"by {entry.fire.key}"))
        if judgement.step == "wait" and not entry.waits:
            entry.waits = True
            call.change(entry)
        elif judgement.step == "sentence" and sentences:
            entry.sentence, sentences = judgement.sentence, sentences - 1
            granted.append(_grant(call, entry, ask))
        elif judgement.step == "run" and left[is_hook(entry.fire)] and entry.fire.job not in ask.without:
            left[is_hook(entry.fire)] -= 1
            granted.append(_grant(call, entry, ask))
    call.lengthen(max((entry.ttl_s for entry in granted), default=0.0))
    call.save()
    return sorted(granted, key=lambda entry: entry.id)


def grant_again(call: Call, ask: Ask) -> list[Kept]:
    """What is claimed under this ask already, renewed."""
    where = "state = 'claimed' AND node = ? AND ask = ? AND expires > ? ORDER BY id"
    granted = list(call.select(where, (ask.node, ask.number, call.monotonic)))
    for entry in granted:
        entry.expires = call.monotonic + entry.ttl_s
        call.change(entry)
    return granted


def claims_of(call: Call, granted: Sequence[Kept]) -> tuple[Claim, ...]:
    ahead, successes = call.wall - call.monotonic, call.successes({entry.fire.job for entry in granted})
    return tuple(claim_of(entry, entry.expires + ahead, successes.get(entry.fire.job)) for entry in granted)


def next_in_s(call: Call, ask: Ask) -> float:
    if not call.is_calm:
        return call.world.calm_until - call.monotonic
    call.save()
    queues = json.dumps(ask.queues)
    pending = call.one(_NEXT_PENDING, ask.app, call.wall, queues)
    claimed = call.one(_NEXT_EXPIRY, ask.app, call.monotonic, queues)
    (grace,) = call.one("SELECT min(until) FROM graces WHERE until > ?", call.monotonic) or (None,)
    waits = [
        pending[0] - call.wall if pending else None,
        claimed[0] - call.monotonic if claimed else None,
        grace - call.monotonic if grace else None,
    ]
    return min((wait for wait in waits if wait is not None), default=float("inf"))


class Due:
    """The fires that are due for an ask, in order; asked with what the asker can still use."""

    def __init__(self, call: Call, ask: Ask) -> None:
        self._call, self._ask = call, ask
        self._after = (float("-inf"), "")
        self._for: tuple[bool, bool] | None = None
        self._rest: Iterator[Kept] = iter(())

    def next(self, runs: bool, settles: bool) -> Kept | None:
        """The next one.  One that is surely of no use to the asker may be passed over."""
        if (runs, settles) != self._for:
            self._for, self._rest = (runs, settles), self._look(runs, settles)
        for entry in self._rest:
            self._after = _place(entry)
            if not self._call.is_forgotten(entry):
                return entry
        return None

    def _look(self, runs: bool, settles: bool) -> Iterator[Kept]:
        pending = self._pending(runs, settles)
        return merge(self._expired(), pending, key=_place) if settles else pending

    def _expired(self) -> list[Kept]:
        """An expired claim has a sentence, always."""
        where = f"state = 'claimed' AND app = ? AND expires <= ? AND {QUEUES}"
        values = (self._ask.app, self._call.monotonic, json.dumps(self._ask.queues))
        found = [one for one in self._call.select(where, values) if one.state == "claimed"]
        due = [one for one in found if not self._call.is_live(one) and _place(one) > self._after]
        return sorted(due, key=_place)

    def _pending(self, runs: bool, settles: bool) -> Iterator[Kept]:
        where = [f"state = 'pending' AND app = ? AND run_at <= ? AND (run_at, key) > (?, ?) AND {QUEUES}"]
        values: list[Any] = [self._ask.app, self._call.wall, *self._after, json.dumps(self._ask.queues)]
        if not runs or self._ask.without:
            useless = "origin <> 'hook'" if not runs else "job IN (SELECT value FROM json_each(?))"
            where.append(f"NOT ({useless} AND NOT ({MAY_BE_SENTENCED}) AND NOT ({IS_CONTESTED}))")
            values += [json.dumps(self._ask.without)] if runs else []
            values += [self._paused(), *self._late(DOUBT_S), self._contested()]
        if not settles:
            where.append(f"NOT ({_IS_SENTENCED})")
            values += [self._paused(), self._call.wall - DOUBT_S]
        return self._call.select(" AND ".join(where) + " ORDER BY run_at, key", tuple(values))

    def _paused(self) -> str:
        return json.dumps(list(self._call.pauses(self._ask.app)))

    def _late(self, doubt_s: float) -> tuple[float, float]:
        return self._call.wall + doubt_s, self._call.wall + doubt_s - LATE_S

    def _contested(self) -> str:
        """Lanes in which a fire that is due might not just run."""
        rows = self._call.db.execute(_CONTESTED, (self._ask.app, self._ask.app, self._call.wall))
        return json.dumps([*self._call.graces(), *(lane for (lane,) in rows)])


def _place(entry: Kept) -> tuple[float, str]:
    return entry.run_at, entry.fire.key


def _bury(call: Call, life: str) -> None:
    expire = "UPDATE fires SET expires = ? WHERE state = 'claimed' AND node = ? AND expires > ?"
    if call.db.execute(expire, (call.monotonic, life, call.monotonic)).rowcount:
        call.ring()  # they may be another app's


def _judge(call: Call, entry: Kept) -> Judgement:
    me, fire, now = call.standing(entry), entry.fire, instant(call.wall)
    mark, since = call.mark_of(fire.job) if fire.origin == "schedule" else None, fire.due_at.timestamp()
    facts = Facts(
        now=now,
        planned_until=mark.at if mark else None,
        paused=call.pauses(app_of(fire.job)).get(fire.job),
        newer_due=is_late(me, now) and call.one(_NEWER, fire.job, since, call.wall) is not None,
        graces=call.graces().get(fire.lane, 0),
    )
    return judge(me, call.lane(fire.lane), facts)


def _grant(call: Call, entry: Kept, ask: Ask) -> Kept:
    entry.state, entry.node, entry.ask = "claimed", ask.node, ask.number
    entry.fence = call.next_fence(app_of(entry.fire.job))
    entry.ttl_s = ask.ttl_s or entry.fire.policy.claim_s
    entry.expires = call.monotonic + entry.ttl_s
    call.reach(entry.fire.job, entry.fire.due_at.timestamp(), entry.fire.origin)
    if entry.sentence is None:
        entry.attempt += 1
        entry.ran = entry.node, entry.fence, call.wall
        call.drop_late_hooks(entry.fire)
    call.change(entry)
    return entry


def _stop(call: Call, key: str, why: Outcome) -> None:
    entry = call.open_entry(key)
    assert entry is not None, "who holds a lane is open"
    entry.stop = why
    call.change(entry)
    call.ring()


_IS_SENTENCED = (
    f"sentence IS NOT NULL OR {HAS_NO_JOB} OR attempt = 0 AND ({IS_PAUSED} OR coalesce(start_by < ?, 0))"
)
_CONTESTED = """
SELECT lane FROM (
    SELECT lane FROM fires WHERE state = 'claimed' AND app = ?
    UNION ALL SELECT lane FROM fires WHERE state = 'pending' AND app = ? AND run_at <= ?
) WHERE lane <> '' GROUP BY lane HAVING count(*) > 1
"""
_NEWER = """
SELECT 1 FROM fires WHERE job = ? AND due > ? AND due <= ? AND state <> 'over' AND origin = 'schedule' LIMIT 1
"""
_NEXT_PENDING = f"""
SELECT run_at FROM fires WHERE state = 'pending' AND app = ? AND run_at > ? AND {QUEUES}
ORDER BY run_at LIMIT 1
"""
_NEXT_EXPIRY = f"""
SELECT expires FROM fires WHERE state = 'claimed' AND app = ? AND expires > ? AND {QUEUES}
ORDER BY expires LIMIT 1
"""
