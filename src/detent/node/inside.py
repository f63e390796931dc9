"""Calls that run in this process, by choice: started, guarded by the warden, kept until they have ended.

1. Such work keeps its claim until it has really ended; a timeout or a stop settles it only then.
2. Nobody can kill it but with the whole process.  So the warden is asked to do that when the claim is not
   trusted any more; and when it is lost, or the node shuts down, and the work does not end in time.
3. Where the warden dies, its successor is asked; where that is too late, we end ourselves.
4. They may come in thousands at one instant: what is begun in one turn of the loop is handed over together,
   and while others wait for their beginning, what has ended waits too, for a moment.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
from collections import deque
from functools import partial

from detent import clock
from detent.model import Call, Claim, Command, End, Outcome
from detent.node.attempt import Went
from detent.node.processes import Processes
from detent.node.work import Work
from detent.runners.base import LOST
from detent.runners.call import GuardSpec, previous_success
from detent.runners.call_fire import Fire, fire_of
from detent.runners.call_inside import Ended, Inside, Mailbox, start_all
from detent.runners.command import command_env

NOTHING = Command(words=())
LOOK_S = 0.25  # between two looks at who is still trusted
STARTS_FIRST_S, STARTS_LOOK_S = 1.0, 0.02  # so long, ends wait for beginnings; looked at so often


class House:
    """All calls in this process."""

    def __init__(self, processes: Processes) -> None:
        self.processes = processes
        self._loop = asyncio.get_running_loop()
        self._mailbox, self._is_rung = Mailbox(self._loop), False
        self._trusted: set[Guarded] = set()
        self._looking: asyncio.TimerHandle | None = None
        self._distrust_at = math.inf  # not later than the first of them is not trusted any more
        self._begun: list[Guarded] = []  # and not yet handed over
        self._ended: deque[tuple[Guarded, Ended, float]] = deque()
        self._wait_until = 0.0  # for what is to begin first; 0: nothing waits
        self.unbegun = 0  # those that the warden does not guard yet

    def start(self, call: Call, claim: Claim, spec: GuardSpec, trusted_by: float) -> Guarded:
        guarded = Guarded(self, call, claim, spec, trusted_by)
        self.unbegun += 1
        self.processes.take(guarded)
        return guarded

    def enter(self, one: Guarded) -> None:
        """It may begin: with all others of this turn of the loop."""
        if not self._begun:
            self._loop.call_soon(self._hand_over)
        self._begun.append(one)

    def _hand_over(self) -> None:
        begun, self._begun = self._begun, []
        self._trusted.update(begun)
        self._distrust_at = min(self._distrust_at, *[one.distrust_at for one in begun])
        if self._looking is None:
            self._look()
        start_all([(one.inside, one.tell) for one in begun])

    def tell(self, one: Guarded, ended: Ended) -> None:
        """One has ended.  Called in another thread."""
        self._ended.append((one, ended, clock.monotonic()))
        if not self._is_rung or self._loop.is_closed():  # in which case nobody else lets go of it
            self._is_rung = True
            self._mailbox.put(self._take_ends)

    def _take_ends(self) -> None:
        now = clock.monotonic()
        self._wait_until = self._wait_until or now + STARTS_FIRST_S
        if self.unbegun and now < self._wait_until and not self._loop.is_closed():
            self._loop.call_later(STARTS_LOOK_S, self._take_ends)
            return
        self._is_rung, self._wait_until = False, 0.0  # first: what comes from now on rings again
        while self._ended:
            one, ended, at = self._ended.popleft()
            self._trusted.discard(one)
            one.end_inside(ended, at)

    def _look(self) -> None:
        """One timer for all: there may be thousands, and most end long before it matters."""
        now = clock.boottime()
        if now >= self._distrust_at:
            self._trusted.difference_update([one for one in self._trusted if one.distrust(now)])
            self._distrust_at = min((one.distrust_at for one in self._trusted), default=math.inf)
        self._looking = self._loop.call_later(LOOK_S, self._look) if self._trusted else None


class Guarded(Work):
    """One call in this process, under way as soon as the warden guards it."""

    _why: Outcome | None = None
    _timer: asyncio.TimerHandle | None = None
    _began = 0.0  # not yet
    _asks_again = False  # the successor of a warden that died

    def __init__(self, house: House, call: Call, claim: Claim, spec: GuardSpec, trusted_by: float) -> None:
        super().__init__(house.processes, spec, trusted_by)
        self._house, self._claim, self._call = house, claim, call
        self.inside = Inside(call, partial(_fire_of, claim))

    def begun(self) -> None:
        if self._began:
            self._guarded_again()
            return
        self._house.unbegun -= 1
        self._began = clock.monotonic()
        if timeout_s := self._claim.fire.policy.timeout_s:
            self._timer = asyncio.get_running_loop().call_later(timeout_s, self._time_out)
        self._house.enter(self)

    def tell(self, ended: Ended) -> None:
        self._house.tell(self, ended)

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None:
        """Ask it to end.  Where the claim is not ours any more, or the node ends, it must."""
        self._interrupt(why)
        if why.kind == "lost":
            super().stop(why, self._call.kill_after_s if kill_after_s is None else kill_after_s)

    def resolve(self, went: Went) -> None:
        """The warden would not have it; or it died, and its successor is asked."""
        if not self._began:
            if not self.gone.done():
                self._house.unbegun -= 1
            super().resolve(went)
        elif not self.gone.done() and not self._house.processes.is_closing:
            if self._asks_again:
                os.kill(os.getpid(), signal.SIGKILL)
            self._asks_again = True
            self._house.processes.take(self)

    def _guarded_again(self) -> None:
        self._asks_again = False
        if self.gone.done():  # meanwhile
            self.release()

    def _interrupt(self, why: Outcome) -> None:
        self._why = self._why or why
        self.inside.cancel()

    def _time_out(self) -> None:
        self._interrupt(Outcome("timed-out", f"after {self._claim.fire.policy.timeout_s:g} s"))

    @property
    def distrust_at(self) -> float:
        """As a process would be sent SIGTERM."""
        return self.trusted_by - min(self._call.kill_after_s, self._claim.ttl_s / 6)

    def distrust(self, now: float) -> bool:
        """Where it is time, interrupt it: what can be cancelled spares the node."""
        is_time = now >= self.distrust_at
        if is_time:
            self._interrupt(Outcome("lost", LOST))
        return is_time

    def end_inside(self, ended: Ended, at: float) -> None:
        if self._timer:
            self._timer.cancel()
        if not self._asks_again:
            self.release()
        outcome = self._why or _judge(ended)
        self.gone.set_result(End(outcome, ended.status, at - self._began, ended.tail, result=ended.result))


def _fire_of(claim: Claim) -> Fire:
    return fire_of(command_env({}, claim, NOTHING), previous_success(claim))


def _judge(ended: Ended) -> Outcome:
    if ended.error:
        return Outcome("failed", ended.error)
    return SUCCEEDED if ended.status == 0 else Outcome("failed", f"exit {ended.status}")


SUCCEEDED = Outcome("succeeded")
