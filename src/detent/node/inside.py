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
from functools import partial

from detent import clock
from detent.model import Call, Claim, Command, End, Outcome
from detent.node.attempt import LaneHeld, Went
from detent.node.processes import Processes
from detent.runners.base import LOST
from detent.runners.call import GuardSpec, previous_success
from detent.runners.call_fire import Fire, fire_of
from detent.runners.call_inside import Ended, Inside, Mailbox
from detent.runners.command import command_env

NOTHING = Command(words=())
LOOK_S = 0.25  # between two looks at who is still trusted


class House:
    """All calls in this process."""

    def __init__(self, processes: Processes) -> None:
        self.processes, self.mailbox = processes, Mailbox(asyncio.get_running_loop())
        self._trusted: set[Guarded] = set()
        self._looking: asyncio.TimerHandle | None = None

    def start(self, call: Call, claim: Claim, spec: GuardSpec, trusted_by: float) -> Guarded:
        return Guarded(self, call, claim, (spec, trusted_by))

    def enter(self, one: Guarded) -> None:
        self._trusted.add(one)
        if self._looking is None:
            self._look()

    def leave(self, one: Guarded) -> None:
        self._trusted.discard(one)

    def _look(self) -> None:
        """One timer for all: there may be thousands, and most end long before it matters."""
        self._trusted.difference_update([one for one in self._trusted if one.distrust()])
        loop = asyncio.get_running_loop()
        self._looking = loop.call_later(LOOK_S, self._look) if self._trusted else None


class Guarded:
    """One call in this process, under way as soon as the warden guards it."""

    def __init__(self, house: House, call: Call, claim: Claim, guard: tuple[GuardSpec, float]) -> None:
        self._inside, self._house = Inside(call, partial(_fire_of, claim)), house
        self.gone: asyncio.Future[Went] = asyncio.get_running_loop().create_future()
        self._kill_after_s, self._ttl_s = call.kill_after_s, claim.ttl_s
        self._timeout_s = claim.fire.policy.timeout_s
        self._why: Outcome | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._began = 0.0  # not yet
        self._guarding: asyncio.Task[None] | None = None  # kept, as the loop itself does not
        self._spec = guard[0]
        self._guard = house.processes.begin(*guard, self._start)
        self._guard.gone.add_done_callback(self._unguarded)

    def _start(self) -> None:
        self._began = clock.monotonic()
        if self._timeout_s:
            self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._time_out)
        self._house.enter(self)
        self._inside.start(lambda ended: self._house.mailbox.put(partial(self._end, ended)))

    def extend(self, trusted_by: float) -> None:
        self._guard.extend(trusted_by)

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None:
        """Ask it to end.  Where the claim is not ours any more, or the node ends, it must."""
        self._interrupt(why)
        if why.kind == "lost":
            self._guard.stop(why, self._kill_after_s if kill_after_s is None else kill_after_s)

    def _unguarded(self, gone: asyncio.Future[Went]) -> None:
        """The warden would not have it; or it died, and its successor is asked."""
        if not self._began:
            self.gone.set_result(gone.result())
        elif not self.gone.done() and not self._house.processes.is_closing:
            self._guarding = asyncio.ensure_future(self._guard_again())

    async def _guard_again(self) -> None:
        try:
            guard = await self._house.processes.spawn(self._spec, self._guard.trusted_by)
        except LaneHeld:
            guard = None
        if self.gone.done() or self._house.processes.is_closing:
            if guard:
                guard.release()
        elif guard is None or guard.gone.done():
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            guard.extend(self._guard.trusted_by)
            self._guard = guard
            guard.gone.add_done_callback(self._unguarded)

    def _interrupt(self, why: Outcome) -> None:
        self._why = self._why or why
        self._inside.cancel()

    def _time_out(self) -> None:
        self._interrupt(Outcome("timed-out", f"after {self._timeout_s:g} s"))

    def distrust(self) -> bool:
        """Where it is time, interrupt it, as a process would be sent SIGTERM: what can be cancelled spares
        the node."""
        is_time = clock.boottime() >= self._guard.trusted_by - min(self._kill_after_s, self._ttl_s / 6)
        if is_time:
            self._interrupt(Outcome("lost", LOST))
        return is_time

    def _end(self, ended: Ended) -> None:
        self._house.leave(self)
        if self._timer:
            self._timer.cancel()
        self._guard.release()
        outcome = self._why or _judge(ended)
        took_s = clock.monotonic() - self._began
        self.gone.set_result(End(outcome, ended.status, took_s, ended.tail, result=ended.result))


def _fire_of(claim: Claim) -> Fire:
    return fire_of(command_env({}, claim, NOTHING), previous_success(claim))


def _judge(ended: Ended) -> Outcome:
    if ended.error:
        return Outcome("failed", ended.error)
    return Outcome("succeeded") if ended.status == 0 else Outcome("failed", f"exit {ended.status}")
