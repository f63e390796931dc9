"""Runs one pipeline from a request to its reply on a thread (WSGI) or on an event loop (ASGI).

The pipeline is a coroutine.  It gives each step that takes time to a `Perform`.  On a thread the steps block,
so the coroutine never suspends.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple

from detent.receive.messages import Reply


class Step(NamedTuple):
    """A call that takes time."""

    call: Callable[[], Any]
    is_async: bool = False  # it returns an awaitable; else it blocks, and must not run on an event loop


Perform = Callable[[Step], Awaitable[Any]]
RunAsync = Callable[[Awaitable[Any]], Any]


def on_thread(run_async: RunAsync) -> Perform:
    """Return a function that runs steps on this thread."""

    async def perform(step: Step) -> Any:
        value = step.call()
        return run_async(value) if inspect.isawaitable(value) else value

    return perform


async def on_loop(step: Step) -> Any:
    """Run a step on this event loop; a blocking one runs on another thread."""
    value = step.call() if step.is_async else await asyncio.to_thread(step.call)
    return await value if inspect.isawaitable(value) else value


def run_blocking(pipeline: Coroutine[Any, Any, Reply]) -> Reply:
    """Run a pipeline whose steps block."""
    try:
        pipeline.send(None)
    except StopIteration as over:
        reply: Reply = over.value
        return reply
    raise RuntimeError("a step on a thread did not block")


def run_alone(awaitable: Awaitable[Any]) -> Any:
    """Await it on an event loop of its own: for a thread that has none."""
    return asyncio.run(awaited(awaitable))


async def awaited(awaitable: Awaitable[Any]) -> Any:
    """Turn any awaitable into a coroutine."""
    return await awaitable
