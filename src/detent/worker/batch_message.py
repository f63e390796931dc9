"""One message of a batch: its state, and its encoding for the child process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from json.encoder import encode_basestring_ascii as _quoted
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from detent.model import Call, Claim, End, Outcome
from detent.rules.outcomes import timed_out
from detent.runners.call.child_batch import TIMED_OUT
from detent.runners.call.spec import SUCCEEDED, outcome_of, previous_success
from detent.runners.lifeline import TAIL_MAX
from detent.runners.running import AttemptEnd

if TYPE_CHECKING:
    from detent.worker.batches import Batch

BATCH_CHARS_MAX = 100_000  # characters of arguments in one batch
ERROR_MAX = 2000  # characters of an error that are kept


class SyncFuture:
    """A future that calls its callbacks at once, without a turn of the event loop for each: a worker resolves
    thousands of them a second."""

    __slots__ = ("_callbacks", "_end", "_is_done")

    def __init__(self) -> None:
        self._is_done = False
        self._callbacks: tuple[Callable[[Any], object], ...] = ()
        self._end: AttemptEnd = None

    @classmethod
    def new(cls) -> asyncio.Future[AttemptEnd]:
        return cast("asyncio.Future[AttemptEnd]", cls())

    def done(self) -> bool:
        return self._is_done

    def cancelled(self) -> bool:
        return False

    def result(self) -> AttemptEnd:
        if not self._is_done:
            raise asyncio.InvalidStateError("still running")
        return self._end

    def set_result(self, end: AttemptEnd) -> None:
        self._is_done, self._end = True, end
        callbacks, self._callbacks = self._callbacks, ()
        for callback in callbacks:
            callback(self)

    def add_done_callback(self, callback: Callable[[Any], object], *, context: object = None) -> None:
        if self._is_done:
            callback(self)
        else:
            self._callbacks += (callback,)

    def remove_done_callback(self, callback: Callable[[Any], object]) -> int:
        before = len(self._callbacks)
        self._callbacks = tuple(one for one in self._callbacks if one != callback)
        return before - len(self._callbacks)


class BatchMessage:
    __slots__ = ("batch", "call", "claim", "end", "gone", "stop_order", "timer", "trusted_by")

    def __init__(self, call: Call, claim: Claim, trusted_by: float) -> None:
        self.gone = SyncFuture.new()
        self.call, self.claim, self.trusted_by = call, claim, trusted_by
        self.batch: Batch | None = None  # None until it is sent to a child
        self.end: End | None = None  # as the child reported it
        self.stop_order: tuple[Outcome, float | None] | None = None  # why to stop, and when to kill
        self.timer: asyncio.TimerHandle | None = None

    def extend(self, trusted_by: float) -> None:
        self.trusted_by = max(self.trusted_by, trusted_by)
        if self.batch:
            self.batch.extend_soon()

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None:
        self.stop_order = why, kill_after_s
        if self.batch:
            self.batch.stop(self)
        else:
            self.resolve(None)

    def may_start(self, now: float) -> bool:
        """Return whether the claim is still trusted and wanted.  If it is not, resolve the message."""
        if now >= self.trusted_by:
            self.resolve(None)
        return not self.gone.done()

    def resolve(self, end: AttemptEnd) -> None:
        if not self.gone.done():
            self.gone.set_result(end)


class BatchKind(NamedTuple):
    """What messages of one batch have in common."""

    pool: str
    ttl_s: float
    timeout_s: float  # 0 for async messages: each has its own
    kill_after_s: float
    is_async: bool


def count_fitting(messages: Sequence[BatchMessage]) -> int:
    """Return how many of these messages fit into one batch by the length of their arguments: at least one."""
    length = 0
    for number, message in enumerate(messages):
        length += len(message.call.args)
        if length > BATCH_CHARS_MAX:
            return max(1, number)
    return len(messages)


def encode_requests(messages: Iterable[BatchMessage]) -> str:
    """Encode messages as `child_batch` reads them.  The arguments are JSON already.  Fields that equal those
    of the message before are left out."""
    texts: list[str] = []
    last, due_at, due = None, None, ""
    for message in messages:
        claim, call = message.claim, message.call
        fire, common = claim.fire, "null"
        same = (call.function, id(fire.policy), fire.job, claim.node, claim.previous_success_at)
        if same != last:
            last, common = same, _encode_common(message)
        if fire.due_at is not due_at:
            due_at, due = fire.due_at, repr(fire.due_at.timestamp())
        own = f"{_quoted(fire.key)},{_quoted(fire.run_id)},{due},{claim.attempt},{claim.fence}"
        texts.append(f"[{common},{own},{call.args}]")
    return ",".join(texts)


def _encode_common(message: BatchMessage) -> str:
    claim, policy, job = message.claim, message.claim.fire.policy, message.claim.fire.job
    keeps, timeout_s = not policy.drop_result, policy.timeout_s
    return json.dumps([message.call.function, keeps, timeout_s, job, claim.node, previous_success(claim)])


def decode_end(answer: Sequence[Any], timeout_s: float) -> End:
    """Decode a child's answer for one message.  The child runs user code, so any value is possible."""
    if len(answer) == 2:
        return End(SUCCEEDED, 0, float(answer[1]))
    _, status, error, result, tail, took_s = answer
    is_timeout = int(status) == TIMED_OUT
    outcome = timed_out(timeout_s) if is_timeout else outcome_of(int(status), str(error)[:ERROR_MAX])
    text = str(tail)[-TAIL_MAX:].encode("utf-8", "backslashreplace")
    return End(outcome, int(status), float(took_s), text, result=str(result))
