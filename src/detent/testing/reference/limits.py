"""Rates and circuit breakers of the in-memory store."""

from __future__ import annotations

from collections.abc import Callable

from detent.model import Fire, Outcome, Rate, Usage
from detent.rules.alerts import Trouble, after_sending, judge_alert, trouble_of, trouble_text
from detent.rules.breakers import Circuit, after_attempt, after_grant, circuit_of, circuit_text, wait_s
from detent.rules.rates import Charge, charged, charged_as, rate_of, usage, without_priority
from detent.stores.base import BREAKER, RATE, alert_note, app_of, is_repeated_alert
from detent.testing.reference.notes import Notes


class Gates:
    def __init__(self, notes: Notes, wall: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._notes, self._wall, self._monotonic = notes, wall, monotonic
        self._charges: dict[tuple[str, str], list[Charge]] = {}

    # Rates.

    def charge(self, app: str, name: str, rate: Rate, count: int) -> Usage:
        now, charges = self._monotonic(), self._charges.get((app, name), [])
        found = usage(charges, rate, now)
        if count and not found.free_in_s:
            self._charges[app, name] = charged(charges, rate, now)
            found = found._replace(used=found.used + 1)
        return found

    def reset(self, app: str, name: str) -> None:
        self._charges.pop((app, name), None)

    def closed_s(self, app: str, queue: str) -> float:
        """How long the rate lets no fire of this queue start."""
        rate = self._rate(app, queue)
        if rate is None or rate.by_key:
            return 0.0
        return self.charge(app, without_priority(queue), rate, 0).free_in_s

    def _rate(self, app: str, queue: str) -> Rate | None:
        text = self._notes.read(app, RATE + without_priority(queue))
        return rate_of(text) if text else None

    # The checks of one fire.

    def wait_s(self, fire: Fire, is_live: Callable[[str], bool]) -> float:
        """How long to delay the fire; 0: it may start.  `is_live` says whether a fire runs."""
        app, rate = app_of(fire.job), self._rate(app_of(fire.job), fire.queue)
        waits = 0.0
        if rate and rate.by_key:
            waits = self.charge(app, charged_as(fire.queue, rate, fire.policy.rate_key), rate, 0).free_in_s
        if fire.policy.breaker:
            circuit = self._circuit(fire)
            is_probing = is_live(circuit.probe)
            waits = max(waits, wait_s(circuit, fire.policy.breaker_cooldown_s, self._wall(), is_probing))
        return waits

    def enter(self, fire: Fire) -> None:
        """The fire starts."""
        app, rate = app_of(fire.job), self._rate(app_of(fire.job), fire.queue)
        if rate:
            self.charge(app, charged_as(fire.queue, rate, fire.policy.rate_key), rate, 1)
        if fire.policy.breaker:
            self._keep(fire, after_grant(self._circuit(fire), fire.key))

    def leave(self, fire: Fire, outcome: Outcome) -> None:
        """An attempt of the fire ended."""
        if fire.policy.breaker:
            threshold = fire.policy.breaker_threshold
            self._keep(fire, after_attempt(self._circuit(fire), fire.key, outcome, threshold, self._wall()))

    def alert(self, hook: Fire) -> Fire | None:
        """A fire that follows an end; None: an alert that is not sent now."""
        if not is_repeated_alert(hook):
            return hook
        trouble, sent = judge_alert(hook, self._trouble(hook), self._wall())
        self._notes.write(app_of(hook.job), alert_note(hook), trouble_text(trouble))
        return sent

    def leave_alert(self, fire: Fire, outcome: Outcome) -> None:
        """An alert was sent, or could not be sent."""
        if is_repeated_alert(fire):
            trouble = after_sending(self._trouble(fire), outcome)
            self._notes.write(app_of(fire.job), alert_note(fire), trouble_text(trouble))

    def _trouble(self, hook: Fire) -> Trouble:
        return trouble_of(self._notes.read(app_of(hook.job), alert_note(hook)) or "")

    def _circuit(self, fire: Fire) -> Circuit:
        return circuit_of(self._notes.read(app_of(fire.job), BREAKER + fire.policy.breaker) or "")

    def _keep(self, fire: Fire, circuit: Circuit) -> None:
        app, name, text = app_of(fire.job), BREAKER + fire.policy.breaker, circuit_text(circuit)
        if text != (self._notes.read(app, name) or ""):
            self._notes.write(app, name, text)
