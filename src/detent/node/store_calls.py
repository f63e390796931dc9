"""Calls the store for a node.  Reports once that the store is unavailable, and once that it is back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from detent.errors import StoreMismatch, StoreUnavailable
from detent.node.ports import Ports, Tuning

T = TypeVar("T")

ERRORS_MAX = 5  # failed calls in a row; then the node waits for `cooldown_s` between two asks


class StoreCalls:
    def __init__(self, ports: Ports, app: str, instance: str, tuning: Tuning) -> None:
        self.ports, self.app, self.instance, self.tuning = ports, app, instance, tuning
        self._errors = 0  # in a row
        self.on_back: Callable[[], None] = lambda: None
        self.is_away = False
        self._changed_at = 0.0  # when the store was last reported as away or back

    async def __call__(self, pool: str, call: Callable[..., T], *args: Any) -> T:
        """A call that started before the last report of "away" or "back" does not change it."""
        sent = self.ports.monotonic()
        try:
            answer = await self.ports.offload(pool, call, *args)
        except (StoreUnavailable, StoreMismatch) as error:  # an operator can still fix a wrong file
            if not self.is_away and sent >= self._changed_at:
                self.is_away, self._changed_at = True, self.ports.monotonic()
                self.emit("store-unavailable", error=str(error))
            self._errors += 1
            raise StoreUnavailable(str(error)) from error
        self._errors = 0
        if self.is_away and sent >= self._changed_at:
            # Other threads may still have dead connections: ignore their errors for a moment.
            self.is_away, self._changed_at = False, self.ports.monotonic() + self.tuning.retry_s
            self.emit("store-back")
            self.on_back()
        return answer

    def emit(self, event: str, **fields: Any) -> None:
        """Emit an event of this node."""
        self.ports.emit(event, app=self.app, node=self.instance, **fields)

    def pause_s(self) -> float:
        """The pause before the next ask after a failed one.  There is no leader that probes a dead store, so
        each process backs off on its own."""
        return self.tuning.cooldown_s if self._errors >= ERRORS_MAX else self.tuning.retry_s
