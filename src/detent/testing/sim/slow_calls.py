"""Carries out requests in steps: between the looks and the commit of a request time passes and others act."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from random import Random
from typing import Any

from detent.errors import StoreUnavailable
from detent.stores.engine.driver import Driver
from detent.testing.hostile import CALM, Chances, HostileDriver
from detent.testing.sim.virtual_time import Handover

ROUGH = Chances(look=0.3, commit=0.7, lose=0.02, delay=0.02)
RELIABLE = ROUGH._replace(lose=0.0, delay=0.0)
SHORT_S = (0.0, 0.004, 0.02)  # between a look and the next step
LONG_S = (0.004, 0.02, 0.1, 0.4, 1.3)  # some are longer than a view is valid


# The handover of the request that is carried out now; each greenlet has a context of its own.
_handover: ContextVar[Handover | None] = ContextVar("handover", default=None)


class SlowCalls:
    """With `is_reliable` no reply is lost, no commit arrives late, and no step takes long."""

    def __init__(self, driver: Driver, rng: Random, loop: asyncio.AbstractEventLoop) -> None:
        self._rng, self._loop = rng, loop
        self.is_reliable = False
        self.driver = HostileDriver(driver, rng, self._pass_time, self._come_late, self._chances)

    async def run(self, method: Callable[..., Any], *args: Any) -> Any:
        """The process that sent the request may be stopped, or die, between two steps."""
        handover = Handover()

        def work() -> Any:
            _handover.set(handover)
            return method(*args)

        return await handover.run(work)

    async def run_unheard(self, method: Callable[..., Any], *args: Any) -> None:
        """The same for a request whose sender gave up."""
        with suppress(StoreUnavailable):
            await self.run(method, *args)

    def _chances(self) -> Chances:
        if _handover.get() is None:
            return CALM
        return RELIABLE if self.is_reliable else ROUGH

    def _pass_time(self) -> None:
        handover = _handover.get()
        assert handover
        seconds = self._rng.choice(SHORT_S if self.is_reliable else LONG_S)
        handover.wait_for(asyncio.sleep(seconds))

    def _come_late(self, commit: Callable[[], object]) -> None:
        self._loop.call_later(self._rng.choice(LONG_S), commit)
