"""Runs one pipeline from a request to its reply on a thread (WSGI) or on an event loop (ASGI).

An exchange is a generator.  It yields the steps that take time; a driver carries them out and sends back
their results.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator
from typing import Any, NamedTuple

from detent.receive.messages import Reply


class Step(NamedTuple):
    """A call that takes time."""

    call: Callable[[], Any]
    is_async: bool = False  # it returns an awaitable; else it blocks, and must not run on an event loop


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
    """Carry out an exchange on this event loop; blocking steps run on other threads."""
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
    """Await it on an event loop of its own: for a thread that has none."""
    return asyncio.run(awaited(awaitable))


async def awaited(awaitable: Awaitable[Any]) -> Any:
    """Turn any awaitable into a coroutine."""
    return await awaitable


def _advance(exchange: Exchange, value: Any, error: BaseException | None) -> Step | Reply:
    try:
        return exchange.throw(error) if error is not None else exchange.send(value)
    except StopIteration as over:
        reply: Reply = over.value
        return reply
