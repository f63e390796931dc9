"""Calls that run in this process, by choice: guarded by the warden, then begun, kept until they have ended.

1. Such work keeps its claim until it has really ended; a timeout or a stop settles it only then.
2. Nobody can kill it but with the whole process.  So the warden is asked to do that when the claim is not
   trusted any more; and when it is lost, or the node shuts down, and the work does not end in time.
3. It asks before the work begins, and for messages that wait for their turn long before.  What is not begun
   when trust is about to end is given back, so that nobody is killed for it.
4. Where the warden dies, its successor is asked; where that is too late, we end ourselves.
5. They may come in thousands at one instant: what is begun in one turn of the loop is handed over together.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
from collections.abc import Callable
from functools import partial

from detent import clock
from detent.model import Call, Claim, Command, End, Outcome
from detent.rules.outcomes import CLAIM_EXPIRED, timed_out
from detent.rules.trust import term_by
from detent.runners.call.fire import Fire, fire_of
from detent.runners.call.in_process import Ended, InProcessCall, Mailbox, start_all
from detent.runners.call.spec import GuardSpec, keeps_result, outcome_of, previous_success
from detent.runners.command import command_env
from detent.runners.running import AttemptEnd
from detent.warden.client import WardenClient
from detent.warden.handle import TaskHandle
from detent.worker.batch_message import SyncFuture

NOTHING = Command(words=())
LOOK_S = 0.25  # between two looks at who is still trusted


class InProcessCalls:
    """All calls in this process."""

    def __init__(self, processes: WardenClient) -> None:
        self.processes = processes
        self._loop = asyncio.get_running_loop()
        self._mailbox = Mailbox(self._loop)
        self._trusted: set[GuardedCall] = set()  # those that the warden guards
        self._looking: asyncio.TimerHandle | None = None
        self._distrust_at = math.inf  # not later than the first of them is not trusted any more
        self._begun: list[GuardedCall] = []  # and not yet handed over

    def start(self, call: Call, claim: Claim, spec: GuardSpec, trusted_by: float) -> GuardedCall:
        guarded = GuardedCall(self, call, claim, spec, trusted_by)
        self.processes.take(guarded)
        return guarded

    def watch(self, one: GuardedCall) -> None:
        """The warden guards it."""
        self._trusted.add(one)
        self._distrust_at = min(self._distrust_at, one.distrust_at)
        if self._looking is None:
            self._look()

    def enter(self, one: GuardedCall) -> None:
        """It begins: with all others of this turn of the loop."""
        if not self._begun:
            self._loop.call_soon(self._hand_over)
        self._begun.append(one)

    def leave(self, one: GuardedCall) -> None:
        """It has ended, or will not begin."""
        self._trusted.discard(one)

    def _hand_over(self) -> None:
        begun, self._begun = self._begun, []
        start_all([(one.inside, one.tell) for one in begun])

    def tell(self, one: GuardedCall, ended: Ended) -> None:
        """One has ended.  Called in another thread."""
        self._mailbox.put(partial(one.end_inside, ended, clock.monotonic()))

    def _look(self) -> None:
        """One timer for all: there may be thousands, and most end long before it matters."""
        now = clock.boottime()
        if now >= self._distrust_at:
            late = [one for one in self._trusted if now >= one.distrust_at]
            self._trusted.difference_update(late)
            for one in late:
                one.distrust()
            self._distrust_at = min((one.distrust_at for one in self._trusted), default=math.inf)
        self._looking = self._loop.call_later(LOOK_S, self._look) if self._trusted else None


class GuardedCall(TaskHandle):
    """One call in this process, from the moment when the warden is asked to guard it."""

    is_guarded = False
    turn: Callable[[], object] | None = None  # who is told that it may begin, where others come first
    _why: Outcome | None = None
    _timer: asyncio.TimerHandle | None = None
    _began = 0.0  # not yet

    def __init__(
        self, house: InProcessCalls, call: Call, claim: Claim, spec: GuardSpec, trusted_by: float
    ) -> None:
        super().__init__(house.processes, spec, trusted_by)
        self.function, self._in_process_calls, self._claim, self._call = call.function, house, claim, call
        self.inside = InProcessCall(call, partial(_fire_of, claim), keeps=keeps_result(claim))

    def new_future(self) -> asyncio.Future[AttemptEnd]:
        return SyncFuture.new()

    def begun(self) -> None:
        """The warden guards it."""
        self.is_guarded = True
        if self.gone.done():  # meanwhile
            self.release()
        elif not self._began:
            self._in_process_calls.watch(self)
            (self.turn or self.begin)()

    def begin(self) -> bool:
        """False: it is too late for that, or nobody wants it any more."""
        if clock.boottime() >= self.distrust_at:
            self.give_back()
        if self.gone.done():
            return False
        self._began = clock.monotonic()
        if timeout_s := self._claim.fire.policy.timeout_s:
            self._timer = asyncio.get_running_loop().call_later(timeout_s, self._time_out)
        self._in_process_calls.enter(self)
        return True

    def give_back(self) -> None:
        """Nothing of it was begun, and it will not be."""
        if self.is_guarded:
            self.release()
        self.resolve(None)

    def tell(self, ended: Ended) -> None:
        self._in_process_calls.tell(self, ended)

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None:
        """Ask it to end.  Where the claim is not ours any more, or the node ends, it must."""
        if not self._began:
            self.give_back()
            return
        self._interrupt(why)
        if why.kind == "lost":
            super().stop(why, self._call.kill_after_s if kill_after_s is None else kill_after_s)

    def lose(self, why: Outcome) -> None:
        """The warden died."""
        if self._began:
            super().lose(why)
        else:
            self.resolve(None)

    def resolve(self, went: AttemptEnd) -> None:
        """The warden would not have it; or it died, and its successor is asked."""
        if not self._began:
            self._in_process_calls.leave(self)
            super().resolve(went)
        elif not self.gone.done() and not self._in_process_calls.processes.is_closing:
            if not self.is_guarded:  # nor will anybody
                os.kill(os.getpid(), signal.SIGKILL)
            self.is_guarded = False
            self._in_process_calls.processes.take(self)

    def _interrupt(self, why: Outcome) -> None:
        self._why = self._why or why
        self.inside.cancel()

    def _time_out(self) -> None:
        self._interrupt(timed_out(self._claim.fire.policy.timeout_s))

    @property
    def distrust_at(self) -> float:
        """When a process would get SIGTERM."""
        return term_by(self.trusted_by, self._claim.ttl_s, self._call.kill_after_s)

    def distrust(self) -> None:
        """What can be cancelled, or is not begun, spares the node."""
        if self._began:
            self._interrupt(CLAIM_EXPIRED)
        else:
            self.give_back()

    def end_inside(self, ended: Ended, at: float) -> None:
        if self._timer:
            self._timer.cancel()
        self._in_process_calls.leave(self)
        if self.is_guarded:
            self.release()
        outcome = self._why or outcome_of(ended.status, ended.error)
        self.gone.set_result(End(outcome, ended.status, at - self._began, ended.tail, result=ended.result))


def _fire_of(claim: Claim) -> Fire:
    return fire_of(command_env({}, claim, NOTHING), previous_success(claim))
