"""Answers an ask in the SQLite store.

The result is the same as in the in-memory store, which decides on every due fire.  Here only the fires that
the ask can still use are read (`candidates`), and the obvious ones are granted in bulk (`grant_many`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import itemgetter

from detent.clock import instant
from detent.model import Ask, Claim, Fire, Outcome
from detent.rules.lanes import Decision, Facts, OpenFire, decide, is_late
from detent.rules.outcomes import replaced_by
from detent.stores.base import DISPOSITIONS_MAX, app_of, is_hook
from detent.stores.record import claim_of
from detent.stores.sqlite.candidates import HEAD, LOOKS_MAX, Due, Place, Wants
from detent.stores.sqlite.grant_many import Room, delay_alike, grant_burst
from detent.stores.sqlite.limits import Gates
from detent.stores.sqlite.rows import Kept
from detent.stores.sqlite.transaction import Transaction

DELAYS_MAX = 500  # fires that one ask delays; behind a breaker there may be a hundred thousand
WAITS_MAX = 1000  # fires that one ask marks as waiting for their lane
SOON_S = 0.02  # when to ask again if the ask stopped early
Far = dict[tuple[str, str], Place]  # app and queue -> how far earlier asks without success have read


class Round:
    """One ask: what it may still get, and what it was granted."""

    def __init__(self, transaction: Transaction, ask: Ask, gates: Gates, far: Far) -> None:
        self._transaction, self._ask, self._gates, self._far = transaction, ask, gates, far
        self._has_stopped = False
        self._places, self._hooks, self._dispositions = ask.limit, ask.hooks, DISPOSITIONS_MAX
        self._delays, self._waits, self._longest_ttl_s = DELAYS_MAX, WAITS_MAX, 0.0
        self._granted: list[Kept] = []  # by a decision each
        self._claims: list[tuple[int, Claim]] = []  # in bursts, with the ids of their rows

    @property
    def is_cut_short(self) -> bool:
        return self._has_stopped or not self._delays or not self._waits

    def grant_due(self) -> tuple[Claim, ...]:
        """Claim due fires: first those with an expired claim, then queue by queue."""
        for life in self._ask.dead:
            _declare_dead(self._transaction, life)
        queues = json.dumps(self._ask.queues)
        expired = (self._ask.app, queues, self._transaction.monotonic, LOOKS_MAX, self._dispositions)
        for entry in list(self._transaction.fires.select(_EXPIRED, expired)):
            self._take(entry)
        for queue in dict.fromkeys(self._ask.queues):
            self._serve(queue)
        self._transaction.lengthen(self._longest_ttl_s)
        self._transaction.save()
        claims = zip(
            (entry.id for entry in self._granted), _claims_of(self._transaction, self._granted), strict=True
        )
        return tuple(claim for _, claim in sorted([*self._claims, *claims], key=itemgetter(0)))

    def _serve(self, queue: str) -> None:
        """Read the queue from its oldest due fire on.  If that is not enough, continue with the oldest fire
        that is not late, and where earlier asks stopped; which of these two is first alternates."""
        due, name, places = Due(self._transaction, self._ask, queue), (self._ask.app, queue), self._places
        far = self._far.get(name, HEAD)
        head = self._serve_range(queue, due, is_all=far == HEAD)
        if head is None or self._is_served(queue, places):
            if head is None:
                self._far.pop(name, None)
            return
        far = self._far[name] = max(head, far)
        for start in (due.young, far) if self._ask.number % 2 else (far, due.young):
            if start < head or self._is_served(queue, places):
                continue
            due.continue_at(start)
            stop = self._serve_range(queue, due)
            if start == far and stop is None:
                del self._far[name]
            elif start == far and not self._is_served(queue, places):
                self._far[name] = stop or far
        self._has_stopped |= name in self._far and not self._is_served(queue, places)

    def _is_served(self, queue: str, places: int) -> bool:
        """Whether the ask got all that it had room for."""
        return self.is_cut_short or (self._places < places and not self._room(queue))

    def _serve_range(self, queue: str, due: Due, is_all: bool = True) -> Place | None:
        """Grant from one range.  Returns where it ended; None: no more due fires."""
        self._grant_in_bulk(queue, due)
        while not self.is_cut_short:
            if not self._dispositions and not is_all:
                due.stop_reading()
            entry = due.next(Wants(self._room(queue) > 0, self._hooks > 0, self._dispositions > 0))
            if entry is None:
                break
            delays, waits, granted = self._delays, self._waits, len(self._granted)
            self._take(entry)
            is_granted = len(self._granted) > granted
            if (is_granted and self._hides_others(entry.fire)) or self._delays < delays:
                due.query_again()
            elif not is_granted and self._waits == waits:
                due.had_no_effect()
        return due.stop

    def _hides_others(self, fire: Fire) -> bool:
        """Whether this grant, which takes the lane, changes which fires the query returns."""
        return _waits_alone(fire) or (fire.lane != "" and len(self._ask.without) > 0)

    def _grant_in_bulk(self, queue: str, due: Due) -> None:
        goes_on = not self._gates.is_by_key(queue)
        while goes_on and any(room := Room(self._room(queue), self._dispositions)):
            self._transaction.save()
            burst = grant_burst(self._transaction, self._ask, self._gates, due, room)
            if burst is None:
                return
            self._places -= burst.runs
            self._dispositions -= len(burst.claims) - burst.runs
            self._claims += burst.claims
            self._longest_ttl_s = max(self._longest_ttl_s, burst.longest_ttl_s)
            goes_on = burst.goes_on

    def _room(self, queue: str) -> int:
        return self._gates.room(queue, self._places) if self._places else 0

    def _take(self, entry: Kept) -> None:
        decision = _decide(self._transaction, entry)
        for key in decision.stop:
            _stop(self._transaction, key, replaced_by(entry.fire.key))
        if decision.step == "wait" and not entry.waits:
            entry.waits = True
            self._transaction.fires.change(entry)
            self._waits -= 1
        elif decision.step == "settle" and self._dispositions:
            entry.disposition, self._dispositions = decision.disposition, self._dispositions - 1
            self._grant(entry)
        elif decision.step == "run" and entry.fire.job not in self._ask.without:
            self._let_in(entry)

    def _let_in(self, entry: Kept) -> None:
        """Grant it to run if its queue's rate and its breaker allow it.  Hooks have neither."""
        if is_hook(entry.fire):
            if self._hooks:
                self._hooks -= 1
                self._grant(entry)
        elif self._room(entry.fire.queue):
            if wait_s := self._gates.wait_s(entry.fire):
                self._delay(entry, wait_s)
                return
            self._places -= 1
            self._grant(entry)
            self._gates.enter(entry.fire, entry.fence)

    def _delay(self, entry: Kept, wait_s: float) -> None:
        place = entry.run_at, entry.fire.key
        entry.run_at = self._transaction.wall + wait_s
        self._transaction.fires.change(entry)
        self._delays -= 1
        self._delays -= delay_alike(self._transaction, self._ask, entry, place, self._delays)

    def _grant(self, entry: Kept) -> None:
        ask, transaction = self._ask, self._transaction
        entry.state, entry.node, entry.ask = "claimed", ask.node, ask.number
        entry.fence = transaction.jobs.next_fence(app_of(entry.fire.job))
        entry.ttl_s = ask.ttl_s or entry.fire.policy.claim_s
        entry.expires = transaction.monotonic + entry.ttl_s
        transaction.jobs.reach(entry.fire.job, entry.fire.due_at.timestamp(), entry.fire.origin)
        if entry.disposition is None:
            entry.attempt += 1
            entry.ran = entry.node, entry.fence, transaction.wall
            transaction.fires.drop_late_hooks(entry.fire)
        transaction.fires.change(entry)
        self._longest_ttl_s = max(self._longest_ttl_s, entry.ttl_s)
        self._granted.append(entry)


