"""The claims of a node: start their work, keep it running while a claim is trusted, judge its end.

A claim is trusted until shortly before it can expire.  The time counts from when the node sent the request
that granted or renewed it.  The process that starts the work checks this deadline, not the node: the node
may be suspended between the check and the start.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from detent.model import Claim, End, Fire, Job, Outcome, Verdict, Work
from detent.rules.settling import lane_busy, return_claim, settle
from detent.rules.trust import renew_s, trusted_by
from detent.stores.base import is_hook

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


class HeldClaims:
    """The claims that a node holds: how much room they leave, and when they must be renewed."""

    def __init__(self) -> None:
        self._by_fence: dict[int, HeldClaim] = {}
        self.hooks = 0
        self._decided = 0
        self._renew_by = math.inf  # no claim must be renewed before this time

    def add(self, claims: Sequence[HeldClaim]) -> None:
        self._by_fence.update((held.claim.fence, held) for held in claims)
        self.hooks += sum([is_hook(held.claim.fire) for held in claims])
        self._decided += sum([_is_decided(held.claim) for held in claims])
        self._renew_by = min(self._renew_by, *(held.renew_at for held in claims))

    def remove(self, claim: Claim) -> None:
        del self._by_fence[claim.fence]
        self.hooks -= is_hook(claim.fire)
        self._decided -= _is_decided(claim)

    @property
    def work(self) -> int:
        """The number of claims that take a place: hooks have their own, dispositions need none."""
        return len(self._by_fence) - self.hooks - self._decided

    def renew_in_s(self, now: float) -> float:
        """Return the time until the next renewal is due."""
        if now >= self._renew_by:
            self._renew_by = min((held.renew_at for held in self.to_renew()), default=math.inf)
        return self._renew_by - now

    def to_renew(self) -> list[HeldClaim]:
        return [held for held in self if not held.is_lost]

    def __contains__(self, fence: int) -> bool:
        return fence in self._by_fence

    def __iter__(self) -> Iterator[HeldClaim]:
        return iter(self._by_fence.values())

    def __len__(self) -> int:
        return len(self._by_fence)


def _is_decided(claim: Claim) -> bool:
    """The store decided that the fire must not run: the node only settles it."""
    return claim.disposition is not None and not is_hook(claim.fire)


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
