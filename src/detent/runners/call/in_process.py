"""Calls in the process of the node itself: each in a thread or, if async, on one event loop for all of them.

1. A function that runs here cannot be killed.  An async one is cancelled, and normally ends; a function in
   a thread runs until it returns.
2. What it logs at INFO and above is its output.  What it prints goes to the node's own output, and its
   environment is the node's: both belong to the whole process.  It learns about its fire by a
   `detent.Fire`.
3. The loop is not the node's: a function that blocks it delays other calls, but not the node.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import json
import logging
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from detent.model import Call
from detent.runners.call.django_setup import await_call, run_call
from detent.runners.call.fire import Fire
from detent.runners.call.function import (
    CallEnd,
    CannotCall,
    bind,
    end_of_raise,
    end_of_return,
    find,
    is_async,
)
from detent.runners.call.threads import threads
from detent.runners.call.trace import within
from detent.runners.lifeline import TAIL_MAX

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Ended(NamedTuple):
    status: int = 0
    error: str = ""
    result: str = ""
    tail: bytes = b""


@functools.cache
def _search_here() -> None:
    """Import modules from the directory of the node, as a child does."""
    sys.path.insert(0, str(Path.cwd()))


class InProcessCall:
    """A call in this process; the caller keeps it until it has ended."""

    __slots__ = ("_call", "_cancel", "_ended", "_fire", "_is_cancelled", "_keeps", "_task", "tail", "trace")

    def __init__(self, call: Call, fire: Callable[[], Fire], *, keeps: bool = False) -> None:
        self._call, self._fire = call, fire
        self.trace = ""  # W3C `traceparent`
        self._keeps = keeps  # whether the caller wants its result
        self.tail = b""  # the end of what it logged
        self._cancel: Callable[[], object] = _nothing
        self._is_cancelled = False
        self._task: asyncio.Task[None] | None = None
        self._ended: Callable[[Ended], object] = _nothing

    def begin(self, ended: Callable[[Ended], object]) -> bool:
        """Start it in a thread.  True: it runs on the shared loop, and was not started.  `ended` is called
        once, in another thread."""
        self._ended = ended
        if self._call.isolation == "loop":
            return True
        threads().run(partial(contextvars.copy_context().run, self._in_thread))
        return False

    def cancel(self) -> None:
        """Cancel it, if it is async."""
        with _CANCELLING:
            self._is_cancelled = True
            self._cancel()

    def write(self, text: str) -> None:
        self.tail = (self.tail + text.encode("utf-8", "backslashreplace"))[-TAIL_MAX:]

    # In a thread.

    def _in_thread(self) -> None:
        threading.current_thread().name = f"detent-call-{self._call.function}"
        _LOG.set(self)
        try:
            with within(self.trace, self._call.function):
                value = self._call_function()
                value = asyncio.run(self._await(value)) if inspect.isawaitable(value) else value
            end = end_of_return(value, keeps=self._keeps)
        except BaseException as error:
            end = end_of_raise(error)
        self._finish(end)

    async def _await(self, value: Awaitable[object]) -> object:
        self._task, loop = asyncio.current_task(), asyncio.get_running_loop()
        self._let_cancel(loop)
        try:
            return await await_call(value)
        finally:
            with _CANCELLING:  # the loop may be closed at a later cancel
                self._cancel = _nothing

    # On the loop.

    def create_task(self, loop: asyncio.AbstractEventLoop) -> None:
        """The call keeps the task, as a loop has only weak references."""
        self._task = loop.create_task(self._on_loop(loop))

    async def _on_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        _LOG.set(self)
        try:
            self._let_cancel(loop)
            with within(self.trace, self._call.function):
                value = await await_call(self._call_function())
            end = end_of_return(value, keeps=self._keeps)
        except BaseException as error:
            end = end_of_raise(error)
        self._finish(end)

    def _let_cancel(self, loop: asyncio.AbstractEventLoop) -> None:
        """Called only once it runs: a task that is cancelled earlier reports nothing."""
        assert self._task is not None
        with _CANCELLING:
            self._cancel = partial(loop.call_soon_threadsafe, self._task.cancel)
            if self._is_cancelled:
                self._task.cancel()

    # In both cases.

    def _call_function(self) -> Any:
        found = find(self._call.function)
        if self._call.isolation == "loop" and not _is_async(found):
            raise CannotCall(f"{self._call.function} is not async: with `isolation: loop` it has to be")
        given, named = bind(found, json.loads(self._call.args), self._fire)
        return run_call(found, given, named)

    def _finish(self, end: CallEnd) -> None:
        """Report the end once, and drop all references to the caller: no garbage collection is needed
        then."""
        self.write(end.output)
        with _CANCELLING:
            self._cancel, self._task = _nothing, None
        ended, self._ended = self._ended, _nothing
        ended(Ended(end.status, end.error, end.result, self.tail))


def start_all(calls: Sequence[tuple[InProcessCall, Callable[[Ended], object]]]) -> None:
    """Start these calls, with one message to the loop; the function beside each is called when it has
    ended."""
    _search_here()
    capture_logging()
    if on_loop := [inside for inside, ended in calls if inside.begin(ended)]:
        _shared_loop().call_soon_threadsafe(_create_tasks, on_loop)


def _create_tasks(calls: Sequence[InProcessCall]) -> None:
    loop = asyncio.get_running_loop()
    for one in calls:
        one.create_task(loop)


_CANCELLING = threading.Lock()  # held while a call is cancelled, or becomes possible or impossible to cancel
_is_async = functools.lru_cache(maxsize=1024)(is_async)
_LOG: contextvars.ContextVar[InProcessCall | None] = contextvars.ContextVar("detent-call-log", default=None)


class _LogHandler(logging.Handler):
    """Gives each call what was logged in its own context."""

    def emit(self, record: logging.LogRecord) -> None:
        call = _LOG.get()
        if call is not None:
            call.write(self.format(record) + "\n")


@functools.cache
def _log_handler() -> _LogHandler:
    handler = _LogHandler(logging.INFO)
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    return handler


def capture_logging(is_guest: bool = False) -> None:
    """Let calls capture what they log; `is_guest`: the process is not the node's own, so the level stays."""
    root, handler = logging.getLogger(), _log_handler()
    if handler in root.handlers:
        return
    root.addHandler(handler)
    if root.level == logging.WARNING and not is_guest:  # the default
        root.setLevel(logging.INFO)


# The shared loop.


@functools.cache
def _shared_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=_run, args=(loop,), name="detent-calls", daemon=True).start()
    return loop


os.register_at_fork(after_in_child=_shared_loop.cache_clear)  # the child process does not have its thread


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop for ever: a `sys.exit` in a call ends the call, and interrupts the loop only for a
    moment."""
    while True:
        with contextlib.suppress(SystemExit, KeyboardInterrupt):
            loop.run_forever()


def _nothing(*_: object) -> None:
    """Does nothing."""
