"""Calls that run in this process, by choice: started, guarded by the warden, kept until they have ended.

1. Such work keeps its claim until it has really ended; a timeout or a stop settles it only then.
2. Nobody can kill it but with the whole process.  So the warden is asked to do that when the claim is not
   trusted any more; and when it is lost, or the node shuts down, and the work does not end in time.
3. Where the warden dies, its successor is asked; where that is too late, we end ourselves.
"""

from __future__ import annotations

import asyncio
import os
import signal

from detent import clock
from detent.model import Call, Claim, End, Outcome
from detent.node.attempt import LaneHeld
from detent.node.processes import Processes, Work
from detent.runners.base import LOST
from detent.runners.call import GuardSpec
from detent.runners.call_inside import Ended, Inside


class Guarded:
    """One call in this process, under way."""

    def __init__(self, inside: Inside, call: Call, claim: Claim, guard: Work) -> None:
        self._loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[End] = self._loop.create_future()
        self._inside, self._guard, self._began = inside, guard, clock.monotonic()
        self._kill_after_s, self._ttl_s = call.kill_after_s, claim.ttl_s
        self._timeout_s = claim.fire.policy.timeout_s
        self._why: Outcome | None = None
        self._timers: list[asyncio.TimerHandle] = []

    def start(self) -> None:
        if self._timeout_s:
            self._timers.append(self._loop.call_later(self._timeout_s, self._time_out))
        self._timers.append(self._loop.call_later(self._distrusted_in_s(), self._distrust))
        self._inside.start(lambda ended: self._loop.call_soon_threadsafe(self._end, ended))

    def extend(self, trusted_by: float) -> None:
        self._guard.extend(trusted_by)

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None:
        """Ask it to end.  Where the claim is not ours any more, or the node ends, it must."""
        self._interrupt(why)
        if why.kind == "lost":
            self._guard.stop(why, self._kill_after_s if kill_after_s is None else kill_after_s)

    def guarded_by(self, guard: Work) -> None:
        """The warden died; its successor has taken over."""
        guard.extend(self._guard.trusted_by)
        self._guard = guard

    @property
    def trusted_by(self) -> float:
        return self._guard.trusted_by

    def _interrupt(self, why: Outcome) -> None:
        self._why = self._why or why
        self._inside.cancel()

    def _time_out(self) -> None:
        self._interrupt(Outcome("timed-out", f"after {self._timeout_s:g} s"))

    def _distrusted_in_s(self) -> float:
        return self._guard.trusted_by - min(self._kill_after_s, self._ttl_s / 6) - clock.boottime()

    def _distrust(self) -> None:
        """As a process would be sent SIGTERM: what can be cancelled spares the node."""
        left_s = self._distrusted_in_s()
        if left_s > 0:
            self._timers[-1] = self._loop.call_later(left_s, self._distrust)
        else:
            self._interrupt(Outcome("lost", LOST))

    def _end(self, ended: Ended) -> None:
        for timer in self._timers:
            timer.cancel()
        outcome = self._why or _judge(ended)
        took_s = clock.monotonic() - self._began
        self.gone.set_result(End(outcome, ended.status, took_s, ended.tail, result=ended.result))
        self._guard.release()


def _judge(ended: Ended) -> Outcome:
    if ended.error:
        return Outcome("failed", ended.error)
    return Outcome("succeeded") if ended.status == 0 else Outcome("failed", f"exit {ended.status}")


async def start_inside(
    processes: Processes, spec: GuardSpec, call: tuple[Call, Claim, Inside], trusted_by: float
) -> Guarded | Work | None:
    """None: it is too late.  Work: the warden would not have it, and it has ended already."""
    guard = await processes.spawn(spec, trusted_by)
    if guard is None or guard.gone.done():
        return guard
    work, claim, inside = call
    running = Guarded(inside, work, claim, guard)
    running.start()
    _guard_on(processes, spec, running, guard)
    return running


def _guard_on(processes: Processes, spec: GuardSpec, running: Guarded, guard: Work) -> None:
    guard.gone.add_done_callback(lambda _: asyncio.ensure_future(_guard_again(processes, spec, running)))


async def _guard_again(processes: Processes, spec: GuardSpec, running: Guarded) -> None:
    if running.gone.done() or processes.is_closing:
        return
    try:
        guard = await processes.spawn(spec, running.trusted_by)
    except LaneHeld:
        guard = None
    if running.gone.done() or processes.is_closing:
        if guard:
            guard.release()
    elif guard is None or guard.gone.done():
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        running.guarded_by(guard)
        _guard_on(processes, spec, running, guard)
