"""Rates and circuit breakers of an app, as the store keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from detent.app.queue.arguments import caller
from detent.app.queue.options import checked
from detent.errors import DetentError
from detent.manifest.fields import DAY_S
from detent.manifest.shapes import Boolean, Field, Integer, Number, Record
from detent.model import Policy, Rate
from detent.rules.breakers import Circuit, circuit_of, state_of
from detent.stores.base import BREAKER
from detent.text import quote

if TYPE_CHECKING:
    from detent.app.app import Detent

MOST_MAX = 1_000_000
THROTTLE = "throttle:"  # cannot be the name of a queue
_RATE = Record((
    Field("most", Integer(1, MOST_MAX)),
    Field("per", Number(0.001, DAY_S)),
    Field("smooth", Boolean()),
    Field("by_key", Boolean()),
))  # fmt: skip


class RateLimited(DetentError):
    """The rate is used up; the next call is allowed in `free_in_s` seconds."""

    def __init__(self, name: str, rate: Rate, free_in_s: float) -> None:
        super().__init__(name, rate, free_in_s)
        self.name, self.rate, self.free_in_s = name, rate, free_in_s

    def __str__(self) -> str:
        most = f"{self.rate.most:,} in {self.rate.window_s:g} s"
        return f"{quote(self.name)} is limited to {most}: free in {self.free_in_s:.3g} s"


def checked_rate(name: str, **options: Any) -> Rate:
    given = checked(_RATE, options, f"{caller()}the rate of {quote(name)}")
    return Rate(given["most"], given["per"], given["smooth"], given.get("by_key", False))


def throttle(app: Detent, name: str, rate: Rate) -> None:
    """Count one call, or raise `RateLimited`."""
    used = app.open_store().charge(app.name, THROTTLE + name, rate)
    if used.free_in_s > 0:
        raise RateLimited(name, rate, used.free_in_s)


class Breaker:
    """Returned by `Detent.breaker`."""

    def __init__(self, app: Detent, name: str) -> None:
        self._app, self.name = app, name

    def state(self) -> Literal["closed", "open", "half-open"]:
        """Open: its messages are postponed; half-open: one message may probe the backend."""
        return state_of(self._circuit(), self._cooldown_s(), self._app.sender.now().timestamp())

    def errors(self) -> int:
        """The number of consecutive backend errors."""
        return self._circuit().errors

    def reset(self) -> None:
        """Close it and forget the errors."""
        self._app.open_store().note(self._app.name, BREAKER + self.name, "")

    def _circuit(self) -> Circuit:
        notes = self._app.open_store().notes(self._app.name, BREAKER + self.name)
        return circuit_of(next((note.text for note in notes if note.name == BREAKER + self.name), ""))

    def _cooldown_s(self) -> float:
        """The longest cooldown of the tasks that use it."""
        policies = [task.policy for task in self._app.tasks().values() if task.policy.breaker == self.name]
        return max((policy.breaker_cooldown_s for policy in policies), default=Policy().breaker_cooldown_s)
