"""Messages of a queue that a warm child is given together: one after the other or, if async, all at once.

1. Each is answered when it has ended, before the next begins: so it is always known which one a child that
   died was at.  An answer is `[place, status, error, result, tail, took_s]`, or `[place, took_s]` where
   there is nothing to tell but success.  That may wait a moment for others, unless they run at once: the
   turn that is taken for the next one proves it.
2. What a message prints or logs is its tail.  What C code or a process of its own writes belongs to all.
3. Async messages share one loop, which stays from batch to batch, with whatever the app keeps on it.
   Others may join them while they run.
4. Surroundings are put back after the last one.
5. Before each a turn is taken: where there is none left, those that follow were recalled.
"""

from __future__ import annotations

import io
import json
import sys
from contextvars import ContextVar
from signal import SIGTERM
from typing import TYPE_CHECKING, NamedTuple

from detent.clock import monotonic
from detent.runners.call.django_setup import await_call, run_call
from detent.runners.call.function import (
    RESULT_NOT_KEPT,
    bind,
    exit_status,
    failure_of,
    find,
    is_async,
    returned,
    traceback_of,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from typing import Any, Protocol

    class Carrier(Protocol):
        """Who hears of SIGTERM, and of messages that are wanted back."""

        def interrupted_by(self, interrupt: Callable[[], object]) -> AbstractContextManager[None]:
            """To be entered for each of several calls."""

        def may_begin(self) -> bool: ...

        def import_begins(self, is_so: bool) -> None: ...

        @property
        def wire(self) -> int: ...

        def hear_more(self, *, is_said: bool) -> list[Any] | None: ...

    Part = tuple[int, int, str, str, float, str]

ANSWERED = "answered"  # the result of it all: what has no answer was not begun
TIMED_OUT = -1  # instead of a status: an async message took too long
TAIL_MAX = 65_536  # characters
FUNCTIONS_MAX = 3  # that are named where a batch left something behind
WAIT_S = 0.005  # so long a success may wait to be told with others


class Common(NamedTuple):
    """What messages may have in common."""

    function: str
    keeps: bool  # what it returns is kept
    timeout_s: float  # 0: none
    job: str
    node: str
    previous_success: float | None


class Message(NamedTuple):
    """A call as the node has it."""

    common: Common  # on the wire, null: that of the message before
    key: str
    run_id: str
    due: float
    attempt: int
    fence: int
    args: Any

    def fire(self) -> Any:
        """For a function that asks for it."""
        from datetime import UTC, datetime

        from detent.runners.call.fire import Fire

        app, _, job = self.common.job.partition(".")
        due_at = datetime.fromtimestamp(self.due, UTC)
        before = self.common.previous_success
        success_at = None if before is None else datetime.fromtimestamp(before, UTC)
        told = self.attempt, self.fence, self.common.node, success_at
        return Fire(self.key, app, job, self.run_id, due_at, *told)


class _Later:
    """What is to be awaited with others."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Answers:
    """Gathers them, so that who hears them is not woken for each."""

    def __init__(self, send: Callable[[bytes], object], *, may_wait: bool) -> None:
        self._send, self._may_wait = send, may_wait
        self._texts: list[str] = []
        self._tell_by = 0.0

    def add(self, part: Part) -> None:
        place, status, error, result, took_s, tail = part
        is_plain = status == 0 and not (error or result or tail)
        full = place, status, error, result, tail, took_s
        self._texts.append(f"[{place},{took_s:.6f}]" if is_plain else json.dumps(full))
        now = monotonic()
        if len(self._texts) == 1:
            self._tell_by = now + WAIT_S
        if not is_plain or not self._may_wait or now >= self._tell_by:
            self._send(self.take())

    def take(self) -> bytes:
        """A line with those that were not sent."""
        texts, self._texts = self._texts, []
        return f"[{','.join(texts)}]\n".encode() if texts else b""


class Batch:
    def __init__(self, child: Carrier, calls: list[list[Any]], *, at_once: bool = True) -> None:
        self._child, self._at_once = child, at_once
        self._messages: list[Message] = []
        self._common: Common | None = None  # of the newest
        for call in calls:
            self._read(call)
        self._interruption = child.interrupted_by(_interrupt)
        self._found: dict[str, Callable[..., Any]] = {}
        self.broken = ""  # the function whose import failed: that may leave anything behind
        self._loop: asyncio.AbstractEventLoop | None = None  # where async ones run
        self._tasks: dict[int, asyncio.Task[Part]] = {}  # by place
        self._ended: list[Part] = []  # and not yet answered
        self._began = 0.0  # when the newest did
        self._waiting: asyncio.Future[None] | None = None  # for one to end

    @property
    def functions(self) -> list[str]:
        """Those that were called, a few of them."""
        return [*self._found][:FUNCTIONS_MAX]

    def carry_out(self) -> Iterator[Part]:
        """Run them all, and answer for each."""
        sys.stdout, sys.stderr = _switched(sys.stdout), _switched(sys.stderr)
        later: list[tuple[int, Any]] = []
        for place, message in enumerate(self._messages):
            if not self._child.may_begin():
                break
            begun = self._begin_at(place, message)
            if isinstance(begun, tuple):
                yield begun
            else:
                later.append((place, begun.value))
        if later:
            yield from self._carry_out_at_once(later)

    def _read(self, call: list[Any]) -> Message:
        self._common = call[0] = Common(*call[0]) if call[0] else self._common
        self._messages.append(Message._make(call))
        return self._messages[-1]

    def _begin_at(self, place: int, message: Message) -> Part | _Later:
        """Carry it out, or have what it gives awaited with others."""
        tape, self._began = _Tape(), monotonic()
        token = _TAPE.set(tape)
        try:
            value = self._begin(message)
            if isinstance(value, _Later):
                return value
            answer = _succeeded(value, message)
        except BaseException as error:
            answer = self._failed(error)
        finally:
            _TAPE.reset(token)
        return (place, *answer, monotonic() - self._began, tape.text())

    def _begin(self, message: Message) -> Any:
        """What it gives.  What is not declared as async is awaited at once: one of those who follow may end
        us."""
        name = message.common.function
        with self._interruption:
            function = self._found.get(name) or self._find(name)
            args, named = bind(function, message.args, message.fire)
            value = run_call(function, args, named)
            if value is None or not hasattr(value, "__await__"):
                return value
            is_later = self._at_once and is_async(function)
            return _Later(value) if is_later else _runner().run(await_call(value))

    def _find(self, name: str) -> Callable[..., Any]:
        """Once for the batch."""
        from detent.runners.call.child import set_up_logging

        try:
            function = self._found[name] = find(name, self._note_import)
        except BaseException:
            self.broken = name
            raise
        set_up_logging()
        return function

    def _note_import(self, is_under_way: bool) -> None:
        """What it takes is no part of what the message takes."""
        self._child.import_begins(is_under_way)
        self._began = monotonic()

    def _failed(self, error: BaseException) -> tuple[int, str, str]:
        if isinstance(error, SystemExit):
            status, said = exit_status(error)
            sys.stderr.write(f"{said}\n" if said else "")
            return status, "", ""
        status, reason = failure_of(error)
        sys.stderr.write(traceback_of(error) or f"detent: {reason}\n")
        return status, reason, ""

    # Async ones.

    def _carry_out_at_once(self, later: list[tuple[int, Any]]) -> Iterator[Part]:
        """Answers go out, and further messages come in, while others go on: the loop is run until something
        has ended, again and again."""
        runner = _runner()
        self._loop = loop = runner.get_loop()
        for place, value in later:
            self._add(place, value)
        self._take(self._child.hear_more(is_said=False))
        loop.add_reader(self._child.wire, lambda: self._take(self._child.hear_more(is_said=True)))
        try:
            with self._child.interrupted_by(self._cancel_all):
                while self._tasks or self._ended:
                    if not self._ended:
                        runner.run(self._next_end())
                    ended, self._ended = self._ended, []
                    yield from ended
        finally:
            loop.remove_reader(self._child.wire)

    def _add(self, place: int, value: Any) -> None:
        assert self._loop is not None
        self._tasks[place] = task = self._loop.create_task(self._await(place, value))
        task.add_done_callback(self._note_end)

    def _take(self, calls: list[Any] | None) -> None:
        """Further messages join those that run; one whose place is named is cancelled."""
        if calls is None and self._loop:
            self._loop.remove_reader(self._child.wire)
        for call in calls or ():
            if isinstance(call, int):
                self._cancel(call)
                continue
            message = self._read(call)
            if not self._child.may_begin():
                continue
            place = len(self._messages) - 1
            begun = self._begin_at(place, message)
            if isinstance(begun, tuple):
                self._ended.append(begun)
                self._wake()
            else:
                self._add(place, begun.value)

    def _note_end(self, task: asyncio.Task[Part]) -> None:
        part = task.result()
        del self._tasks[part[0]]
        self._ended.append(part)
        self._wake()

    def _wake(self) -> None:
        if self._waiting and not self._waiting.done():
            self._waiting.set_result(None)

    async def _next_end(self) -> None:
        assert self._loop is not None
        self._waiting = self._loop.create_future()
        if not self._ended:
            await self._waiting

    def _cancel_all(self) -> None:
        assert self._loop is not None
        for task in self._tasks.values():
            self._loop.call_soon_threadsafe(task.cancel)

    def _cancel(self, place: int) -> None:
        if task := self._tasks.get(place):
            task.cancel()

    async def _await(self, place: int, value: Any) -> Part:
        import asyncio

        message, began, tape = self._messages[place], monotonic(), _Tape()
        _TAPE.set(tape)  # in a context of its own
        try:
            async with asyncio.timeout(message.common.timeout_s or None) as limit:
                answer = _succeeded(await await_call(value), message)
        except BaseException as error:
            answer = self._failed(error)
            if limit.expired():
                answer = TIMED_OUT, "", ""
        return (place, *answer, monotonic() - began, tape.text())


def _interrupt() -> None:
    raise SystemExit(128 + SIGTERM)


def _succeeded(value: object, message: Message) -> tuple[int, str, str]:
    if value is None or not message.common.keeps:
        return 0, "", ""
    text, why_not = returned(value)
    if why_not:
        sys.stderr.write(f"detent: {why_not}\n")
        return RESULT_NOT_KEPT, why_not, ""
    return 0, "", text


# The loop.

_RUNNERS: list[asyncio.Runner] = []


def _runner() -> asyncio.Runner:
    """Made when the first async message comes."""
    import asyncio

    if not _RUNNERS:
        _RUNNERS.append(asyncio.Runner())
    return _RUNNERS[0]


# What they write.


class _Tape:
    """What one message writes; of much the last."""

    __slots__ = ("_length", "_texts")

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._length = 0

    def write(self, text: str) -> int:
        self._texts.append(text)
        self._length += len(text)
        if self._length > 2 * TAIL_MAX:
            self._texts = [self.text()]
            self._length = TAIL_MAX
        return len(text)

    def text(self) -> str:
        return "".join(self._texts)[-TAIL_MAX:] if self._texts else ""


_TAPE: ContextVar[_Tape | None] = ContextVar("detent-tape", default=None)


def _switched(real: Any) -> _Switch:
    """In its place, also for an app that was imported, and set up its logging, before."""
    switch = _Switch(real)
    if logging := sys.modules.get("logging"):
        for handler in logging.root.handlers:
            if getattr(handler, "stream", None) is real:
                handler.stream = switch
    return switch


class _Switch(io.TextIOBase):
    """Stands in for stdout or stderr: what is written goes to the tape of the message that writes."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def write(self, text: str) -> int:
        return int((_TAPE.get() or self._real).write(text))

    def flush(self) -> None:
        self._real.flush()

    def fileno(self) -> int:
        return int(self._real.fileno())

    def writable(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"
