"""Planted bugs: each breaks one rule, and the simulator must find each of them.

A bug that shows only in certain scenarios names one of them; the search for it starts there.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from detent.clock import instant
from detent.model import Ask, Claim, End, Grants, Job, Outcome, Plan, Verdict, Watermarks, Work
from detent.node.attempt import HeldClaim
from detent.node.node import Node
from detent.node.planner import Planner
from detent.rules.lanes import Decision
from detent.rules.planning import key_of
from detent.rules.settling import settle
from detent.stores.record import Entry
from detent.testing.sim.checker import CheckedStore
from detent.testing.sim.warden import SimRunning, SimWarden

EPOCH = instant(0)


# Asks.


class RepeatedAskIsGrantedAgain(CheckedStore):
    """The store does not recognise a repeated ask."""

    scenario = "gentle"

    numbers = count(1)

    def claim(self, ask: Ask) -> Grants:
        return super().claim(ask._replace(number=next(self.numbers)))


class LateAskIsGranted(CheckedStore):
    """The store recognises only the newest ask; an older one that arrives late counts as new."""

    scenario = "gentle"

    def claim(self, ask: Ask) -> Grants:
        if ask.number < self._asks.get(ask.node, (0, 0))[0]:
            self._asks[ask.node] = ask.number - 1, self._monotonic()
        return super().claim(ask)


class RepeatedAskDoesNotRenewClaims(CheckedStore):
    """A repeated ask returns the same claims, but with the expiry of the first answer."""

    def claim(self, ask: Ask) -> Grants:
        known = {
            key: entry.expires
            for key, entry in self._open.items()
            if entry.state == "claimed" and (entry.node, entry.ask) == (ask.node, ask.number)
        }
        grants = super().claim(ask)
        for key, expires in known.items():
            self._open[key].expires = min(expires, self._open[key].expires)
        return grants


# Lanes.


class ReplacementStartsBeforeHolderEnds(CheckedStore):
    """A replacement starts when the holder is asked to stop, not when it has ended."""

    def _decide(self, entry: Entry, now: float, lanes: Any) -> Decision:
        decision = super()._decide(entry, now, lanes)
        replaces = decision.step == "wait" and entry.fire.policy.concurrency == "Replace"
        return decision._replace(step="run") if replaces else decision


class RetryIgnoresItsLane(CheckedStore):
    def _decide(self, entry: Entry, now: float, lanes: Any) -> Decision:
        decision = super()._decide(entry, now, lanes)
        contended = decision.step == "settle" and entry.attempt and entry.state == "pending"
        return Decision("run") if contended else decision


class EveryLateFireRuns(CheckedStore):
    """The store applies `latest` before the job is planned completely."""

    def _decide(self, entry: Entry, now: float, lanes: Any) -> Decision:
        decision = super()._decide(entry, now, lanes)
        return Decision("run") if decision.step == "hold" else decision


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


# Finishing.


class RepeatedFinishIsRefused(CheckedStore):
    def _finish(self, report: Any) -> Verdict | None:
        entry = self._entries.get(report.claim.fire.key)
        return super()._finish(report) if entry and entry.state == "claimed" else None


class FinishIgnoresFence(CheckedStore):
    def _finish(self, report: Any) -> Verdict | None:
        entry = self._entries.get(report.claim.fire.key)
        claim = report.claim._replace(fence=entry.fence) if entry else report.claim
        return super()._finish(report._replace(claim=claim))


class FinishReturnsReportedVerdict(CheckedStore):
    """`finish` returns the reported verdict instead of the one that stands."""

    def _finish(self, report: Any) -> Verdict | None:
        return super()._finish(report) and report.verdict


class HooksAreNotRecorded(CheckedStore):
    """Hooks are not recorded in the same commit as the end of their fire."""

    def finish(self, reports: Any) -> list[Verdict | None]:
        return super().finish([report._replace(follow=()) for report in reports])


class HookRunsBeforeFireIsSettled(Node):
    """The hook runs before the fire is settled: a node that dies meanwhile leaves the fire open."""

    scenario = "crash"

    def _settle(self, holding: HeldClaim, verdict: Verdict, end: End) -> None:
        if holding.running and not holding.is_settled:
            holding.is_settled = True
            self.ports.spawn(self._settle_later(holding, verdict, end))
        else:
            super()._settle(holding, verdict, end)

    async def _settle_later(self, holding: HeldClaim, verdict: Verdict, end: End) -> None:
        await asyncio.sleep(15)
        super()._settle(holding, verdict, end)


class SkipIsReportedBeforeItIsRecorded(Node):
    """The node reports a skip when it is granted, before it is recorded."""

    def _start_attempt(self, holding: HeldClaim, job: Job | None, now: datetime) -> Verdict | None:
        if disposition := holding.claim.disposition:
            self.ports.emit(disposition.kind, fire=holding.claim.fire.key, outcome=disposition.kind)
        return super()._start_attempt(holding, job, now)


# Planning.


class PlanLeavesGap(CheckedStore):
    """The store accepts a plan wherever it starts."""

    scenario = "failover"

    def advance(self, app: str, plans: Any) -> Watermarks:
        return super().advance(app, [plan._replace(since=EPOCH) for plan in plans])


class PrunedFireIsPlannedAgain(CheckedStore):
    """Only recorded keys prevent a second fire, so a pruned fire can be planned again."""

    def advance(self, app: str, plans: Any) -> Watermarks:
        for plan in plans:
            watermark = self._watermarks.get(plan.job)
            if watermark and watermark.revision == plan.revision:
                for fire in plan.fires:
                    self._record(fire, fire.due_at.timestamp())
        return super().advance(app, plans)


class _SkewedPlanner(Planner):
    def _plans(self) -> list[Plan]:
        instance = self._call.instance
        skew = timedelta(seconds=len(instance) + ord(instance[1]) % 3)
        return [self._renamed(plan, skew) for plan in super()._plans()]

    def _renamed(self, plan: Plan, skew: timedelta) -> Plan:
        fires = tuple(fire._replace(key=key_of(fire.job, fire.due_at + skew)) for fire in plan.fires)
        return plan._replace(fires=fires)


class KeyUsesNodeClock(Node):
    """The key of a fire contains the node's own time, which is slightly off."""

    planner_type = _SkewedPlanner


