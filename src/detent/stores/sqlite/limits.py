"""Rates and circuit breakers of the SQLite store: who may begin now, and what that is charged to.

The charges of a name are numbered without a gap: how many there are in a window, its first and the last of
all tell, however many a rate allows.
"""

from __future__ import annotations

from detent.model import Fire, Outcome, Rate, Usage
from detent.rules.breakers import Circuit, after_attempt, after_grant, circuit_of, circuit_text, wait_s
from detent.rules.rates import charged_as, rate_of, span_s, without_priority
from detent.stores.base import BREAKER, RATE
from detent.stores.sqlite.transaction import Transaction

LOOK_BACK_S = 3600.0  # a charge is kept for so long at least: another rate may look back further


class Gates:
    """Those of one app, in one call."""

    def __init__(self, call: Transaction, app: str) -> None:
        self._call, self._app = call, app
        self._rooms: dict[str, int] = {}  # queues with a rate -> how many may begin now

    # Rates.

    def charge(self, name: str, rate: Rate, count: int) -> Usage:
        found = self.usage(name, rate)
        if not count or found.free_in_s:
            return found
        self._add(name, rate, 1)
        return found._replace(used=found.used + 1)

    def usage(self, name: str, rate: Rate) -> Usage:
        """As `rules.rates.usage` reckons it."""
        now, span, names = self._call.monotonic, span_s(rate), (self._app, name)
        first, last = self._call.one(_FIRST, *names, now - span), self._last(name)
        if not first or not last:
            return Usage(0, 0.0)
        used, free_at = last[1] - first[1] + 1, now
        if used >= rate.most:
            oldest = first if used == rate.most else self._call.one(_OF, *names, last[1] - rate.most + 1)
            free_at = (oldest or first)[0] + span
        if rate.smooth:
            free_at = max(free_at, last[0] + rate.window_s / rate.most)
        return Usage(used, max(0.0, free_at - now))

    def reset(self, name: str) -> None:
        self._call.db.execute("DELETE FROM charges WHERE app = ? AND name = ?", (self._app, name))

    def is_by_key(self, queue: str) -> bool:
        rate = self._rate(queue)
        return rate is not None and rate.by_key

    def room(self, queue: str, most: int) -> int:
        """How many fires of this queue may begin now: so many at most."""
        rate, name = self._rate(queue), without_priority(queue)
        if rate is None or rate.by_key:
            return most
        if name not in self._rooms:
            found = self.usage(name, rate)
            free = 1 if rate.smooth else rate.most - found.used
            self._rooms[name] = 0 if found.free_in_s else free
        return min(most, self._rooms[name])

    def closed_s(self, queue: str) -> float:
        """How long no fire of this queue may begin."""
        rate = self._rate(queue)
        return 0.0 if rate is None or rate.by_key else self.usage(without_priority(queue), rate).free_in_s

    def count(self, queue: str, fires: int) -> None:
        """So many of this queue begin, whose rate is not by key."""
        if rate := self._rate(queue):
            self._rooms[without_priority(queue)] -= fires
            self._add(without_priority(queue), rate, fires)

    def _add(self, name: str, rate: Rate, count: int) -> None:
        db, now, kept_s = self._call.db, self._call.monotonic, max(span_s(rate), LOOK_BACK_S)
        db.execute(
            "DELETE FROM charges WHERE app = ? AND name = ? AND at <= ?", (self._app, name, now - kept_s)
        )
        last = self._last(name)
        first = last[1] + 1 if last else 1
        rows = ((self._app, name, now, first + one, now + kept_s) for one in range(count))
        db.executemany("INSERT INTO charges VALUES (?, ?, ?, ?, ?)", rows)

    def _last(self, name: str) -> tuple[float, int] | None:
        found = self._call.one(_LAST, self._app, name)
        return (found[0], found[1]) if found else None

    def _rate(self, queue: str) -> Rate | None:
        text = self._call.controls(self._app).get(RATE + without_priority(queue))
        return rate_of(text) if text else None

    # What one fire has to pass.

    def wait_s(self, fire: Fire) -> float:
        """How long to put it off; 0: it may begin."""
        rate, policy, waits = self._rate(fire.queue), fire.policy, 0.0
        if rate and rate.by_key:
            waits = self.usage(charged_as(fire.queue, rate, policy.rate_key), rate).free_in_s
        if policy.breaker:
            circuit = self._circuit(policy.breaker)
            lives = self._is_live(circuit)
            waits = max(waits, wait_s(circuit, policy.breaker_cooldown_s, self._call.wall, lives))
        return waits

    def is_passable(self, breaker: str) -> bool:
        """Do all that go through it leave it as it is?"""
        return not breaker or not self._circuit(breaker).opened

    def enter(self, fire: Fire, fence: int) -> None:
        """It begins under this claim."""
        rate, policy = self._rate(fire.queue), fire.policy
        if rate and rate.by_key:
            self._add(charged_as(fire.queue, rate, policy.rate_key), rate, 1)
        elif rate:
            self.count(fire.queue, 1)
        if policy.breaker:
            self._keep(policy.breaker, after_grant(self._circuit(policy.breaker), fire.key, fence))

    def leave(self, fire: Fire, fence: int, outcome: Outcome) -> None:
        """The attempt of this claim ended so."""
        policy = fire.policy
        if policy.breaker:
            circuit, threshold = self._circuit(policy.breaker), policy.breaker_threshold
            self._keep(policy.breaker, after_attempt(circuit, fence, outcome, threshold, self._call.wall))

    def _is_live(self, circuit: Circuit) -> bool:
        entry = self._call.open_entry(circuit.probe) if circuit.fence else None
        return entry is not None and entry.fence == circuit.fence and self._call.is_live(entry)

    def _circuit(self, breaker: str) -> Circuit:
        text = self._call.controls(self._app).get(BREAKER + breaker)
        return circuit_of(text) if text else Circuit()

    def _keep(self, breaker: str, circuit: Circuit) -> None:
        if circuit != self._circuit(breaker):
            self._call.write_note(self._app, BREAKER + breaker, circuit_text(circuit))


_FORGET = "DELETE FROM charges WHERE app = ? AND name = ? AND at <= ?"
_CHARGES = "SELECT at, number FROM charges WHERE app = ? AND name = ?"
_FIRST = f"{_CHARGES} AND at > ? ORDER BY at, number LIMIT 1"
_LAST = f"{_CHARGES} ORDER BY at DESC, number DESC LIMIT 1"
_OF = f"{_CHARGES} AND number = ?"
