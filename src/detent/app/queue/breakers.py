"""A circuit breaker of an app, as the store keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from detent.model import Policy
from detent.rules.breakers import Circuit, circuit_of, state_of
from detent.stores.base import BREAKER

if TYPE_CHECKING:
    from detent.app.app import Detent


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