class LatenessUsesNodeClock(Node):
    """The node plans by its own clock, which is an hour ahead of the store's."""

    def __init__(self, instance: str, *given: Any) -> None:
        super().__init__(instance, *given)
        learn, ahead = self.clock.learn, timedelta(hours=1 if instance.startswith("m0") else 0)
        self.clock.learn = lambda now: learn(now + ahead)  # type: ignore[method-assign]


class OldScheduleIsNotWithdrawn(CheckedStore):
    """Fires of the old schedule still run after a change."""

    def _withdraw(self, planned: Any, since: datetime | None) -> None:
        pass


class ChangedJobKeepsOldPolicy(CheckedStore):
    """A due fire of an older revision keeps its old policy, but runs the new work."""

    def _unattempted(self, job: str) -> list[Entry]:
        now = instant(self._now())
        return [entry for entry in super()._unattempted(job) if entry.fire.due_at > now]


class WatermarkStaysAhead(CheckedStore):
    """The new schedule starts where the plan of the old one ended."""

    scenario = "failover"

    def _revise(self, job: str, revision: str | None) -> None:
        watermark = self._watermarks.get(job)
        super()._revise(job, revision)
        if watermark and job in self._watermarks:
            self._watermarks[job] = self._watermarks[job]._replace(at=watermark.at)


class ClockSetBackRepeatsInstants(CheckedStore):
    """A changed job continues from now, although a clock that was ahead launched later instants."""

    scenario = "failover"

    def _revise(self, job: str, revision: str | None) -> None:
        self._reached.pop(job, None)
        super()._revise(job, revision)


class StaleJobsAreAccepted(CheckedStore):
    """The store accepts jobs even if others were set in the meantime."""

    scenario = "deploy"

    def set_jobs(self, app: str, seen: int, revisions: Any) -> Watermarks:
        return super().set_jobs(app, self._generations.get(app, 0), revisions)


class _DeploysOnce(Planner):
    before = False

    async def _deploy(self) -> None:
        if self.before:
            await self.read_watermarks()
            self.is_deployed = True
        else:
            await super()._deploy()
            self.before = True


class JobsAreNotSetAgainAfterFailover(Node):
    """After a failover, a node accepts the jobs that it finds in force."""

    scenario = "deploy"

    planner_type = _DeploysOnce


