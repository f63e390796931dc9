"""Calls in the process of the node itself: each in a thread, or async ones on one loop of their own.

1. A function that runs here cannot be killed.  An async one is cancelled, and normally ends; a function
   in a thread goes on until it has ended by itself.
2. What it logs, INFO and up, is its output.  What it prints goes where the node's own output goes, and
   its environment is the node's: both belong to the whole process.  What it needs to know of its fire it
   gets as a `detent.Fire`.
3. The loop is not the node's: a function that blocks it delays other calls, never the node.
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
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from detent.model import Call
from detent.runners.base import TAIL_MAX
from detent.runners.call_fire import Fire
from detent.runners.call_function import (
    CannotCall,
    bind,
    exit_status,
    find,
    is_async,
    reason_of,
    returned,
    traceback_of,
)

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Ended(NamedTuple):
    """How a function ended."""

    status: int = 0
    error: str = ""
    result: str = ""
    tail: bytes = b""


@functools.cache
def _search_here() -> None:
    """Modules are found from the directory where the node runs, as a child finds them."""
    sys.path.insert(0, str(Path.cwd()))


class Inside:
    """A call under way in this process, to be kept until it has ended.  `ended` is called once, in a thread
    that is not the caller's."""

    def __init__(self, call: Call, fire: Callable[[], Fire]) -> None:
        self._call, self._fire = call, fire  # for a function that asks for it
        self._log = _Log()
        self._cancel: Callable[[], object] = _nothing
        self._lock = threading.Lock()
        self._is_cancelled = False
        self._task: asyncio.Task[None] | None = None

    def start(self, ended: Callable[[Ended], object]) -> None:
        _search_here()
        context = contextvars.copy_context()
        context.run(_LOG.set, self._log)
        listen_to_logging()
        if self._call.isolation == "loop":
            _shared_loop().put(partial(self._create_task, ended, context))
        else:
            name = f"detent-call-{self._call.function}"
            threading.Thread(
                target=context.run, args=(self._in_thread, ended), name=name, daemon=True
            ).start()

    def cancel(self) -> None:
        """Ask it to end, if it can be asked."""
        with self._lock:
            self._is_cancelled = True
            self._cancel()

    # In a thread.

    def _in_thread(self, ended: Callable[[Ended], object]) -> None:
        try:
            value = self._function()()
            result = self._succeeded(asyncio.run(self._await(value)) if inspect.isawaitable(value) else value)
        except BaseException as error:
            result = self._failed(error)
        ended(result)

    # On the loop.

    def _create_task(self, ended: Callable[[Ended], object], context: contextvars.Context) -> None:
        """Kept with the call, as a loop itself keeps its tasks only weakly."""
        self._task = asyncio.get_running_loop().create_task(self._on_loop(ended), context=context)

    async def _on_loop(self, ended: Callable[[Ended], object]) -> None:
        try:
            result = self._succeeded(await self._await(self._function()()))
        except BaseException as error:
            result = self._failed(error)
        ended(result)

    async def _await(self, value: Awaitable[object]) -> object:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        with self._lock:
            self._cancel = partial(loop.call_soon_threadsafe, task.cancel)
            if self._is_cancelled:
                task.cancel()
        try:
            return await value
        finally:
            with self._lock:  # the loop may be closed when somebody cancels after this
                self._cancel = _nothing

    # Either way.

    def _function(self) -> Callable[[], Any]:
        found = find(self._call.function)
        if self._call.isolation == "loop" and not is_async(found):
            raise CannotCall(f"{self._call.function} is not async: with `isolation: loop` it has to be")
        args, named = bind(found, json.loads(self._call.args), self._fire)
        return partial(found, *args, **named)

    def _succeeded(self, value: object) -> Ended:
        text, why_not = returned(value)
        self._log.write(f"detent: {why_not}\n" if why_not else "")
        return Ended(0, result=text, tail=self._log.tail)

    def _failed(self, error: BaseException) -> Ended:
        if isinstance(error, SystemExit):
            status, said = exit_status(error)
            self._log.write(f"{said}\n" if said else "")
            return Ended(status, tail=self._log.tail)
        reason = reason_of(error)
        self._log.write(traceback_of(error) or f"detent: {reason}\n")
        return Ended(1, error=reason, tail=self._log.tail)


class _Log:
    """The last of what a call logged."""

    def __init__(self) -> None:
        self._text = b""

    @property
    def tail(self) -> bytes:
        return self._text

    def write(self, text: str) -> None:
        self._text = (self._text + text.encode("utf-8", "backslashreplace"))[-TAIL_MAX:]


_LOG: contextvars.ContextVar[_Log | None] = contextvars.ContextVar("detent-call-log", default=None)


class _Listener(logging.Handler):
    """Gives each call what was logged in its own context, and nobody the rest."""

    def emit(self, record: logging.LogRecord) -> None:
        log = _LOG.get()
        if log is not None:
            log.write(self.format(record) + "\n")


@functools.cache
def _listener() -> _Listener:
    listener = _Listener(logging.INFO)
    listener.setFormatter(logging.Formatter(LOG_FORMAT))
    return listener


def listen_to_logging(is_guest: bool = False) -> None:
    """In a process that is not the node's own, what is logged at all is for others to say."""
    root, listener = logging.getLogger(), _listener()
    if listener in root.handlers:
        return
    root.addHandler(listener)
    if root.level == logging.WARNING and not is_guest:  # what it is if nobody set it
        root.setLevel(logging.INFO)


# The loop that all such calls share.


class Mailbox:
    """What other threads want done on a loop: one wake-up for all that comes before it has woken."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._is_rung = loop, False
        self._calls: deque[Callable[[], object]] = deque()

    def put(self, call: Callable[[], object]) -> None:
        self._calls.append(call)
        if self._loop.is_closed():  # who outlived it still has to let go of what it holds
            with contextlib.suppress(RuntimeError):  # nobody there is told any more
                self._empty()
        elif not self._is_rung:
            self._is_rung = True
            self._loop.call_soon_threadsafe(self._empty)

    def _empty(self) -> None:
        self._is_rung = False  # first: what comes from now on rings again
        while self._calls:
            self._calls.popleft()()


@functools.cache
def _shared_loop() -> Mailbox:
    loop = asyncio.new_event_loop()
    threading.Thread(target=_run, args=(loop,), name="detent-calls", daemon=True).start()
    return Mailbox(loop)


os.register_at_fork(after_in_child=_shared_loop.cache_clear)  # its thread stayed with the parent


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """For ever: an exit that a call asks for ends that call, and stops the loop only for a moment."""
    while True:
        with contextlib.suppress(SystemExit, KeyboardInterrupt):
            loop.run_forever()


def _nothing() -> None:
    """There is nobody to cancel."""
