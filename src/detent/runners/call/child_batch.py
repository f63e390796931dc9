"""A batch of messages that a warm child runs: one after the other or, if they are async, at the same time.

1. Each message is answered when it has ended, before the next one starts: so it is always known at which
   message a child died.  An answer is `[position, status, error, result, tail, took_s]`, or `[position,
   took_s]` for a success with nothing else to report.  Such a success may wait a moment for others, unless
   messages run at the same time: the permit that is taken for the next message proves it.
2. What a message prints or logs is its tail.  Output of C code or of its processes belongs to the whole
   batch.
3. Async messages share one event loop, which stays from batch to batch, with whatever the app keeps on it.
   Further messages may join them while they run.
4. The environment and the streams are restored after the last message.
5. A permit is taken before each message.  If none is left, the remaining messages were recalled.
"""

from __future__ import annotations

import io
import json
import sys
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, NamedTuple

from detent.clock import monotonic
from detent.runners.call.child import interrupt, set_up_logging
from detent.runners.call.django_setup import await_call, run_call
from detent.runners.call.function import CallEnd, bind, end_of_raise, end_of_return, find, is_async
from detent.runners.call.trace import within

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator
    from typing import Any

    from detent.runners.call.child import Child

    MessageEnd = tuple[int, int, str, str, float, str]  # position, status, error, result, took_s, tail

ANSWERED = "answered"  # the result of the batch: a message without an answer was not started
TIMED_OUT = -1  # instead of a status: an async message took too long
TAIL_MAX = 65_536  # characters
FUNCTIONS_MAX = 3  # how many are named if a batch left threads
WAIT_S = 0.005  # how long a success may wait for others


class Message(NamedTuple):
    function: str
    keeps: bool  # whether the result is kept
    timeout_s: float  # 0: none
    job: str
    key: str
    run_id: str
    due: float
    attempt: int
    fence: int
    node: str
    previous_success: float | None
    trace: str  # W3C `traceparent`, or ""
    args: Any

    def fire(self) -> Any:
        from datetime import UTC, datetime

        from detent.runners.call.fire import Fire

        app, _, job = self.job.partition(".")
        due_at = datetime.fromtimestamp(self.due, UTC)
        before = self.previous_success
        success_at = None if before is None else datetime.fromtimestamp(before, UTC)
        claim = self.attempt, self.fence, self.node, success_at
        return Fire(self.key, app, job, self.run_id, due_at, *claim)