class _ExcludesForEver(Planner):
    def excluded(self, others: set[str]) -> tuple[str, ...]:
        return tuple(sorted(self._not_here | self._timeline.elsewhere))


class UnrunnableJobIsNeverAskedForAgain(Node):
    """A node that once had another definition of a job never asks for its fires again."""

    scenario = "failover"

    planner_type = _ExcludesForEver


# Eras and trust.


class FenceIsNotRaisedInNewEpoch(CheckedStore):
    """The fence is a plain counter, which a failover sets back."""

    scenario = "failover"

    def _new_epoch(self) -> None:
        fences = dict(self._fences)
        super()._new_epoch()
        self._fences = fences


class NewEpochGrantsAtOnce(CheckedStore):
    scenario = "failover"

    def _new_epoch(self) -> None:
        super()._new_epoch()
        self._quarantined_until = 0.0


class ClaimsExpireByWallClock(CheckedStore):
    """A step of the wall clock ends claims, or extends them."""

    def _now(self) -> float:
        before, now = self._offset, super()._now()
        for entry in self._open.values():
            entry.expires -= self._offset - before
        return now


class MarginDoesNotCoverClockStep(CheckedStore):
    """The store ignores clock steps that are larger than the margin of trust."""

    unnoticed_s = 2.5


class LostFireIsAlwaysRerun(Node):
    def _start_attempt(self, holding: HeldClaim, job: Job | None, now: datetime) -> Verdict | None:
        claim = holding.claim
        if claim.disposition and claim.disposition.kind == "lost":
            fire = claim.fire._replace(policy=claim.fire.policy._replace(on_lost="rerun"))
            return settle(End(claim.disposition), claim._replace(fire=fire), self.ports.rng)
        return super()._start_attempt(holding, job, now)


class ClaimTrustCountsFromReply(Node):
    """Trust in a claim counts from the reply, not from when the request was sent."""

    def _start_attempt(self, holding: HeldClaim, job: Job | None, now: datetime) -> Verdict | None:
        holding.renewed = self.ports.monotonic()
        return super()._start_attempt(holding, job, now)


class RenewalTrustCountsFromReply(Node):
    """Trust in a renewal counts from the reply, not from when the request was sent."""

    def _apply_renewal(self, holding: HeldClaim, stop: Outcome | None, sent: float) -> None:
        super()._apply_renewal(holding, stop, self.ports.monotonic())


class UnreportedWorkIsNotRenewed(Node):
    """The node stops renewing finished work before its report has arrived."""

    scenario = "gentle"

    def _settle(self, holding: HeldClaim, verdict: Verdict, end: End) -> None:
        super()._settle(holding, verdict, end)
        holding.is_lost = True  # only what is not lost is renewed


class NodeOversleeps(Node):
    """The node sleeps for its idle time, although the store says when the next fire is due."""

    scenario = "calm"

    async def _claim(self) -> float:
        await super()._claim()
        return self.tuning.idle_s


class RetryDoesNotWakeNode(Node):
    """The node does not wake up when its retry is due."""

    scenario = "calm"

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


class WorkIsStoppedOnlyByNode(SimWarden):
    running_type = StoppedOnlyByNode


class WardenStartsExpiredWork(SimWarden):
    """The warden starts work whose claim expired after the node, which was then stopped, checked it."""

    def start(self, work: Work, claim: Claim, trusted_by: float) -> SimRunning:
        return super().start(work, claim, max(trusted_by, self.loop.time() + 10))


class DeathIsDeclaredTooSoon(SimWarden):
    """The lock of an instance is free while some of its work still runs."""

    @property
    def is_gone(self) -> bool:
        return True

    def hang_up(self) -> None:
        self.forget_orders()
        for running in self.works:
            running.stop(Outcome("lost", "its node died", "node-lost"), kill_after_s=5.0)


MUTANTS: list[type] = [
    one
    for one in list(globals().values())
    if isinstance(one, type)
    and issubclass(one, Node | CheckedStore | SimWarden)
    and one.__module__ == __name__
]
KINDS: dict[type, str] = {Node: "node_type", CheckedStore: "store_type", SimWarden: "warden_type"}


def scenario_of(mutant: type) -> str:
    return getattr(mutant, "scenario", "rough")


def planted(mutant: type) -> dict[str, Any]:
    """The arguments of `Sim` that plant the bug."""
    return {name: mutant for kind, name in KINDS.items() if issubclass(mutant, kind)}
