"""Calls of the store, of which a node says once that they fail, and once that they succeed again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from detent.errors import StoreMismatch, StoreUnavailable
from detent.node.ports import Ports, Tuning

T = TypeVar("T")


ERRORS_MAX = 5  # in a row; then a worker lets the store cool down


class StoreCalls:
    def __init__(self, ports: Ports, app: str, instance: str, tuning: Tuning) -> None:
        self._ports, self._tuning = ports, tuning
        self._about = {"app": app, "node": instance}
        self._errors = 0  # in a row
        self.back: Callable[[], None] = lambda: None  # called when the store answers again
        self.is_away = False
        self._turned_at = 0.0  # when the store was last said to be away, or back

    async def __call__(self, pool: str, call: Callable[..., T], *args: Any) -> T:
        """One that was under way when the store was said to be away, or back, tells nothing new."""
        sent = self._ports.monotonic()
        try:
            answer = await self._ports.offload(pool, call, *args)
        except (StoreUnavailable, StoreMismatch) as error:  # a wrong file may be put right
            if not self.is_away and sent >= self._turned_at:
                self.is_away, self._turned_at = True, self._ports.monotonic()
                self._ports.emit("store-unavailable", **self._about, error=str(error))
            self._errors += 1
            raise StoreUnavailable(str(error)) from error
        self._errors = 0
        if self.is_away and sent >= self._turned_at:
            # Other lines may still find connections that died: what is really away fails a second later too.
            self.is_away, self._turned_at = False, self._ports.monotonic() + self._tuning.retry_s
            self._ports.emit("store-back", **self._about)
            self.back()
        return answer

    def pause_s(self) -> float:
        """How long not to ask for work, after a call that failed: a dead store elects nobody to probe it, so
        each process does that by itself."""
        return self._tuning.cooldown_s if self._errors >= ERRORS_MAX else self._tuning.retry_s
