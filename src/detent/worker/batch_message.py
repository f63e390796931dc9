"""One message of a batch: its state, and its encoding for the child process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

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


class BatchMessage:
    __slots__ = ("batch", "call", "claim", "end", "gone", "stop_order", "timer", "trace", "trusted_by")

    def __init__(self, call: Call, claim: Claim, trusted_by: float, trace: str = "") -> None:
        self.gone: asyncio.Future[AttemptEnd] = asyncio.get_running_loop().create_future()
        self.call, self.claim, self.trusted_by, self.trace = call, claim, trusted_by, trace
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
    """Encode messages as `child_batch.Message` reads them.  The arguments are JSON already."""
    return ",".join(f"{json.dumps(_fields(message))[:-1]},{message.call.args}]" for message in messages)


def _fields(message: BatchMessage) -> list[Any]:
    """Return the fields of `child_batch.Message` without the arguments, which are the last one."""
    claim, fire, policy = message.claim, message.claim.fire, message.claim.fire.policy
    call = [message.call.function, not policy.drop_result, policy.timeout_s]
    about = [fire.job, fire.key, fire.run_id, fire.due_at.timestamp(), claim.attempt, claim.fence, claim.node]
    return [*call, *about, previous_success(claim), message.trace]


def decode_end(answer: Sequence[Any], timeout_s: float) -> End:
    """Decode a child's answer for one message.  The child runs user code, so any value is possible."""
    if len(answer) == 2:
        return End(SUCCEEDED, 0, float(answer[1]))
    _, status, error, result, tail, took_s = answer
    is_timeout = int(status) == TIMED_OUT
    outcome = timed_out(timeout_s) if is_timeout else outcome_of(int(status), str(error)[:ERROR_MAX])
    text = str(tail)[-TAIL_MAX:].encode("utf-8", "backslashreplace")
    return End(outcome, int(status), float(took_s), text, result=str(result))
