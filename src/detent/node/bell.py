"""A bell wakes its sleeper, who sleeps no longer than told."""

from __future__ import annotations

import asyncio


class Bell:
    def __init__(self) -> None:
        self.event = asyncio.Event()

    def ring(self) -> None:
        self.event.set()

    async def sleep(self, most_s: float) -> None:
        timer = asyncio.get_running_loop().call_later(max(0.0, most_s), self.event.set)
        await self.event.wait()
        timer.cancel()
        self.event.clear()
