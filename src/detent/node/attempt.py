"""One claim from grant to verdict: start its work, keep it while it is trusted, judge how it ended.

A claim is trusted until a margin before it may expire, counted from the moment at which the request
that was answered was sent.  Who starts the work compares that instant with the clock, not the node:
the node may be stopped between a check and a start.
"""

from __future__ import annotations

import json
from random import Random

from detent.model import Claim, End, Fire, Job, Outcome, Verdict, Work
from detent.rules.settling import lane_busy, return_claim, settle
from detent.rules.trust import renew_s, trusted_by
from detent.runners.running import AttemptEnd, Running, Starter


class HeldClaim:
    """A claim that this node holds, until the store has settled it."""

    __slots__ = ("claim", "lost", "renewed", "running", "settled", "stop_reason")

    def __init__(self, claim: Claim, sent: float) -> None:
        self.claim = claim
        self.running: Running | None = None
        self.stop_reason: Outcome | None = None  # to stop, and why
        self.renewed = sent
        self.lost = False  # the store says that it is no longer ours
        self.settled = False  # its verdict is on the way to the store

    @property
    def trusted_by(self) -> float:
        return trusted_by(self.renewed, self.claim.ttl_s)

    @property
    def renew_at(self) -> float:
        return self.renewed + renew_s(self.claim.ttl_s)

    def renew(self, sent: float) -> None:
        self.renewed = max(self.renewed, sent)
        if self.running:
            self.running.extend(self.trusted_by)

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None:
        self.stop_reason = self.stop_reason or why
        if self.running:
            self.running.stop(self.stop_reason, kill_after_s)


def start(holding: HeldClaim, work: Work, starter: Starter) -> Verdict | None:
    """Have what the claim is for started.  A verdict: it was told to stop before."""
    if holding.stop_reason:
        return Verdict(holding.stop_reason)
    holding.running = starter.start(work, holding.claim, holding.trusted_by)
    return None


def work_of(job: Job, claim: Claim) -> Work | None:
    """What this fire of the job carries out; None: a hook that the job no longer has."""
    if claim.fire.origin != "hook":
        return job.work
    return job.hooks.get(json.loads(claim.fire.payload)["hook"])


def judge_end(claim: Claim, went: AttemptEnd, rng: Random) -> tuple[Verdict, End]:
    """What becomes of the fire."""
    if isinstance(went, End):
        return settle(went, claim, rng), went
    if went is None:
        return not_started(return_claim("the grant came too late", "claim-lost"))
    return not_started(lane_busy(claim, str(went)))


def not_started(verdict: Verdict) -> tuple[Verdict, End]:
    """Nothing was started."""
    return verdict, End(verdict.outcome)


def is_other_revision(fire: Fire, job: Job | None) -> bool:
    """Was it planned by another definition of the job than this one?"""
    return job is not None and fire.origin != "hook" and fire.revision not in ("", job.revision)


def with_policy_of(job: Job | None, claim: Claim) -> Claim:
    """The claim with the policy of the definition that is in force: work and policy are of one revision.
    The store still counts it in the lane it was recorded with."""
    return claim._replace(fire=claim.fire._replace(policy=job.policy)) if job else claim


def is_sentenced(claim: Claim) -> bool:
    """Is it only to be settled?  Then it takes no place; a hook has its own anyway."""
    return claim.disposition is not None and claim.fire.origin != "hook"
