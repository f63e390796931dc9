"""Rates and circuit breakers of the SQLite store.

The charges of a name are numbered without a gap, so the first and the last one in a window give their count.
"""

from __future__ import annotations

from detent.model import Fire, Outcome, Rate, Usage
from detent.rules.breakers import Circuit, after_attempt, after_grant, circuit_of, circuit_text, wait_s
from detent.rules.rates import charged_as, rate_of, span_s, without_priority
from detent.stores.base import BREAKER, RATE
from detent.stores.sqlite.transaction import Transaction

LOOK_BACK_S = 3600.0  # the shortest time that a charge is kept; a later rate may have a longer window


class Gates:
    """The rates and breakers of one app, in one transaction."""

    def __init__(self, transaction: Transaction, app: str) -> None:
        self._transaction, self._app = transaction, app
        self._rooms: dict[str, int] = {}  # queues with a rate -> how many fires may start now

    # Rates.

    def charge(self, name: str, rate: Rate, count: int) -> Usage:
        found = self.usage(name, rate)
        if not count or found.free_in_s:
            return found
        self._add(name, rate, 1)
        return found._replace(used=found.used + 1)

    def usage(self, name: str, rate: Rate) -> Usage:
        """The same as `rules.rates.usage`."""
        now, span, names = self._transaction.monotonic, span_s(rate), (self._app, name)
        first, last = self._transaction.one(_FIRST, *names, now - span), self._last(name)
        if not first or not last:
            return Usage(0, 0.0)
        used, free_at = last[1] - first[1] + 1, now
        if used >= rate.most:
            oldest = (
                first if used == rate.most else self._transaction.one(_OF, *names, last[1] - rate.most + 1)
            )
            free_at = (oldest or first)[0] + span
        if rate.smooth:
            free_at = max(free_at, last[0] + rate.window_s / rate.most)
        return Usage(used, max(0.0, free_at - now))

    def reset(self, name: str) -> None:
        self._transaction.db.execute("DELETE FROM charges WHERE app = ? AND name = ?", (self._app, name))

    def is_by_key(self, queue: str) -> bool:
        rate = self._rate(queue)
        return rate is not None and rate.by_key

    def room(self, queue: str, most: int) -> int:
        """How many fires of this queue may start now, at most `most`."""
        rate, name = self._rate(queue), without_priority(queue)
        if rate is None or rate.by_key:
            return most
        if name not in self._rooms:
            found = self.usage(name, rate)
            free = 1 if rate.smooth else rate.most - found.used
            self._rooms[name] = 0 if found.free_in_s else free
        return min(most, self._rooms[name])

    def closed_s(self, queue: str) -> float:
        """How long the rate lets no fire of this queue start."""
        rate = self._rate(queue)
        return 0.0 if rate is None or rate.by_key else self.usage(without_priority(queue), rate).free_in_s

    def count(self, queue: str, fires: int) -> None:
        """Charge the start of fires to a queue whose rate is not per key."""
        if rate := self._rate(queue):
            self._rooms[without_priority(queue)] -= fires
            self._add(without_priority(queue), rate, fires)

    def _add(self, name: str, rate: Rate, count: int) -> None:
        db, now, kept_s = self._transaction.db, self._transaction.monotonic, max(span_s(rate), LOOK_BACK_S)
        db.execute(_FORGET, (self._app, name, now - kept_s))
        last = self._last(name)
        first = last[1] + 1 if last else 1
        rows = ((self._app, name, now, first + one, now + kept_s) for one in range(count))
        db.executemany("INSERT INTO charges VALUES (?, ?, ?, ?, ?)", rows)

    def _last(self, name: str) -> tuple[float, int] | None:
        found = self._transaction.one(_LAST, self._app, name)
        return (found[0], found[1]) if found else None

    def _rate(self, queue: str) -> Rate | None:
        text = self._transaction.notes.controls(self._app).get(RATE + without_priority(queue))
        return rate_of(text) if text else None

    # The checks of one fire.

    def wait_s(self, fire: Fire) -> float:
        """How long to delay the fire; 0: it may start."""
        rate, policy, waits = self._rate(fire.queue), fire.policy, 0.0
        if rate and rate.by_key:
            waits = self.usage(charged_as(fire.queue, rate, policy.rate_key), rate).free_in_s
        if policy.breaker:
            circuit = self._circuit(policy.breaker)
            lives = self._is_live(circuit)
            waits = max(waits, wait_s(circuit, policy.breaker_cooldown_s, self._transaction.wall, lives))
        return waits

    def is_passable(self, breaker: str) -> bool:
        """Whether a fire can start without a change of the breaker."""
        return not breaker or not self._circuit(breaker).opened

    def enter(self, fire: Fire, fence: int) -> None:
        """The fire starts under this claim."""
        rate, policy = self._rate(fire.queue), fire.policy
        if rate and rate.by_key:
            self._add(charged_as(fire.queue, rate, policy.rate_key), rate, 1)
        elif rate:
            self.count(fire.queue, 1)
        if policy.breaker:
            self._keep(policy.breaker, after_grant(self._circuit(policy.breaker), fire.key, fence))

    def leave(self, fire: Fire, fence: int, outcome: Outcome) -> None:
        """The attempt of this claim ended."""
        policy = fire.policy
        if policy.breaker:
            circuit, threshold = self._circuit(policy.breaker), policy.breaker_threshold
            self._keep(
                policy.breaker, after_attempt(circuit, fence, outcome, threshold, self._transaction.wall)
            )

    def _is_live(self, circuit: Circuit) -> bool:
        entry = self._transaction.fires.open_entry(circuit.probe) if circuit.fence else None
        return entry is not None and entry.fence == circuit.fence and self._transaction.fires.is_live(entry)

    def _circuit(self, breaker: str) -> Circuit:
        text = self._transaction.notes.controls(self._app).get(BREAKER + breaker)
        return circuit_of(text) if text else Circuit()

    def _keep(self, breaker: str, circuit: Circuit) -> None:
        if circuit != self._circuit(breaker):
            self._transaction.notes.write(self._app, BREAKER + breaker, circuit_text(circuit))


_FORGET = "DELETE FROM charges WHERE app = ? AND name = ? AND at <= ?"
_CHARGES = "SELECT at, number FROM charges WHERE app = ? AND name = ?"
_FIRST = f"{_CHARGES} AND at > ? ORDER BY at, number LIMIT 1"
_LAST = f"{_CHARGES} ORDER BY at DESC, number DESC LIMIT 1"
_OF = f"{_CHARGES} AND number = ?"