class _ToAwait:
    """An awaitable that runs together with others."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Answers:
    """Collects answers, so that warden and node are not woken for each one."""

    def __init__(self, send: Callable[[bytes], object], *, may_wait: bool) -> None:
        self._send, self._may_wait = send, may_wait
        self._texts: list[str] = []
        self._send_by = 0.0

    def add(self, end: MessageEnd) -> None:
        position, status, error, result, took_s, tail = end
        is_plain = status == 0 and not (error or result or tail)
        full = position, status, error, result, tail, took_s
        self._texts.append(f"[{position},{took_s:.6f}]" if is_plain else json.dumps(full))
        now = monotonic()
        if len(self._texts) == 1:
            self._send_by = now + WAIT_S
        if not is_plain or not self._may_wait or now >= self._send_by:
            self._send(self.take())

    def take(self) -> bytes:
        """Return a line with the answers that were not sent."""
        texts, self._texts = self._texts, []
        return f"[{','.join(texts)}]\n".encode() if texts else b""


class Batch:
    def __init__(self, child: Child, calls: list[list[Any]], *, at_once: bool = True) -> None:
        self._child, self._at_once = child, at_once
        self._messages = [Message._make(call) for call in calls]
        self._found: dict[str, Callable[..., Any]] = {}
        self.broken = ""  # the function whose import failed: it may have left anything behind
        self._loop: asyncio.AbstractEventLoop | None = None  # of async messages
        self._tasks: dict[int, asyncio.Task[MessageEnd]] = {}  # by position
        self._ended: list[MessageEnd] = []  # not yet answered
        self._began = 0.0  # when the newest message started
        self._waiting: asyncio.Future[None] | None = None  # for a message to end

    @property
    def functions(self) -> list[str]:
        return [*self._found][:FUNCTIONS_MAX]

    def run(self) -> Iterator[MessageEnd]:
        """Run all messages, and yield how each one ended."""
        sys.stdout, sys.stderr = _redirected(sys.stdout), _redirected(sys.stderr)
        later: list[tuple[int, Any]] = []
        for position, message in enumerate(self._messages):
            if not self._child.take_permit():
                break
            started = self._start_at(position, message)
            if isinstance(started, tuple):
                yield started
            else:
                later.append((position, started.value))
        if later:
            yield from self._run_at_once(later)

    def _start_at(self, position: int, message: Message) -> MessageEnd | _ToAwait:
        """Run the message, or return its awaitable if it runs together with others."""
        tail, self._began = _Tail(), monotonic()
        token = _TAIL.set(tail)
        try:
            value = self._start(message)
            if isinstance(value, _ToAwait):
                return value
            end = _returned(value, message)
        except BaseException as error:
            end = _raised(error)
        finally:
            _TAIL.reset(token)
        return (position, *end[:3], monotonic() - self._began, tail.text())

    def _start(self, message: Message) -> Any:
        """Call the function.  The awaitable of a function that is not declared async is awaited at once, as
        a later message may end this process."""
        name = message.function
        with self._child.interrupted_by(interrupt):
            function = self._found.get(name) or self._find(name)
            args, named = bind(function, message.args, message.fire)
            if self._at_once and is_async(function):
                return _ToAwait(run_call(function, args, named))
            with within(message.trace, name, exports=True):
                value = run_call(function, args, named)
                if value is None or not hasattr(value, "__await__"):
                    return value
                return _runner().run(await_call(value), context=copy_context())

    def _find(self, name: str) -> Callable[..., Any]:
        try:
            function = self._found[name] = find(name, self._note_import)
        except BaseException:
            self.broken = name
            raise
        set_up_logging()
        return function

    def _note_import(self, is_under_way: bool) -> None:
        """The time of an import is no part of the time of the message."""
        self._child.note_import(is_under_way)
        self._began = monotonic()

    # Async messages.

    def _run_at_once(self, later: list[tuple[int, Any]]) -> Iterator[MessageEnd]:
        """Run the loop until a message has ended, again and again: in between answers are sent, and further
        messages arrive."""
        runner = _runner()
        self._loop = loop = runner.get_loop()
        for position, value in later:
            self._add(position, value)
        self._take(self._child.receive_more(is_readable=False))
        loop.add_reader(self._child.wire, lambda: self._take(self._child.receive_more(is_readable=True)))
        try:
            with self._child.interrupted_by(self._cancel_all):
                while self._tasks or self._ended:
                    if not self._ended:
                        runner.run(self._next_end())
                    ended, self._ended = self._ended, []
                    yield from ended
        finally:
            loop.remove_reader(self._child.wire)

    def _add(self, position: int, value: Any) -> None:
        assert self._loop is not None
        self._tasks[position] = task = self._loop.create_task(self._await(position, value))
        task.add_done_callback(self._note_end)

    def _take(self, calls: list[Any] | None) -> None:
        """Start further messages.  A number is the position of a message that is cancelled."""
        if calls is None and self._loop:
            self._loop.remove_reader(self._child.wire)
        for call in calls or ():
            if isinstance(call, int):
                self._cancel(call)
                continue
            message = Message._make(call)
            self._messages.append(message)
            if not self._child.take_permit():
                continue
            position = len(self._messages) - 1
            started = self._start_at(position, message)
            if isinstance(started, tuple):
                self._ended.append(started)
                self._wake()
            else:
                self._add(position, started.value)

    def _note_end(self, task: asyncio.Task[MessageEnd]) -> None:
        end = task.result()
        del self._tasks[end[0]]
        self._ended.append(end)
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

    def _cancel(self, position: int) -> None:
        if task := self._tasks.get(position):
            task.cancel()

    async def _await(self, position: int, value: Any) -> MessageEnd:
        import asyncio

        message, began, tail = self._messages[position], monotonic(), _Tail()
        _TAIL.set(tail)  # in the context of this asyncio task
        try:
            async with asyncio.timeout(message.timeout_s or None) as limit:
                with within(message.trace, message.function):
                    end = _returned(await await_call(value), message)
        except BaseException as error:
            end = _raised(error)
            if limit.expired():
                end = CallEnd(TIMED_OUT)
        return (position, *end[:3], monotonic() - began, tail.text())


def _returned(value: object, message: Message) -> CallEnd:
    if value is None or not message.keeps:
        return CallEnd()
    end = end_of_return(value, keeps=True)
    sys.stderr.write(end.output)
    return end


def _raised(error: BaseException) -> CallEnd:
    end = end_of_raise(error)
    sys.stderr.write(end.output)
    return end


_RUNNERS: list[asyncio.Runner] = []


def _runner() -> asyncio.Runner:
    import asyncio

    if not _RUNNERS:
        _RUNNERS.append(asyncio.Runner())
    return _RUNNERS[0]


# The output of messages.


class _Tail:
    """The end of the output of one message."""

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


_TAIL: ContextVar[_Tail | None] = ContextVar("detent-tail", default=None)


def _redirected(real: Any) -> _Redirected:
    """Replace the stream, also in logging that an app set up before."""
    redirected = _Redirected(real)
    if logging := sys.modules.get("logging"):
        for handler in logging.root.handlers:
            if getattr(handler, "stream", None) is real:
                handler.stream = redirected
    return redirected


class _Redirected(io.TextIOBase):
    """Replaces stdout or stderr: text goes to the tail of the message that writes it."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def write(self, text: str) -> int:
        return int((_TAIL.get() or self._real).write(text))

    def flush(self) -> None:
        self._real.flush()

    def fileno(self) -> int:
        return int(self._real.fileno())

    def writable(self) -> bool:
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"
