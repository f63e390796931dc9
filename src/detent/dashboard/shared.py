"""Answers that several clients share for a moment: the load of the store must not grow with their number."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from detent import clock

ANSWERS_MAX = 200


class Shared:
    def __init__(self) -> None:
        self._answers: dict[object, tuple[float, asyncio.Future[Any]]] = {}

    async def get(self, key: object, keep_s: float, make: Callable[[], Awaitable[Any]]) -> Any:
        """Return the answer for this key; make it at most once in `keep_s` seconds."""
        now, loop = clock.monotonic(), asyncio.get_running_loop()
        self._answers = {
            one: (until, answer)
            for one, (until, answer) in [*self._answers.items()][-ANSWERS_MAX:]
            if (until > now or not answer.done()) and answer.get_loop() is loop
        }
        if key not in self._answers:
            self._answers[key] = now + keep_s, asyncio.ensure_future(make())
        answer = self._answers[key][1]
        try:
            return await asyncio.shield(answer)
        except Exception:  # an error is not kept
            self._answers.pop(key, None)
            raise
