"""A model of the warden: it ends work in time, even if its node is stopped or dead."""

from __future__ import annotations

import asyncio
from random import Random

from detent.model import Claim, End, Outcome, Work
from detent.rules.outcomes import CLAIM_EXPIRED
from detent.rules.trust import notice_s
from detent.runners.running import AttemptEnd
from detent.testing.sim.checker import Checker
from detent.testing.sim.virtual_time import VirtualLoop

KILL_AFTER_S = 10.0
TAKES_S = {  # how long work takes, by the origin of its fire
    "schedule": (0.1, 2, 10, 30, 80, 150),
    "manual": (0.1, 0.5, 1, 2, 5, 30),
    "hook": (1.0,),
}


class SimRunning:
    """The processes of one attempt."""

    def __init__(self, warden: SimWarden, work: Work, claim: Claim, trusted_by: float) -> None:
        self.work = work
        self.claim, self.loop, self.rng, self.checker = claim, warden.loop, warden.rng, warden.checker
        self.gone: asyncio.Future[AttemptEnd] = self.loop.create_future()
        self.trusted_by, self.ending, self.alive = trusted_by, False, False
        self.term_s = notice_s(claim.ttl_s, KILL_AFTER_S)
        self.stop_first: Outcome | None = None  # why it must stop, if that was decided before it started
        self.timers: list[asyncio.TimerHandle] = []

    @property
    def is_late(self) -> bool:
        return self.loop.time() >= self.trusted_by - self.term_s

    def begin(self) -> None:
        """Start the work: the request has reached the warden."""
        if self.is_late:
            self.gone.set_result(None)
            return
        self.alive = True
        outcome = Outcome("failed", "exit 1") if self.rng.random() < 0.2 else Outcome("succeeded")
        takes_s = self.rng.choice(TAKES_S[self.claim.fire.origin])
        self.timers = [self.loop.call_later(takes_s, self.end, outcome)]
        self.timers.append(self.loop.call_at(self.trusted_by - self.term_s, self.distrust))
        if timeout_s := self.claim.fire.policy.timeout_s:
            self.timers.append(self.loop.call_later(timeout_s, self.stop, Outcome("timed-out")))
        self.checker.begin(self.work, self.claim)
        if self.stop_first:
            self.stop(self.stop_first)

    def extend(self, trusted_by: float) -> None:
        self.trusted_by = max(self.trusted_by, trusted_by)

    def distrust(self) -> None:
        """Stop the work if its claim has expired and was not extended."""
        if not self.is_late:
            self.timers.append(self.loop.call_at(self.trusted_by - self.term_s, self.distrust))
        else:
            self.stop(CLAIM_EXPIRED)

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None:
        """Send SIGTERM, and SIGKILL at the latest when trust ends."""
        if not self.alive:
            self.stop_first = self.stop_first or why
        elif not self.ending:
            self.ending = True
            self.cancel_timers()
            takes_s = self.rng.choice([0.0, 0.1, KILL_AFTER_S if kill_after_s is None else kill_after_s])
            at = min(self.loop.time() + takes_s, max(self.trusted_by, self.loop.time()))
            self.timers = [self.loop.call_at(at, self.end, why)]

    def end(self, outcome: Outcome) -> None:
        if self.alive:
            self.alive = False
            self.cancel_timers()
            self.checker.leave(self.claim, outcome, self.loop.time())
            if not self.gone.done():  # done already, if the waiting node was killed
                self.gone.set_result(End(outcome, status=0 if outcome.kind == "succeeded" else 1))

    def cancel_timers(self) -> None:
        for timer in self.timers:
            timer.cancel()


class SimWarden:
    """Owns the work of one node instance.  It keeps running if the node is stopped or killed."""

    running_type: type[SimRunning] = SimRunning

    def __init__(self, loop: VirtualLoop, rng: Random, checker: Checker) -> None:
        self.loop, self.rng, self.checker = loop, rng, checker
        self.works: list[SimRunning] = []
        self.orders: dict[SimRunning, asyncio.TimerHandle] = {}  # on their way

    def start(self, work: Work, claim: Claim, trusted_by: float) -> SimRunning:
        running = self.running_type(self, work, claim, trusted_by)
        self.orders[running] = self.loop.call_later(0.001, self.obey, running)
        return running

    def obey(self, running: SimRunning) -> None:
        del self.orders[running]
        self.works = [one for one in self.works if one.alive]
        running.begin()
        self.works.append(running)

    def hang_up(self) -> None:
        """The socket to the node was closed: end the work."""
        self.forget_orders()
        for running in self.works:
            running.stop(Outcome("lost", "its node died", "node-lost"), kill_after_s=1.0)

    def lose_power(self) -> None:
        self.forget_orders()
        for running in self.works:
            running.end(Outcome("lost", "its machine died", "node-lost"))

    def forget_orders(self) -> None:
        for timer in self.orders.values():
            timer.cancel()

    @property
    def is_gone(self) -> bool:
        return not any(running.alive for running in self.works)
