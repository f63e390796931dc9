"""Bugs planted into nodes and wardens."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

from detent.model import Claim, End, Job, Outcome, Plan, Verdict, Work
from detent.node.attempt import HeldClaim
from detent.node.node import Node
from detent.node.planner import Planner
from detent.rules.planning import key_of
from detent.rules.settling import settle
from detent.testing.sim.mutants.registry import part
from detent.testing.sim.warden import SimRunning, SimWarden


@part()
class LaneIsFreedBeforeWorkEnds(Node):
    """The node settles work when it is asked to stop, not when its last process has ended."""

    def _start_attempt(self, holding: HeldClaim, job: Job | None, now: datetime) -> Verdict | None:
        verdict = super()._start_attempt(holding, job, now)
        if holding.running:
            self.ports.spawn(self._settle_when_told(holding))
        return verdict

    async def _settle_when_told(self, holding: HeldClaim) -> None:
        while not holding.is_settled:
            await asyncio.sleep(1.0)
            if holding.stop_reason and not holding.is_settled:
                self._settle(holding, Verdict(holding.stop_reason), End(holding.stop_reason))


@part("crash")
class HookRunsBeforeFireIsSettled(Node):
    """The hook runs before the fire is settled: a node that dies meanwhile leaves the fire open."""

    def _settle(self, holding: HeldClaim, verdict: Verdict, end: End) -> None:
        if holding.running and not holding.is_settled:
            holding.is_settled = True
            self.ports.spawn(self._settle_later(holding, verdict, end))
        else:
            super()._settle(holding, verdict, end)

    async def _settle_later(self, holding: HeldClaim, verdict: Verdict, end: End) -> None:
        await asyncio.sleep(15)
        super()._settle(holding, verdict, end)


@part()
class SkipIsReportedBeforeItIsRecorded(Node):
    """The node reports a skip when it is granted, before it is recorded."""

    def _start_attempt(self, holding: HeldClaim, job: Job | None, now: datetime) -> Verdict | None:
        if disposition := holding.claim.disposition:
            self.ports.emit(disposition.kind, fire=holding.claim.fire.key, outcome=disposition.kind)
        return super()._start_attempt(holding, job, now)


class _SkewedPlanner(Planner):
    def _plans(self) -> list[Plan]:
        instance = self._call.instance
        skew = timedelta(seconds=len(instance) + ord(instance[1]) % 3)
        return [self._renamed(plan, skew) for plan in super()._plans()]

    def _renamed(self, plan: Plan, skew: timedelta) -> Plan:
        fires = tuple(fire._replace(key=key_of(fire.job, fire.due_at + skew)) for fire in plan.fires)
        return plan._replace(fires=fires)


@part()
class KeyUsesNodeClock(Node):
    """The key of a fire contains the node's own time, which is slightly off."""

    planner_type = _SkewedPlanner


@part()
class LatenessUsesNodeClock(Node):
    """The node plans by its own clock, which is an hour ahead of the store's."""

    def __init__(self, instance: str, *given: Any) -> None:
        super().__init__(instance, *given)
        learn, ahead = self.clock.learn, timedelta(hours=1 if instance.startswith("m0") else 0)
        self.clock.learn = lambda now: learn(now + ahead)  # type: ignore[method-assign]


class _DeploysOnce(Planner):
    before = False

    async def _deploy(self) -> None:
        if self.before:
            await self.read_watermarks()
            self.is_deployed = True
        else:
            await super()._deploy()
            self.before = True


@part("deploy")
class JobsAreNotSetAgainAfterFailover(Node):
    """After a failover, a node accepts the jobs that it finds in force."""

    planner_type = _DeploysOnce


class _AnnouncesOnce(Planner):
    def _redeploy(self) -> None:
        self._holders.announce_again = lambda: None  # type: ignore[method-assign]
        super()._redeploy()


@part("deploy")
class ListIsNotWrittenAgainAfterFailover(Node):
    """After a failover without its job list, no node removes a job: that node might hold it."""

    planner_type = _AnnouncesOnce


class _ExcludesForEver(Planner):
    def excluded(self, others: set[str]) -> tuple[str, ...]:
        return tuple(sorted(self._not_here | self._timeline.elsewhere))


@part("failover")
class UnrunnableJobIsNeverAskedForAgain(Node):
    """A node that once had another definition of a job never asks for its fires again."""

    planner_type = _ExcludesForEver


@part()
class LostFireIsAlwaysRerun(Node):
    def _start_attempt(self, holding: HeldClaim, job: Job | None, now: datetime) -> Verdict | None:
        claim = holding.claim
        if claim.disposition and claim.disposition.kind == "lost":
            fire = claim.fire._replace(policy=claim.fire.policy._replace(on_lost="rerun"))
            return settle(End(claim.disposition), claim._replace(fire=fire), self.ports.rng)
        return super()._start_attempt(holding, job, now)


@part()
class ClaimTrustCountsFromReply(Node):
    """Trust in a claim counts from the reply, not from when the request was sent."""

    def _start_attempt(self, holding: HeldClaim, job: Job | None, now: datetime) -> Verdict | None:
        holding.renewed = self.ports.monotonic()
        return super()._start_attempt(holding, job, now)


@part()
class RenewalTrustCountsFromReply(Node):
    """Trust in a renewal counts from the reply, not from when the request was sent."""

    def _apply_renewal(self, holding: HeldClaim, stop: Outcome | None, sent: float) -> None:
        super()._apply_renewal(holding, stop, self.ports.monotonic())


@part("gentle")
class UnreportedWorkIsNotRenewed(Node):
    """The node stops renewing finished work before its report has arrived."""

    def _settle(self, holding: HeldClaim, verdict: Verdict, end: End) -> None:
        super()._settle(holding, verdict, end)
        holding.is_lost = True  # only what is not lost is renewed


@part("calm")
class NodeOversleeps(Node):
    """The node sleeps for its idle time, although the store says when the next fire is due."""

    async def _claim(self) -> float:
        await super()._claim()
        return self.tuning.idle_s


@part("calm")
class RetryDoesNotWakeNode(Node):
    """The node does not wake up when its retry is due."""

    async def _report(self) -> float:
        set_, self._wake_look.set = self._wake_look.set, lambda: None  # type: ignore[method-assign]
        try:
            return await super()._report()
        finally:
            self._wake_look.set = set_  # type: ignore[method-assign]


class StoppedOnlyByNode(SimRunning):
    """Work whose deadline only the node checks."""

    def distrust(self) -> None:
        self.timers.append(self.loop.call_at(self.loop.time() + 600, self.distrust))


@part()
class WorkIsStoppedOnlyByNode(SimWarden):
    running_type = StoppedOnlyByNode


@part()
class WardenStartsExpiredWork(SimWarden):
    """The warden starts work whose claim expired after the node, which was then stopped, checked it."""

    def start(self, work: Work, claim: Claim, trusted_by: float) -> SimRunning:
        return super().start(work, claim, max(trusted_by, self.loop.time() + 10))


@part()
class DeathIsDeclaredTooSoon(SimWarden):
    """The lock of an instance is free while some of its work still runs."""

    @property
    def is_gone(self) -> bool:
        return True

    def hang_up(self) -> None:
        self.forget_orders()
        for running in self.works:
            running.stop(Outcome("lost", "its node died", "node-lost"), kill_after_s=5.0)
