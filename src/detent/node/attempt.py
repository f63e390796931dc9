"""One claim of a node: start its work, keep it running while the claim is trusted, judge its end.

A claim is trusted until shortly before it can expire.  The time counts from when the node sent the request
that granted or renewed it.  The process that starts the work checks this deadline, not the node: the node
may be suspended between the check and the start.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from detent.model import Claim, End, Fire, Job, Outcome, Verdict, Work
from detent.rules.settling import lane_busy, return_claim, settle
from detent.rules.trust import renew_s, trusted_by

if TYPE_CHECKING:
    from random import Random

    from detent.runners.running import AttemptEnd, Running, Starter


class HeldClaim:
    """A claim that this node holds until the store has recorded its verdict."""

    __slots__ = ("claim", "is_lost", "is_settled", "renewed", "running", "stop_reason")

    def __init__(self, claim: Claim, sent: float) -> None:
        self.claim = claim
        self.renewed = sent  # when the last successful claim or renewal was sent
        self.running: Running | None = None
        self.stop_reason: Outcome | None = None  # set once the work has to stop
        self.is_lost = False  # the store says that the claim is no longer ours
        self.is_settled = False  # the verdict is on its way to the store

    @property
    def trusted_by(self) -> float:
        return trusted_by(self.renewed, self.claim.ttl_s)

    @property
    def renew_at(self) -> float:
        return self.renewed + renew_s(self.claim.ttl_s)

    def start(self, work: Work, starter: Starter) -> Verdict | None:
        """Start the work, or return a verdict if the claim was stopped before it started."""
        if self.stop_reason:
            return Verdict(self.stop_reason)
        self.running = starter.start(work, self.claim, self.trusted_by)
        return None

    def renew(self, sent: float) -> None:
        self.renewed = max(self.renewed, sent)
        if self.running:
            self.running.extend(self.trusted_by)

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None:
        self.stop_reason = self.stop_reason or why
        if self.running:
            self.running.stop(self.stop_reason, kill_after_s)


def work_of(job: Job, claim: Claim) -> Work | None:
    """Return what a fire of the job runs, or None for a hook that the job no longer has."""
    if claim.fire.origin != "hook":
        return job.work
    return job.hooks.get(json.loads(claim.fire.payload)["hook"])


def judge_end(claim: Claim, end: AttemptEnd, rng: Random) -> tuple[Verdict, End]:
    """Turn the end of an attempt into a verdict on the fire."""
    if isinstance(end, End):
        return settle(end, claim, rng), end
    if end is None:
        return not_started(return_claim("the grant came too late", "claim-lost"))
    return not_started(lane_busy(claim, str(end)))


def not_started(verdict: Verdict) -> tuple[Verdict, End]:
    return verdict, End(verdict.outcome)


def is_other_revision(fire: Fire, job: Job | None) -> bool:
    """Return whether another revision of the job planned this fire."""
    return job is not None and fire.origin != "hook" and fire.revision not in ("", job.revision)


def with_policy_of(job: Job | None, claim: Claim) -> Claim:
    """Give the claim the policy of the job, so that work and policy are from one revision.  The store still
    counts the fire in the lane that it was recorded with."""
    return claim._replace(fire=claim.fire._replace(policy=job.policy)) if job else claim