def grant_again(transaction: Transaction, ask: Ask) -> tuple[Claim, ...]:
    """Renew and return the claims that this ask already got."""
    where = "state = 'claimed' AND node = ? AND ask = ? AND expires > ? ORDER BY id"
    granted = list(transaction.fires.select(where, (ask.node, ask.number, transaction.monotonic)))
    for entry in granted:
        entry.expires = transaction.monotonic + entry.ttl_s
        transaction.fires.change(entry)
    return _claims_of(transaction, granted)


def _claims_of(transaction: Transaction, granted: Sequence[Kept]) -> tuple[Claim, ...]:
    ahead, successes = (
        transaction.wall - transaction.monotonic,
        transaction.jobs.successes({entry.fire.job for entry in granted}),
    )
    return tuple(claim_of(entry, entry.expires + ahead, successes.get(entry.fire.job)) for entry in granted)


def next_in_s(transaction: Transaction, ask: Ask, gates: Gates) -> float:
    if transaction.is_quarantined:
        return transaction.header.quarantined_until - transaction.monotonic
    transaction.save()
    queues = json.dumps(ask.queues)
    (pending,) = transaction.one(_NEXT_PENDING, ask.app, transaction.wall, queues) or (None,)
    (claimed,) = transaction.one(_NEXT_EXPIRY, ask.app, transaction.monotonic, queues) or (None,)
    (grace,) = transaction.one("SELECT min(until) FROM graces WHERE until > ?", transaction.monotonic) or (
        None,
    )
    waits = [
        None if pending is None else pending - transaction.wall,
        None if claimed is None else claimed - transaction.monotonic,
        None if grace is None else grace - transaction.monotonic,
        *(gates.closed_s(queue) or None for queue in ask.queues),
    ]
    return min((wait for wait in waits if wait is not None), default=float("inf"))


