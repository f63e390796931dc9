"""Runs messages in batches in warm child processes, because one order to a child costs more than a short
message.

1. A batch has as many messages as the child finishes in a moment, judged by earlier runs (`batch_size`).
2. A success counts as soon as the child reports it.  Any other end counts when all processes of the batch are
   gone, so that a retry never meets them.  (It is not known which async message left a process.)
3. A child runs its messages in order, and records each before it starts it.  If the child dies, the last
   recorded message was running, those before it succeeded or have an answer, and the rest are returned.  If
   the record is lost because the warden died too, all messages without an answer are lost.
4. The batch is trusted only as long as each of its messages without an answer.
5. If the child reports nothing for `STALLED_S`, or the node drains, messages that have not started are
   recalled and returned to the queue, for other workers.
6. Async messages run at the same time, and later ones join them.  If other batches wait for a child, the
   child takes no more messages, and is free when the last one ends.  The child enforces their timeouts.  If a
   message blocks the child, the node kills it together with its neighbours.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Sequence
from typing import Any

from detent.clock import boottime
from detent.model import Call, Claim, End, Outcome
from detent.rules.outcomes import timed_out
from detent.runners.call.child_batch import ANSWERED
from detent.runners.call.spec import SUCCEEDED, TAGS, CallSpec, PoolSpec
from detent.runners.running import AttemptEnd
from detent.warden.client import TaskHandle, WardenClient
from detent.warden.program.task import IMPORT_S
from detent.worker.batch_message import (
    BatchKind,
    BatchMessage,
    count_fitting,
    decode_end,
    encode_requests,
)
from detent.worker.batch_size import BATCH_MAX, STALLED_S, BatchSize

BLOCKED = Outcome("lost", "another message blocked its process", "claim-lost")
UNREADABLE = Outcome("lost", "what its process said of it cannot be read", "internal")
JOIN_MAX = 1000  # async messages in one batch; then a new child starts, which frees leaked memory


class Batches:
    """Collects messages into batches, and keeps track of the batches that run."""

    def __init__(self, warden: WardenClient, at_once: int, processes: int) -> None:
        self.warden, self.batch_size = warden, BatchSize(at_once)
        self._at_once, self._processes = at_once, processes
        self._waiting: dict[BatchKind, list[BatchMessage]] = {}
        self._is_scheduled = False  # `_start_batches` runs in the next turn of the loop
        self._was_added = False  # a message was added since it ran last
        self._running: set[Batch] = set()
        self._pools: dict[str, PoolSpec] = {}
        self._numbers = itertools.count(1)
        self._is_watching = False

    def add(
        self, call: Call, claim: Claim, pool: PoolSpec, trusted_by: float, trace: str = ""
    ) -> BatchMessage:
        """Add a message.  It waits for others until a turn of the event loop adds none."""
        message = BatchMessage(call, claim, trusted_by, trace)
        self._pools[pool.name] = pool
        timeout_s = 0.0 if call.is_async else claim.fire.policy.timeout_s
        kind = BatchKind(pool.name, claim.ttl_s, timeout_s, call.kill_after_s, call.is_async)
        self.add_again(kind, message)
        return message

    def add_again(self, kind: BatchKind, message: BatchMessage) -> None:
        self._waiting.setdefault(kind, []).append(message)
        self._was_added = True
        self.start_soon()

    def start_soon(self) -> None:
        if self._waiting and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._start_batches)

    def _start_batches(self) -> None:
        self._is_scheduled, is_more, self._was_added = False, self._was_added, False
        waiting, self._waiting, now = self._waiting, {}, boottime()
        for kind, added in waiting.items():
            messages = [message for message in added if message.may_start(now)]
            if kind.is_async:
                self._join(kind, messages)
            else:
                self._start_full(kind, messages, is_more)
            if messages:
                self._waiting[kind] = messages
        if is_more:
            self.start_soon()

    def _start_full(self, kind: BatchKind, messages: list[BatchMessage], is_more: bool) -> None:
        """Start batches, and remove their messages.  While more messages come, start only full batches."""
        while messages:
            calls = {message.call.function: message.call for message in messages[:BATCH_MAX]}
            most = min(map(self.batch_size.size, calls.values()))
            size = count_fitting(messages[:most])
            if is_more and size == len(messages) < most:
                return
            Batch(self, kind, messages[:size])
            del messages[:size]

    def _join(self, kind: BatchKind, messages: list[BatchMessage]) -> None:
        """Give async messages to the child with the most room, or to a new child while there are few."""
        same = [batch for batch in self._running if batch.kind == kind]
        few = min(self._processes, os.cpu_count() or 1)
        while messages:
            open_batches = [batch for batch in same if batch.room(self._at_once)]
            if len(same) < (self._processes if not open_batches else few):
                size = count_fitting(messages[: self._at_once])
                same.append(Batch(self, kind, messages[:size]))
            elif open_batches and not self._has_batch_waiting_for_child():
                emptiest = max(open_batches, key=lambda batch: batch.room(self._at_once))
                size = count_fitting(messages[: emptiest.room(self._at_once)])
                emptiest.join(messages[:size])
            else:
                return
            del messages[:size]

    def _has_batch_waiting_for_child(self) -> bool:
        return any(not batch.kind.is_async and not batch.is_started for batch in self._running)

    def recall_all(self) -> None:
        """Return all messages that have not started."""
        waiting, self._waiting = self._waiting, {}
        for message in itertools.chain.from_iterable(waiting.values()):
            message.resolve(None)
        for batch in self._running:
            batch.recall()

    def _watch(self) -> None:
        """Recall the messages behind a stalled one, for as long as batches run."""
        loop = asyncio.get_running_loop()
        for batch in self._running:
            batch.recall_if_stalled(loop.time() - STALLED_S)
        self._is_watching = bool(self._running)
        if self._is_watching:
            loop.call_later(STALLED_S / 4, self._watch)

    def forget(self, batch: Batch) -> None:
        self._running.discard(batch)
        self.start_soon()

    def start(self, batch: Batch, messages: Sequence[BatchMessage]) -> TaskHandle:
        """Order a child for the batch from the warden."""
        kind, first = batch.kind, messages[0].claim
        env = dict(zip(TAGS, (first.fire.run_id, str(first.attempt)), strict=True))
        id = f"{first.fire.run_id}.{first.fence}.{next(self._numbers)}"
        spec = CallSpec(
            id=id,
            pool=self._pools[kind.pool],
            request=f'{{"id": {json.dumps(id)}, "env": {json.dumps(env)}, '
            f'"at_once": {json.dumps(kind.is_async)}, "calls": [{encode_requests(messages)}]}}',
            tags=tuple(f"{name}={value}" for name, value in env.items()),
            ttl_s=kind.ttl_s,
            timeout_s=kind.timeout_s,
            kill_after_s=kind.kill_after_s,
            messages=len(messages),
        )
        self._running.add(batch)
        if not self._is_watching:
            self._watch()
        return self.warden.begin(spec, min(message.trusted_by for message in messages), batch.on_child)


class Batch:
    """Messages in one child, from the order to the warden until all processes of the child's work are
    gone."""

    def __init__(self, batches: Batches, kind: BatchKind, messages: Sequence[BatchMessage]) -> None:
        self.kind, self.is_started = kind, False
        self._batches, self._is_alone = batches, len(messages) == 1
        self._open = dict(enumerate(messages))  # messages without an answer, by their numbers
        self._numbers = itertools.count(len(messages))
        self._ended: list[BatchMessage] = []  # answers that count when all processes are gone
        self._is_closed = False  # takes no more messages
        self._is_blocked = self._is_stalled = self._is_extending = False
        self._is_counted = False  # the warden said how many messages had started
        self._heard_at = asyncio.get_running_loop().time()
        for message in messages:
            message.batch = self
        self._task = batches.start(self, messages)
        self._task.on_part = self._on_part
        self._task.gone.add_done_callback(self._on_gone)

    # Orders.

    def on_child(self, import_s: float = 0.0) -> None:
        """The batch has a child.  The timeouts of async messages start, after the child's imports."""
        self.is_started = True
        if self.kind.is_async:
            for number, message in self._open.items():
                timeout_s = message.claim.fire.policy.timeout_s
                self._set_timer(number, message, timeout_s and timeout_s + import_s)
        self._batches.start_soon()

    def room(self, at_once: int) -> int:
        """Return how many more async messages the child can run now."""
        return max(0, at_once - len(self._open)) if self.is_started and not self._is_closed else 0

    def join(self, messages: Sequence[BatchMessage]) -> None:
        """Add async messages to a running batch."""
        for message in messages:
            number, message.batch = next(self._numbers), self
            self._open[number] = message
            self._is_closed |= number >= JOIN_MAX
            self._set_timer(number, message, message.claim.fire.policy.timeout_s)
        self._task.trusted_by = min(message.trusted_by for message in self._open.values())
        self._batches.warden.extend(self._task)
        self._send(encode_requests(messages), len(messages))

    def _send(self, items: str, messages: int) -> None:
        """Send more messages to the child, or the numbers of messages to cancel."""
        request = f'{{"id": {json.dumps(self._task.id)}, "more": [{items}]}}'
        self._batches.warden.protocol.add_messages(self._task.id, request, messages)

    def extend_soon(self) -> None:
        """Extend the trust in the batch, once for all messages that one turn of the loop renews."""
        if not self._is_extending:
            self._is_extending = True
            asyncio.get_running_loop().call_soon(self._extend)

    def _extend(self) -> None:
        self._is_extending = False
        if self._open:
            self._task.extend(min(message.trusted_by for message in self._open.values()))

    def stop(self, message: BatchMessage) -> None:
        """Stop a message at once if it runs or is no longer ours.  Otherwise stop it when it would start."""
        if message.stop_order is None or message.end is not None:
            return
        why, kill_after_s = message.stop_order
        if self.kind.is_async and self.is_started and kill_after_s is None:
            number = next(number for number, one in self._open.items() if one is message)
            self._send(str(number), 0)
            self._set_timer(number, message, 0.001)
        elif why.kind == "lost" or self.kind.is_async or message is self._current():
            self._task.stop(why, kill_after_s)

    def _current(self) -> BatchMessage | None:
        """Return the message that runs now, in a batch that runs its messages in order."""
        return next(iter(self._open.values()), None)

    def _set_timer(self, number: int, message: BatchMessage, timeout_s: float) -> None:
        """Kill the child if it does not enforce a timeout itself.  0: no timeout."""
        if message.timer:
            message.timer.cancel()
        if timeout_s:
            limit_s = timeout_s + self.kind.kill_after_s
            message.timer = asyncio.get_running_loop().call_later(limit_s, self._kill_blocked, number)

    def _kill_blocked(self, number: int) -> None:
        if message := self._open.get(number):
            timeout_s = message.claim.fire.policy.timeout_s
            message.stop_order = message.stop_order or (timed_out(timeout_s), None)
            self._is_blocked = self._is_closed = True
            self._task.stop(BLOCKED, 0.0)

    def recall_if_stalled(self, heard_by: float) -> None:
        is_stalled = len(self._open) > 1 and self._heard_at < heard_by
        if is_stalled and not self._is_closed and not self.kind.is_async:
            self._is_stalled = True
            self.recall()

    def recall(self) -> None:
        """Take back the messages that have not started."""
        self._is_closed = True
        self._batches.warden.protocol.recall(self._task.id)

    # Answers.

    def _on_part(self, part: str | int) -> None:
        """Handle what the child reports: answers as text; as an int, how many messages were recalled; as a
        bool, whether it imports the function now or has done so."""
        self._heard_at = asyncio.get_running_loop().time()
        if isinstance(part, bool):
            self.on_child(IMPORT_S if part else 0.0)
        elif isinstance(part, int):
            self._on_recalled(part)
        else:
            try:
                self._on_answers(json.loads(part))
            except (ValueError, TypeError, LookupError, RecursionError):  # user code can write anything
                self._task.stop(UNREADABLE, 0.0)
        if not self.kind.is_async and (current := self._current()) and current.stop_order:
            self.stop(current)

    def _on_answers(self, answers: list[list[Any]]) -> None:
        for answer in answers:
            if message := self._open.get(answer[0]):
                end = decode_end(answer, message.claim.fire.policy.timeout_s)
                del self._open[answer[0]]
                self._batches.batch_size.learn(message.call.function, end.took_s)
                self._on_end(message, end)

    def _on_end(self, message: BatchMessage, end: End) -> None:
        if self.kind.is_async:
            message.end = end._replace(outcome=message.stop_order[0]) if message.stop_order else end
            self._set_timer(0, message, 0.0)
            self._batches.start_soon()
            message.resolve(message.end)
            return
        message.end = end
        if end.outcome.kind == "succeeded" and not self._is_alone:
            message.resolve(end)
        else:
            self._ended.append(message)

    def _on_recalled(self, count: int) -> None:
        """The last `count` messages have not started.  The one before them runs.  All others have ended:
        those without an answer succeeded."""
        numbers = [*self._open]
        for number in numbers[len(numbers) - count :] if count else ():
            self._open.pop(number).resolve(None)
        self._is_counted, is_stalled, self._is_stalled = True, self._is_stalled, False
        if is_stalled and count < len(numbers):
            self._batches.batch_size.learn(self._open[numbers[-count - 1]].call.function, STALLED_S)
        if not self.kind.is_async:
            for number in numbers[: max(0, len(numbers) - count - 1)]:
                self._on_end(self._open.pop(number), End(SUCCEEDED, 0))

    def _on_gone(self, gone: asyncio.Future[AttemptEnd]) -> None:
        """All processes of the batch are gone: settle the messages that are left."""
        self._batches.forget(self)
        batch_end = gone.result()
        for message in self._ended:
            assert message.end is not None
            message.resolve(self._with_leftovers(message.end, batch_end))
        is_answered = isinstance(batch_end, End) and batch_end.result == ANSWERED
        is_first_known = self._is_counted or not self.is_started
        for position, message in enumerate([*self._open.values()]):
            self._set_timer(0, message, 0.0)
            if is_answered and self.kind.is_async and not self._is_closed:  # it joined too late
                message.batch = None
                self._batches.add_again(self.kind, message)
            elif is_answered or (position and is_first_known and not self.kind.is_async):
                message.resolve(None)
            else:
                message.resolve(self._interrupted(message, batch_end))

    def _with_leftovers(self, end: End, batch_end: AttemptEnd) -> End:
        """Add to the end of a lone message what its other processes wrote, and the time until they were
        gone."""
        if not self._is_alone or not isinstance(batch_end, End):
            return end
        waited_s = asyncio.get_running_loop().time() - self._heard_at
        return end._replace(tail=batch_end.tail + end.tail, took_s=end.took_s + waited_s)

    def _interrupted(self, message: BatchMessage, batch_end: AttemptEnd) -> AttemptEnd:
        """Return the end of a message that was running when its child died or was killed."""
        if not isinstance(batch_end, End):
            return None
        if message.stop_order and batch_end.outcome.kind != "timed-out":
            return batch_end._replace(outcome=message.stop_order[0])
        if self._is_blocked:
            return batch_end._replace(outcome=BLOCKED)
        if batch_end.outcome.kind == "succeeded":
            return batch_end._replace(outcome=UNREADABLE)
        return batch_end
