"""Messages that are given to a warm child together: to tell a child of one costs more than many take to run.

1. As many go together as are done in a moment, by what their function took before (`pacing`): one that may
   be long keeps nobody waiting.
2. A success counts when its child says so.  All else counts when the batch is gone, with every process that
   it left: a retry must not meet them.  (What an async one left cannot be told from what others use.)
3. A child carries out its messages in order, and takes a turn before each.  So where it dies, the last that
   it had begun was under way; those before it have an answer, or nothing to tell but success; the rest are
   given back.  Where the turns are not known, as the warden died too, all without an answer are lost.
4. The batch is trusted no longer than any of its messages that has no answer yet.
5. Where nothing was heard of it for `SLOW_S`, or its node ends, those that are not begun are recalled and
   given back: somebody else may have time for them.
6. Async ones run at once, and those that come later join them, unless others wait for a child: then that
   child takes no more, and is free when the last has ended.  Their child sees to their time; one that blocks
   it is ended from here, with its neighbours.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from detent.clock import boottime
from detent.model import Call, Claim, End, Outcome
from detent.rules.outcomes import timed_out
from detent.runners.call.child_batch import ANSWERED
from detent.runners.call.spec import SUCCEEDED, TAGS, CallSpec, PoolSpec
from detent.runners.running import AttemptEnd
from detent.warden.client import TaskHandle
from detent.warden.program.task import IMPORT_S
from detent.worker.batch_message import BatchKind, BatchMessage, count_fitting, decode_end, encode_requests
from detent.worker.batch_size import BATCH_MAX, STALLED_S, BatchSize

BLOCKED = Outcome("lost", "another message blocked its process", "claim-lost")
UNREADABLE = Outcome("lost", "what its process said of it cannot be read", "internal")
JOIN_MAX = 1000  # async ones in one batch, in its life: what leaks in a child goes with it


class Warden(Protocol):
    """Who starts batches."""

    def begin(self, spec: CallSpec, trusted_by: float, begun: Callable[[], None]) -> TaskHandle: ...

    def extend(self, work: TaskHandle) -> None: ...

    def recall(self, id: str) -> None: ...

    def add_messages(self, id: str, request: str, messages: int) -> None: ...


class Batches:
    def __init__(self, warden: Warden, at_once: int, processes: int) -> None:
        self.warden, self.batch_size = warden, BatchSize(at_once)
        self._at_once, self._processes = at_once, processes
        self._waiting: dict[
            BatchKind, list[BatchMessage]
        ] = {}  # to be begun when no more come or, async, with room
        self._is_beginning = self._has_more = False
        self._begun: set[Batch] = set()
        self._pools: dict[str, PoolSpec] = {}
        self._numbers = itertools.count(1)
        self._is_looking = False

    def add(self, call: Call, claim: Claim, pool: PoolSpec, trusted_by: float) -> BatchMessage:
        """It begins with those that are added before the loop has had a turn without any."""
        member = BatchMessage(call, claim, trusted_by)
        self._pools[pool.name] = pool
        timeout_s = 0.0 if call.is_async else claim.fire.policy.timeout_s
        kind = BatchKind(pool.name, claim.ttl_s, timeout_s, call.kill_after_s, call.is_async)
        self.add_again(kind, member)
        return member

    def add_again(self, kind: BatchKind, member: BatchMessage) -> None:
        waiting = self._waiting.get(kind)
        if waiting is None:
            self._waiting[kind] = [member]
        else:
            waiting.append(member)
        self._has_more = True
        if not self._is_beginning:
            self.begin_soon()

    def begin_soon(self) -> None:
        if self._waiting and not self._is_beginning:
            self._is_beginning = True
            asyncio.get_running_loop().call_soon(self._begin_all)

    def _begin_all(self) -> None:
        self._is_beginning, is_more, self._has_more = False, self._has_more, False
        waiting, self._waiting, now = self._waiting, {}, boottime()
        for kind, those in waiting.items():
            members = [member for member in those if member.is_wanted(now)]
            if kind.is_async:
                self._join(kind, members)
            else:
                self._give_away(kind, members, is_more)
            if members:
                self._waiting[kind] = members  # until others come or, async, one of those that run has ended
        if is_more:
            self.begin_soon()

    def _give_away(self, kind: BatchKind, members: list[BatchMessage], is_more: bool) -> None:
        """While more come, only as many as go together."""
        while members:
            most = min(
                map(
                    self.batch_size.size,
                    {one.call.function: one.call for one in members[:BATCH_MAX]}.values(),
                )
            )
            size = count_fitting(members[:most])
            if is_more and size == len(members) < most:
                return
            Batch(self, kind, members[:size])
            del members[:size]

    def _join(self, kind: BatchKind, members: list[BatchMessage]) -> None:
        """Where there is room, in the child that has least; in a fresh one, while there are few."""
        beside = [batch for batch in self._begun if batch.kind == kind]
        few = min(self._processes, os.cpu_count() or 1)
        while members:
            rooms = [batch for batch in beside if batch.room(self._at_once)]
            if len(beside) < (self._processes if not rooms else few):
                size = count_fitting(members[: self._at_once])
                beside.append(Batch(self, kind, members[:size]))
            elif rooms and not self._has_others_waiting():
                least = max(rooms, key=lambda batch: batch.room(self._at_once))
                size = count_fitting(members[: least.room(self._at_once)])
                least.join(members[:size])
            else:
                return
            del members[:size]

    def _has_others_waiting(self) -> bool:
        return any(not batch.kind.is_async and not batch.is_begun for batch in self._begun)

    def recall_all(self) -> None:
        """Whatever is not begun is given back."""
        waiting, self._waiting = self._waiting, {}
        for member in itertools.chain.from_iterable(waiting.values()):
            member.resolve(None)
        for batch in self._begun:
            batch.recall()

    def _look(self) -> None:
        """Is one of them slow?"""
        loop = asyncio.get_running_loop()
        for batch in self._begun:
            batch.check(loop.time() - STALLED_S)
        self._is_looking = bool(self._begun)
        if self._is_looking:
            loop.call_later(STALLED_S / 4, self._look)

    def forget(self, batch: Batch) -> None:
        self._begun.discard(batch)
        self.begin_soon()

    def begin(self, kind: BatchKind, batch: Batch, members: Sequence[BatchMessage]) -> TaskHandle:
        first = members[0].claim
        env = dict(zip(TAGS, (first.fire.run_id, str(first.attempt)), strict=True))
        id = f"{first.fire.run_id}.{first.fence}.{next(self._numbers)}"
        spec = CallSpec(
            id=id,
            pool=self._pools[kind.pool],
            request=f'{{"id": {json.dumps(id)}, "env": {json.dumps(env)}, '
            f'"at_once": {json.dumps(kind.is_async)}, "calls": [{encode_requests(members)}]}}',
            tags=tuple(f"{name}={value}" for name, value in env.items()),
            ttl_s=kind.ttl_s,
            timeout_s=kind.timeout_s,
            kill_after_s=kind.kill_after_s,
            messages=len(members),
        )
        self._begun.add(batch)
        if not self._is_looking:
            self._look()
        return self.warden.begin(spec, min(member.trusted_by for member in members), batch.begin)


class Batch:
    def __init__(self, batches: Batches, kind: BatchKind, members: Sequence[BatchMessage]) -> None:
        self.kind, self.is_begun = kind, False
        self._batches, self._is_alone = batches, len(members) == 1
        self._open = dict(enumerate(members))  # those without an answer, by their places
        self._ended: list[BatchMessage] = []  # those whose answer counts when all are gone
        self._places = itertools.count(len(members))
        self._is_extending = self._is_closed = self._is_blocked = self._is_counted = self._is_slow = False
        self._heard_at = asyncio.get_running_loop().time()
        for member in members:
            member.batch = self
        self._work = batches.begin(kind, self, members)
        self._work.on_part = self._hear
        self._work.gone.add_done_callback(self._end)

    # What it is told.

    def begin(self, import_s: float = 0.0) -> None:
        """It has a child, which first imports what it is to call, or has done so."""
        self.is_begun = True
        if self.kind.is_async:
            for place, member in self._open.items():
                timeout_s = member.claim.fire.policy.timeout_s
                self._limit(place, member, timeout_s and timeout_s + import_s)
        self._batches.begin_soon()

    def room(self, at_once: int) -> int:
        """For how many more."""
        is_open = self.is_begun and not self._is_closed
        return max(0, at_once - len(self._open)) if is_open else 0

    def join(self, members: Sequence[BatchMessage]) -> None:
        """Further async ones, which are trusted no longer than the others are."""
        for member in members:
            place, member.batch = next(self._places), self
            self._open[place] = member
            self._is_closed |= place >= JOIN_MAX
            self._limit(place, member, member.claim.fire.policy.timeout_s)
        self._work.trusted_by = min(member.trusted_by for member in self._open.values())
        self._batches.warden.extend(self._work)
        self._say(encode_requests(members), len(members))

    def _say(self, more: str, messages: int) -> None:
        """Messages, or the places of those that are to be cancelled."""
        request = f'{{"id": {json.dumps(self._work.id)}, "more": [{more}]}}'
        self._batches.warden.add_messages(self._work.id, request, messages)

    def extend_soon(self) -> None:
        """Once for all that are extended in one turn of the loop."""
        if not self._is_extending:
            self._is_extending = True
            asyncio.get_running_loop().call_soon(self._extend)

    def _extend(self) -> None:
        self._is_extending = False
        if self._open:
            self._work.extend(min(member.trusted_by for member in self._open.values()))

    def stop_soon(self, member: BatchMessage) -> None:
        """At once, if it is under way or somebody else may have it; else when it would begin."""
        if member.stop_order is None or member.end is not None:
            return
        why, kill_after_s = member.stop_order
        if self.kind.is_async and self.is_begun and kill_after_s is None:
            place = next(place for place, one in self._open.items() if one is member)
            self._say(str(place), 0)
            self._limit(place, member, 0.001)
        elif why.kind == "lost" or self.kind.is_async or member is self._first():
            self._work.stop(why, kill_after_s)

    def _first(self) -> BatchMessage | None:
        """Of those that run one after the other, the one under way."""
        return next(iter(self._open.values()), None)

    def _limit(self, place: int, member: BatchMessage, timeout_s: float) -> None:
        """Its child sees to it; where it cannot, we do."""
        if member.timer:
            member.timer.cancel()
        if timeout_s:
            limit_s = timeout_s + self.kind.kill_after_s
            member.timer = asyncio.get_running_loop().call_later(limit_s, self._end_blocked, place)

    def _end_blocked(self, place: int) -> None:
        if member := self._open.get(place):
            timeout_s = member.claim.fire.policy.timeout_s
            member.stop_order = member.stop_order or (timed_out(timeout_s), None)
            self._is_blocked = self._is_closed = True
            self._work.stop(BLOCKED, 0.0)

    def check(self, heard_by: float) -> None:
        """It is slow, if it was not heard of since then."""
        first = self._first()
        is_slow = first and len(self._open) > 1 and self._heard_at < heard_by
        if first and is_slow and not self._is_closed and not self.kind.is_async:
            self._is_slow = True
            self.recall()

    def recall(self) -> None:
        self._is_closed = True
        self._batches.warden.recall(self._work.id)

    # What becomes of it.

    def _hear(self, part: str | int) -> None:
        """Its answers or, with a number, so many of the last were not begun, and will not be.  True and
        false: it begins to import what it is to call, or has done so."""
        self._heard_at = asyncio.get_running_loop().time()
        if isinstance(part, bool):
            self.begin(IMPORT_S if part else 0.0)
        elif isinstance(part, int):
            self._take_back(part)
        else:
            try:
                self._take(json.loads(part))
            except (ValueError, TypeError, LookupError, RecursionError):  # it may say anything
                self._work.stop(UNREADABLE, 0.0)
        if not self.kind.is_async and (following := self._first()) and following.stop_order:
            self.stop_soon(following)

    def _take(self, answers: list[list[Any]]) -> None:
        batch_size = self._batches.batch_size
        for said in answers:
            if member := self._open.get(said[0]):
                end = decode_end(said, member.claim.fire.policy.timeout_s)
                del self._open[said[0]]
                batch_size.learn(member.call.function, end.took_s)
                self._note(said[0], member, end)

    def _note(self, place: int, member: BatchMessage, end: End) -> None:
        if self.kind.is_async:
            member.end = end._replace(outcome=member.stop_order[0]) if member.stop_order else end
            self._limit(place, member, 0.0)
            self._batches.begin_soon()
            member.resolve(member.end)
            return
        member.end = end
        if end.outcome.kind == "succeeded" and not self._is_alone:
            member.resolve(end)
        else:
            self._ended.append(member)

    def _take_back(self, count: int) -> None:
        """So many of the last were recalled.  Of the others each but the last has ended, and if it had more
        to tell than success, that was heard by now."""
        places = [*self._open]
        for place in places[len(places) - count :] if count else ():
            self._open.pop(place).resolve(None)
        self._is_counted, is_slow, self._is_slow = True, self._is_slow, False
        if is_slow and count < len(places):
            self._batches.batch_size.learn(self._open[places[-count - 1]].call.function, STALLED_S)
        if not self.kind.is_async:
            for place in places[: max(0, len(places) - count - 1)]:
                self._note(place, self._open.pop(place), End(SUCCEEDED, 0))

    def _end(self, gone: asyncio.Future[AttemptEnd]) -> None:
        self._batches.forget(self)
        went, left = gone.result(), [*self._open.items()]
        for member in self._ended:
            assert member.end is not None
            member.resolve(self._with_rest(member.end, went))
        is_answered = isinstance(went, End) and went.result == ANSWERED
        is_known = self._is_counted or not self.is_begun
        for number, (place, member) in enumerate(left):
            self._limit(place, member, 0.0)
            if is_answered and self.kind.is_async and not self._is_closed:  # it came too late
                member.batch = None
                self._batches.add_again(self.kind, member)
            elif is_answered or (number and is_known and not self.kind.is_async):
                member.resolve(None)
            else:
                member.resolve(self._cutshort(member, went))

    def _with_rest(self, end: End, went: AttemptEnd) -> End:
        """Where it was alone, what was written past Python is its own; and until what it left is gone, its
        time goes on."""
        if not self._is_alone or not isinstance(went, End):
            return end
        waited_s = asyncio.get_running_loop().time() - self._heard_at
        return end._replace(tail=went.tail + end.tail, took_s=end.took_s + waited_s)

    def _cutshort(self, member: BatchMessage, went: AttemptEnd) -> AttemptEnd:
        """Its child died, or was ended, while this was under way."""
        if not isinstance(went, End):
            return None
        if member.stop_order and went.outcome.kind != "timed-out":
            return went._replace(outcome=member.stop_order[0])
        if self._is_blocked:
            return went._replace(outcome=BLOCKED)
        if went.outcome.kind == "succeeded":
            return went._replace(outcome=UNREADABLE)
        return went