def _declare_dead(transaction: Transaction, life: str) -> None:
    expire = "UPDATE fires SET expires = ? WHERE state = 'claimed' AND node = ? AND expires > ?"
    if transaction.db.execute(expire, (transaction.monotonic, life, transaction.monotonic)).rowcount:
        transaction.wake()  # the claims may belong to another app


def _decide(transaction: Transaction, entry: Kept) -> Decision:
    me, fire, now = transaction.fires.open_fire(entry), entry.fire, instant(transaction.wall)
    watermark, since = (
        transaction.jobs.watermark(fire.job) if fire.origin == "schedule" else None,
        fire.due_at.timestamp(),
    )
    facts = Facts(
        now=now,
        planned_until=watermark.at if watermark else None,
        paused=transaction.notes.pauses(app_of(fire.job)).get(fire.job),
        newer_due=is_late(me, now) and transaction.one(_NEWER, fire.job, since, transaction.wall) is not None,
        graces=transaction.fires.graces().get(fire.lane, 0),
    )
    return decide(me, _lane(transaction, fire), facts)


def _lane(transaction: Transaction, fire: Fire) -> list[OpenFire]:
    """The fires of its lane that the decision depends on.  There may be thousands that are only due."""
    if not fire.lane:
        return []
    if fire.policy.concurrency == "Forbid" or _waits_alone(fire):
        return transaction.fires.holders(fire.lane)
    if fire.policy.concurrency == "Queue":
        return transaction.fires.holders(fire.lane) + transaction.fires.waiters(fire.lane)
    return transaction.fires.lane(fire.lane)


def _waits_alone(fire: Fire) -> bool:
    """Whether it waits for a place in its lane regardless of the other waiting fires."""
    return fire.origin == "push" and fire.policy.concurrency == "Queue"


def _stop(transaction: Transaction, key: str, why: Outcome) -> None:
    entry = transaction.fires.open_entry(key)
    assert entry is not None, "a fire that holds a lane is open"
    entry.stop = why
    transaction.fires.change(entry)
    transaction.wake()


_NEWER = """
SELECT 1 FROM fires WHERE job = ? AND due > ? AND due <= ? AND state <> 'over' AND origin = 'schedule' LIMIT 1
"""
_EXPIRED = """
id IN (
    SELECT id FROM fires
    WHERE state = 'claimed' AND app = ? AND queue IN (SELECT value FROM json_each(?)) AND expires <= ? LIMIT ?
) ORDER BY run_at, key LIMIT ?
"""
# One index seek for each queue.
_NEXT_PENDING = """
SELECT min((
    SELECT run_at FROM fires WHERE state = 'pending' AND app = ?1 AND queue = value AND run_at > ?2
    ORDER BY run_at LIMIT 1
)) FROM json_each(?3)
"""
_NEXT_EXPIRY = """
SELECT min((
    SELECT expires FROM fires WHERE state = 'claimed' AND app = ?1 AND queue = value AND expires > ?2
    ORDER BY expires LIMIT 1
)) FROM json_each(?3)
"""
