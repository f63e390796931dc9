"""A message among those that are given to a child together: what the child is told, and what it says."""

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

BATCH_CHARS_MAX = 100_000  # characters of arguments: what is larger goes with few
ERROR_MAX = 2000  # characters


class SyncFuture:
    """A future as far as its owner needs one, for thousands a second: who waits is told at once, and not in a
    turn of the loop of its own."""

    __slots__ = ("_is_done", "_waiting", "_went")

    def __init__(self) -> None:
        self._is_done = False
        self._waiting: tuple[Callable[[Any], object], ...] = ()
        self._went: AttemptEnd = None

    @classmethod
    def new(cls) -> asyncio.Future[AttemptEnd]:
        return cast("asyncio.Future[AttemptEnd]", cls())

    def done(self) -> bool:
        return self._is_done

    def cancelled(self) -> bool:
        return False

    def result(self) -> AttemptEnd:
        if not self._is_done:
            raise asyncio.InvalidStateError("it is under way")
        return self._went

    def set_result(self, went: AttemptEnd) -> None:
        self._is_done, self._went = True, went
        waiting, self._waiting = self._waiting, ()
        for tell in waiting:
            tell(self)

    def add_done_callback(self, tell: Callable[[Any], object], *, context: object = None) -> None:
        if self._is_done:
            tell(self)
        else:
            self._waiting += (tell,)

    def remove_done_callback(self, tell: Callable[[Any], object]) -> int:
        before = len(self._waiting)
        self._waiting = tuple(one for one in self._waiting if one != tell)
        return before - len(self._waiting)


class BatchMessage:
    """One message of a batch."""

    __slots__ = ("batch", "call", "claim", "end", "gone", "stop_order", "timer", "trusted_by")

    def __init__(self, call: Call, claim: Claim, trusted_by: float) -> None:
        self.gone = SyncFuture.new()
        self.call, self.claim, self.trusted_by = call, claim, trusted_by
        self.batch: Batch | None = None  # until it is begun
        self.end: End | None = None  # what its child said
        self.stop_order: tuple[Outcome, float | None] | None = None  # to stop
        self.timer: asyncio.TimerHandle | None = None

    def extend(self, trusted_by: float) -> None:
        self.trusted_by = max(self.trusted_by, trusted_by)
        if self.batch:
            self.batch.extend_soon()

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None:
        self.stop_order = why, kill_after_s
        if self.batch:
            self.batch.stop_soon(self)
        else:
            self.resolve(None)

    def is_wanted(self, now: float) -> bool:
        """May it still be begun?  If not, it is over."""
        if now >= self.trusted_by:
            self.resolve(None)
        return not self.gone.done()

    def resolve(self, went: AttemptEnd) -> None:
        if not self.gone.done():
            self.gone.set_result(went)


class BatchKind(NamedTuple):
    """Only messages of one kind go together."""

    pool: str
    ttl_s: float
    timeout_s: float  # of async ones each has its own
    kill_after_s: float
    is_async: bool


def count_fitting(members: Sequence[BatchMessage]) -> int:
    """How many of them are not too much together."""
    length = 0
    for number, member in enumerate(members):
        length += len(member.call.args)
        if length > BATCH_CHARS_MAX:
            return max(1, number)
    return len(members)


def encode_requests(members: Iterable[BatchMessage]) -> str:
    """Each as `call_batch.Message` has it, its arguments last: they are JSON already.  What it has in common
    with the one before is not said again."""
    texts: list[str] = []
    alike, due_at, due = None, None, ""
    for member in members:
        claim, call = member.claim, member.call
        fire, common = claim.fire, "null"
        if alike != (
            alike := (call.function, id(fire.policy), fire.job, claim.node, claim.previous_success_at)
        ):
            common = _common(member)
        if fire.due_at is not due_at:
            due_at, due = fire.due_at, repr(fire.due_at.timestamp())
        own = f"{_quoted(fire.key)},{_quoted(fire.run_id)},{due},{claim.attempt},{claim.fence}"
        texts.append(f"[{common},{own},{call.args}]")
    return ",".join(texts)


def _common(member: BatchMessage) -> str:
    """As `call_batch.Common` has it."""
    claim, fire = member.claim, member.claim.fire
    keeps, timeout_s = not fire.policy.drop_result, fire.policy.timeout_s
    return json.dumps([member.call.function, keeps, timeout_s, fire.job, claim.node, previous_success(claim)])


def decode_end(said: Sequence[Any], timeout_s: float) -> End:
    """What a child said of one; it may have said anything."""
    if len(said) == 2:
        return End(SUCCEEDED, 0, float(said[1]))
    _, status, error, result, tail, took_s = said
    outcome = _outcome(int(status), str(error)[:ERROR_MAX], timeout_s)
    text = str(tail)[-TAIL_MAX:].encode("utf-8", "backslashreplace")
    return End(outcome, int(status), float(took_s), text, result=str(result))


def _outcome(status: int, error: str, timeout_s: float) -> Outcome:
    if status == TIMED_OUT:
        return timed_out(timeout_s)
    return outcome_of(status, error)
