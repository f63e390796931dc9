"""Calls that run in the node's own process: the warden guards them, then they run until they really end.

1. Such a call keeps its claim until it has ended.  A timeout or a stop settles it only then.
2. It can be killed only together with the whole process.  The warden does that if trust in the claim ends, or
   if the call does not end in time after the claim was lost or the node was stopped.
3. The warden must confirm the guard before the call starts.  A call that has not started when trust is about
   to end is returned, so that the process is not killed for it.
4. If the warden dies, the node asks its successor.  If there is none in time, the node kills itself.
5. Thousands of calls may start at one instant: those of one turn of the event loop start together.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from detent import clock
from detent.model import Call, Claim, End, Outcome
from detent.rules.outcomes import CLAIM_EXPIRED, timed_out
from detent.rules.trust import term_by
from detent.runners.call.in_process import Ended, InProcessCall, start_all
from detent.runners.call.spec import GuardSpec, claimed_fire, keeps_result, outcome_of
from detent.runners.running import AttemptEnd
from detent.warden.client import TaskHandle, WardenClient

WATCH_S = 0.25  # between two checks of which calls are still trusted


class InProcessCalls:
    def __init__(self, warden: WardenClient) -> None:
        self.warden = warden
        self._loop = asyncio.get_running_loop()
        self._guarded: set[GuardedCall] = set()
        self._watching: asyncio.TimerHandle | None = None
        self._stop_at = math.inf  # no call must stop before this time
        self._to_start: list[GuardedCall] = []

    def start(
        self, call: Call, claim: Claim, spec: GuardSpec, trusted_by: float, trace: str = ""
    ) -> GuardedCall:
        guarded = GuardedCall(self, call, claim, spec, trusted_by)
        guarded.in_process.trace = trace
        self.warden.take(guarded)
        return guarded

    def watch(self, call: GuardedCall) -> None:
        self._guarded.add(call)
        self._stop_at = min(self._stop_at, call.stop_at)
        if self._watching is None:
            self._watch()

    def forget(self, call: GuardedCall) -> None:
        self._guarded.discard(call)

    def start_soon(self, call: GuardedCall) -> None:
        """Start the call together with the others of this turn of the event loop."""
        if not self._to_start:
            self._loop.call_soon(self._start_all)
        self._to_start.append(call)

    def _start_all(self) -> None:
        calls, self._to_start = self._to_start, []
        start_all([(call.in_process, partial(self._on_end, call)) for call in calls])

    def _on_end(self, call: GuardedCall, ended: Ended) -> None:
        """Called in the thread of the call.  A call that outlives the loop still releases what it holds."""
        on_end = partial(call.on_end, ended, clock.monotonic())
        with suppress(RuntimeError):  # from what needs the loop, if the loop is closed
            on_end() if self._loop.is_closed() else self._loop.call_soon_threadsafe(on_end)

    def _watch(self) -> None:
        """One timer serves all calls: most of thousands end long before they must stop."""
        now = clock.boottime()
        if now >= self._stop_at:
            late = [call for call in self._guarded if now >= call.stop_at]
            self._guarded.difference_update(late)
            for call in late:
                call.distrust()
            self._stop_at = min((call.stop_at for call in self._guarded), default=math.inf)
        self._watching = self._loop.call_later(WATCH_S, self._watch) if self._guarded else None


class GuardedCall(TaskHandle):
    """One call in this process, from the request to the warden to guard it until its end."""

    is_guarded = False
    on_guarded: Callable[[], object] | None = None  # called instead of `begin`, if the call has to wait
    _stop_reason: Outcome | None = None
    _timer: asyncio.TimerHandle | None = None
    _began = 0.0  # 0: not started

    def __init__(
        self, calls: InProcessCalls, call: Call, claim: Claim, spec: GuardSpec, trusted_by: float
    ) -> None:
        super().__init__(calls.warden, spec, trusted_by)
        self.function, self._calls, self._claim, self._call = call.function, calls, claim, call
        self.in_process = InProcessCall(call, partial(claimed_fire, claim), keeps=keeps_result(claim))

    def begun(self) -> None:
        """The warden guards the call."""
        self.is_guarded = True
        if self.gone.done():
            self.release()
        elif not self._began:
            self._calls.watch(self)
            (self.on_guarded or self.begin)()

    def begin(self) -> bool:
        """Start the call.  False: it is too late, or it was stopped."""
        if clock.boottime() >= self.stop_at:
            self.give_back()
        if self.gone.done():
            return False
        self._began = clock.monotonic()
        if timeout_s := self._claim.fire.policy.timeout_s:
            interrupt = partial(self._interrupt, timed_out(timeout_s))
            self._timer = asyncio.get_running_loop().call_later(timeout_s, interrupt)
        self._calls.start_soon(self)
        return True

    def give_back(self) -> None:
        """Return a call that has not started."""
        if self.is_guarded:
            self.release()
        self.resolve(None)

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None:
        """Interrupt the call.  If the claim is lost or the node stops, the warden kills a call that goes
        on."""
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

    def resolve(self, end: AttemptEnd) -> None:
        """The warden refused the call or died.  A running call needs a new guard, or the process must die."""
        if not self._began:
            self._calls.forget(self)
            super().resolve(end)
        elif not self.gone.done() and not self._calls.warden.is_closing:
            if not self.is_guarded:
                os.kill(os.getpid(), signal.SIGKILL)
            self.is_guarded = False
            self._calls.warden.take(self)

    def _interrupt(self, why: Outcome) -> None:
        self._stop_reason = self._stop_reason or why
        self.in_process.cancel()

    @property
    def stop_at(self) -> float:
        """When a process in its place would get SIGTERM."""
        return term_by(self.trusted_by, self._claim.ttl_s, self._call.kill_after_s)

    def distrust(self) -> None:
        """Trust is about to end: interrupt or return the call before the warden kills the process."""
        if self._began:
            self._interrupt(CLAIM_EXPIRED)
        else:
            self.give_back()

    def on_end(self, ended: Ended, at: float) -> None:
        if self._timer:
            self._timer.cancel()
        self._calls.forget(self)
        if self.is_guarded:
            self.release()
        outcome = self._stop_reason or outcome_of(ended.status, ended.error)
        self.gone.set_result(End(outcome, ended.status, at - self._began, ended.tail, result=ended.result))
