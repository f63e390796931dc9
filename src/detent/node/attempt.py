"""One claim from grant to verdict: admit it, start its work, keep it while it is trusted, settle it.

A claim is trusted until a margin before it may expire, counted from the moment at which the request
that was answered was sent.  Who starts the work compares that instant with the clock, not the node:
the node may be stopped between a check and a start.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Sequence
from random import Random
from typing import Protocol

from detent.core.settle import give_back, held_back, settle
from detent.model import Claim, End, Job, Outcome, Verdict, Work

MARGIN_LEAST_S = 0.5


class Running(Protocol):
    """The work of one attempt, under way."""

    @property
    def gone(self) -> Awaitable[End]:
        """Resolved when nothing of it runs any more."""

    def extend(self, trusted_by: float) -> None: ...

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None: ...


class LaneHeld(Exception):
    """Processes of an earlier fire still hold its lane on this host, whatever the store knows of them."""

    def __init__(self, pids: Sequence[int]) -> None:
        named = f" {', '.join(map(str, pids[:5]))}" if pids else ""
        super().__init__(f"a process of an earlier fire still runs on this host{named and ':' + named}")


class Starter(Protocol):
    async def start(self, work: Work, claim: Claim, trusted_by: float) -> Running | None:
        """Start the work, to be gone by `trusted_by` at the latest.  None: it is too late.  LaneHeld: its
        lane is taken, and nothing was started."""


class Holding:
    """A claim that this node holds, until the store has settled it."""

    def __init__(self, claim: Claim, sent: float) -> None:
        self.claim = claim
        self.running: Running | None = None
        self.told: Outcome | None = None  # to stop, and why
        self.renewed = sent
        self.lost = False  # the store says that it is no longer ours
        self.settled = False  # its verdict is on the way to the store

    @property
    def trusted_by(self) -> float:
        return self.renewed + self.claim.ttl_s - margin_s(self.claim.ttl_s)

    @property
    def renew_at(self) -> float:
        return self.renewed + self.claim.ttl_s / 6

    def renew(self, sent: float) -> None:
        self.renewed = max(self.renewed, sent)
        if self.running:
            self.running.extend(self.trusted_by)

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None:
        self.told = self.told or why
        if self.running:
            self.running.stop(self.told, kill_after_s)


def margin_s(ttl_s: float) -> float:
    """So long before a claim may expire it is not trusted any more."""
    return max(MARGIN_LEAST_S, ttl_s / 10)


async def attempt(holding: Holding, job: Job, starter: Starter, rng: Random) -> tuple[Verdict, End]:
    """Run what the claim is for, and judge how it ended."""
    claim, work = holding.claim, work_of(job, holding.claim)
    if work is None:
        return _settled(Verdict(Outcome("cancelled", "its job has no such hook any more")))
    if holding.told:
        return _settled(Verdict(holding.told))
    try:
        holding.running = await starter.start(work, claim, holding.trusted_by)
    except LaneHeld as held:
        return _settled(held_back(claim, str(held)))
    if holding.running is None:
        return unused("the grant came too late")
    holding.renew(holding.renewed)  # it may have been renewed, or told to stop, while it was started
    if holding.told:
        holding.running.stop(holding.told)
    end = await gone(holding.running)
    return settle(end, claim, rng), end


def work_of(job: Job, claim: Claim) -> Work | None:
    """What this fire of the job carries out; None: a hook that the job no longer has."""
    if claim.fire.origin != "hook":
        return job.work
    return job.hooks.get(json.loads(claim.fire.payload)["hook"])


def unused(reason: str) -> tuple[Verdict, End]:
    """The claim goes back: nothing was started."""
    return _settled(give_back(reason))


async def abandon(holding: Holding) -> tuple[Verdict, End]:
    """Something of ours broke: end the work, if there is any, and have the fire over."""
    outcome = Outcome("failed", "internal error")
    if holding.running:
        holding.stop(outcome)
        await gone(holding.running)
    return _settled(Verdict(outcome))


async def gone(running: Running) -> End:
    return await asyncio.shield(asyncio.ensure_future(running.gone))


def _settled(verdict: Verdict) -> tuple[Verdict, End]:
    return verdict, End(verdict.outcome)
