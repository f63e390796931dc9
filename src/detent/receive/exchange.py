"""From a request to its answer, without waiting for anything: what takes time is asked of a driver.

An exchange is a generator.  It yields steps; a driver carries them out, on a thread or on an event loop,
and sends back what came of them.  So there is one pipeline, for WSGI and ASGI alike.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator
from typing import Any, NamedTuple

from detent.receive.messages import Reply


class Step(NamedTuple):
    """Something that takes time."""

    call: Callable[[], Any]
    is_async: bool = False  # its value is to be awaited; else it blocks, and is not for an event loop


Exchange = Generator[Step, Any, Reply]
RunAsync = Callable[[Awaitable[Any]], Any]


def drive(exchange: Exchange, run_async: RunAsync) -> Reply:
    """Carry out an exchange on this thread."""
    outcome = _advance(exchange, None, None)
    while isinstance(outcome, Step):
        try:
            value = outcome.call()
            value = run_async(value) if inspect.isawaitable(value) else value
        except BaseException as error:
            outcome = _advance(exchange, None, error)
        else:
            outcome = _advance(exchange, value, None)
    return outcome


async def drive_async(exchange: Exchange) -> Reply:
    """Carry out an exchange on this event loop; what blocks, on threads beside it."""
    outcome = _advance(exchange, None, None)
    while isinstance(outcome, Step):
        try:
            value = outcome.call() if outcome.is_async else await asyncio.to_thread(outcome.call)
            value = await value if inspect.isawaitable(value) else value
        except BaseException as error:
            outcome = _advance(exchange, None, error)
        else:
            outcome = _advance(exchange, value, None)
    return outcome


def run_alone(awaitable: Awaitable[Any]) -> Any:
    """On an event loop of its own: for a thread that has none."""
    return asyncio.run(awaited(awaitable))


async def awaited(awaitable: Awaitable[Any]) -> Any:
    """Whatever can be awaited, as a coroutine."""
    return await awaitable


def _advance(exchange: Exchange, value: Any, error: BaseException | None) -> Step | Reply:
    try:
        return exchange.throw(error) if error is not None else exchange.send(value)
    except StopIteration as over:
        reply: Reply = over.value
        return reply
