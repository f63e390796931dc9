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
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from detent.model import Call
from detent.runners.call.django_setup import await_call, run_call
from detent.runners.call.fire import Fire
from detent.runners.call.function import (
    RESULT_NOT_KEPT,
    CannotCall,
    bind,
    exit_status,
    failure_of,
    find,
    is_async,
    returned,
    traceback_of,
)
from detent.runners.call.threads import threads
from detent.runners.lifeline import TAIL_MAX

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


class InProcessCall:
    """A call under way in this process, to be kept until it has ended.  `ended` is called once, in a thread
    that is not the caller's."""

    __slots__ = ("_call", "_cancel", "_ended", "_fire", "_is_cancelled", "_keeps", "_task", "tail")

    def __init__(self, call: Call, fire: Callable[[], Fire], *, keeps: bool = False) -> None:
        self._call, self._fire = call, fire  # for a function that asks for it
        self._keeps = keeps  # somebody asked for what it returns
        self.tail = b""  # the last of what it logged
        self._cancel: Callable[[], object] = _nothing
        self._is_cancelled = False
        self._task: asyncio.Task[None] | None = None
        self._ended: Callable[[Ended], object] = _nothing

    def begin(self, ended: Callable[[Ended], object]) -> bool:
        """Is it to begin on the shared loop?  If not, it has begun, in a thread."""
        self._ended = ended
        if self._call.isolation == "loop":
            return True
        threads().run(partial(contextvars.copy_context().run, self._in_thread))
        return False

    def cancel(self) -> None:
        """Ask it to end, if it can be asked."""
        with _CANCELLING:
            self._is_cancelled = True
            self._cancel()

    def write(self, text: str) -> None:
        """Into its log."""
        self.tail = (self.tail + text.encode("utf-8", "backslashreplace"))[-TAIL_MAX:]

    # In a thread.

    def _in_thread(self) -> None:
        threading.current_thread().name = f"detent-call-{self._call.function}"
        _LOG.set(self)
        try:
            value = self._called()
            result = self._succeeded(asyncio.run(self._await(value)) if inspect.isawaitable(value) else value)
        except BaseException as error:
            result = self._failed(error)
        self._tell(result)

    async def _await(self, value: Awaitable[object]) -> object:
        self._task, loop = asyncio.current_task(), asyncio.get_running_loop()
        self._let_cancel(loop)
        try:
            return await await_call(value)
        finally:
            with _CANCELLING:  # the loop may be closed when somebody cancels after this
                self._cancel = _nothing

    # On the loop.

    def create_task(self, loop: asyncio.AbstractEventLoop) -> None:
        """Kept with the call, as a loop itself keeps its tasks only weakly."""
        self._task = loop.create_task(self._on_loop(loop))

    async def _on_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        _LOG.set(self)
        try:
            self._let_cancel(loop)
            result = self._succeeded(await await_call(self._called()))
        except BaseException as error:
            result = self._failed(error)
        self._tell(result)

    def _let_cancel(self, loop: asyncio.AbstractEventLoop) -> None:
        """Not before it runs: a task that is cancelled before does not even say so."""
        assert self._task is not None
        with _CANCELLING:
            self._cancel = partial(loop.call_soon_threadsafe, self._task.cancel)
            if self._is_cancelled:
                self._task.cancel()

    # Either way.

    def _called(self) -> Any:
        found = find(self._call.function)
        if self._call.isolation == "loop" and not _is_async(found):
            raise CannotCall(f"{self._call.function} is not async: with `isolation: loop` it has to be")
        given, named = bind(found, json.loads(self._call.args), self._fire)
        return run_call(found, given, named)

    def _tell(self, result: Ended) -> None:
        """Once; and refer no more to who may refer to us: no search for garbage is needed then."""
        with _CANCELLING:
            self._cancel, self._task = _nothing, None
        ended, self._ended = self._ended, _nothing
        ended(result)

    def _succeeded(self, value: object) -> Ended:
        text, why_not = returned(value)
        self.write(f"detent: {why_not}\n" if why_not else "")
        if why_not and self._keeps:
            return Ended(RESULT_NOT_KEPT, error=why_not, tail=self.tail)
        return Ended(0, result=text, tail=self.tail)

    def _failed(self, error: BaseException) -> Ended:
        if isinstance(error, SystemExit):
            status, said = exit_status(error)
            self.write(f"{said}\n" if said else "")
            return Ended(status, tail=self.tail)
        status, reason = failure_of(error)
        self.write(traceback_of(error) or f"detent: {reason}\n")
        return Ended(status, error=reason, tail=self.tail)


def start_all(calls: Sequence[tuple[InProcessCall, Callable[[Ended], object]]]) -> None:
    """Start these; `ended` of each is called when it has ended.  One message to the loop for all."""
    _search_here()
    capture_logging()
    if on_loop := [inside for inside, ended in calls if inside.begin(ended)]:
        _shared_loop().put(partial(_create_tasks, on_loop))


def _create_tasks(calls: Sequence[InProcessCall]) -> None:
    loop = asyncio.get_running_loop()
    for one in calls:
        one.create_task(loop)


_CANCELLING = threading.Lock()  # held for a moment, by whoever may be cancelled and by whoever cancels
_is_async = functools.lru_cache(maxsize=1024)(is_async)
_LOG: contextvars.ContextVar[InProcessCall | None] = contextvars.ContextVar("detent-call-log", default=None)


class _Listener(logging.Handler):
    """Gives each call what was logged in its own context, and nobody the rest."""

    def emit(self, record: logging.LogRecord) -> None:
        call = _LOG.get()
        if call is not None:
            call.write(self.format(record) + "\n")


@functools.cache
def _listener() -> _Listener:
    listener = _Listener(logging.INFO)
    listener.setFormatter(logging.Formatter(LOG_FORMAT))
    return listener


def capture_logging(is_guest: bool = False) -> None:
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


def _nothing(*_: object) -> None:
    """There is nobody to cancel."""
