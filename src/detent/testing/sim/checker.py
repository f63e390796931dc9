"""Checks the guarantees in the simulator: at every launch, at every grant, and at the end.

`Shadow` is the expected state of the store; a failover rolls it back with the store.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from detent.model import Claim, Command, Fire, Job, Outcome, Watermark, Work
from detent.rules.planning import fire_at, lane_of
from detent.stores.engine.record import Record

REPORT_S = 600.0  # a node that lived this much longer had time to report how a fire ended
SETTLE_S = 2.0  # if only nodes die, a verdict reaches the store within this time
FAILURES = ("failed", "timed-out", "lost", "missed", "rejected")


class Launch(NamedTuple):
    fence: int
    attempt: int
    node: str


class Final(NamedTuple):
    outcome: Outcome
    node: str
    at: float
    fire: Fire


class InForce(NamedTuple):
    """One revision of a job was in force in (since, until]."""

    job: Job
    since: datetime
    until: datetime


class Shadow:
    """What the store must contain in the end: each due instant once, in one final state."""

    def __init__(self) -> None:
        self.finals: dict[str, list[Final]] = defaultdict(list)
        self.in_force: dict[str, tuple[Job, datetime]] = {}
        self.past: list[InForce] = []
        self.reached: dict[str, datetime] = {}  # each job's newest instant that was ever claimed or cancelled
        self.pushed: set[str] = set()
        self.hooks: set[str] = set()  # the keys of recorded hooks
        self.graces: dict[str, list[float]] = defaultdict(list)  # lane -> when its newest graces end

    def revise(
        self, jobs: Mapping[str, Job], before: Mapping[str, Watermark], after: Mapping[str, Watermark]
    ) -> None:
        """The new revision of a changed job is in force from where the store resumes its plan.  What is
        planned of a removed job stays with the old revision."""
        for name in list(self.in_force | dict(jobs)):
            new = jobs.get(name)
            old, since = self.in_force.get(name, (None, None))
            if old and new and old.revision == new.revision:
                continue
            if old and since is not None:
                end = after[name].at if new else before[name].at
                self.past.append(InForce(old, since, end))
                del self.in_force[name]
            if new:
                begin = after[name].at
                self.in_force[name] = new, begin
                # A job that returns withdraws what was planned after this instant and not attempted.
                self.past = [
                    one._replace(until=min(one.until, begin)) if one.job.name == new.name else one
                    for one in self.past
                ]

    def resumes_wrongly(self, name: str, before: Watermark | None, after: Watermark, now: datetime) -> str:
        """What is wrong with where the plan resumes: it may go back to instants that were not attempted, but
        not ahead of now, and not behind a launch."""
        reached = self.reached.get(name)
        latest = max(now, reached or now)
        if after.at > min(latest, before.at if before else latest):
            return f"{name} resumes at {after.at}, and leaves out what is due before"
        if reached and after.at < min(reached, before.at if before else reached):
            return f"{name} resumes at {after.at}, and reached {reached} before"
        return ""

    def copy(self) -> Shadow:
        other = Shadow()
        other.finals.update((key, list(finals)) for key, finals in self.finals.items())
        other.graces.update((lane, list(ends)) for lane, ends in self.graces.items())
        other.in_force, other.past = dict(self.in_force), list(self.past)
        other.reached, other.pushed, other.hooks = dict(self.reached), set(self.pushed), set(self.hooks)
        return other

    def begin_grace(self, fire: Fire, now: float) -> None:
        """The lane of the fire stays free for a while.  The graces of the lane that ended are forgotten."""
        current = [end for end in self.graces[fire.lane] if end > now]
        self.graces[fire.lane] = [*current, now + fire.policy.grace_s]

    def reach(self, fire: Fire) -> None:
        if fire.origin == "schedule":
            self.reached[fire.job] = max(fire.due_at, self.reached.get(fire.job, fire.due_at))

    def end(self, record: Record, job: Job | None, at: float) -> None:
        """Record the end of a fire; the end of a span is the end of each of its instants."""
        fire = record.fire
        assert record.outcome
        final = Final(record.outcome, record.node, at, fire)
        if fire.origin == "hook":
            return
        for key in keys_of(fire, job):
            self.finals[key].append(final)

    def expected(self, until: datetime) -> set[str]:
        keys = set(self.pushed)
        for job, since, end in self.past + [InForce(*force, until) for force in self.in_force.values()]:
            keys.update(fire_at(job, at).key for at in job.schedule.between(since, min(end, until)))
        return keys


class Checker:
    """Observes every launch, end and event.  A failover does not roll it back."""

    def __init__(self) -> None:
        self.inside: dict[str, dict[int, Claim]] = defaultdict(dict)  # lane -> the claims that run
        self.launches: dict[str, list[Launch]] = defaultdict(list)
        self.ended: dict[str, tuple[Outcome, float]] = {}  # key -> how and when its last work ended
        self.top_fence: dict[str, int] = defaultdict(int)
        self.events: Counter[str] = Counter()
        self.over: Counter[tuple[str, str]] = Counter()  # (key, outcome) -> final events
        self.steps = 0
        self.floors: list[int] = []  # where the fences of each new epoch start
        self.deaths: dict[str, float] = {}  # life -> when
        self.is_punctual = False  # no faults: every due fire is claimed at once
        self.only_deaths = False  # only nodes die: a verdict is in the store at once
        self.broken: list[str] = []
        self.grants: Counter[str] = Counter()  # key -> how often it was claimed
        self.kept: set[str] = set()  # planned by an older revision, and not planned again
        self.revisions: Mapping[str, Mapping[str, Job]] = {}  # of each job, by name

    @property
    def failovers(self) -> int:
        return len(self.floors)

    def fail(self, what: str) -> None:
        self.broken.append(what)

    def begin(self, work: Work, claim: Claim) -> None:
        """Check whether this work may start."""
        if isinstance(work, Command) and (job := self.revisions.get(claim.fire.job, {}).get(work.words[0])):
            self.check_revision(job, claim)
        self.enter(claim)

    def check_revision(self, job: Job, claim: Claim) -> None:
        """Work and policy are of one revision of the job.  So is the lane, unless the fire was claimed
        before: a retry, or a fire that was given back, stays in the lane that it was recorded with.  So does
        a fire behind an instant that was claimed: its plan is not made again."""
        fire = claim.fire
        if not fire.revision:
            return  # a manual fire has a policy of its own
        if fire.policy != job.policy:
            self.fail(f"{fire.key} runs the work of {job.revision!r} under a policy of {fire.revision!r}")
        is_first = self.grants[fire.key] == 1 and not self.failovers and fire.key not in self.kept
        if fire.origin == "schedule" and is_first and fire.lane != lane_of(job):
            self.fail(f"{fire.key} runs the work of {job.revision!r} in the lane of {fire.revision!r}")

    def enter(self, claim: Claim) -> None:
        fire, lane = claim.fire, claim.fire.lane or claim.fire.key
        width, inside = fire.policy.max_running if fire.lane else 1, self.inside[lane]
        if len(inside) >= width:
            self.fail(f"lane {lane} of {width}: {fire.key} while {[c.fire.key for c in inside.values()]}")
        for scope in {fire.key, lane if width == 1 else fire.key}:
            if claim.fence <= self.top_fence[scope]:
                self.fail(f"the fence of {scope} fell to {claim.fence:x}")
            self.top_fence[scope] = claim.fence
        self.relaunch(claim)
        self.launches[fire.key].append(Launch(claim.fence, claim.attempt, claim.node))
        inside[claim.fence] = claim

    def relaunch(self, claim: Claim) -> None:
        """A key is launched again only after a failure, by rerun, or after a failover."""
        key, policy = claim.fire.key, claim.fire.policy
        if not self.launches[key]:
            return
        last, (end, at) = self.launches[key][-1], self.ended.get(key, (Outcome("lost", "still at work"), 0.0))
        retried = end.kind in ("failed", "timed-out") and claim.attempt == last.attempt + 1
        rerun = policy.on_lost == "rerun" and self.was_excusable(last, end, at)
        another_era = bisect(self.floors, last.fence) < bisect(self.floors, claim.fence)
        if not (another_era or retried or rerun):
            self.fail(f"{key} was launched again after {end.kind}: {last} then {claim.fence:x}")
        if claim.attempt > max(policy.retries.max_attempts, 2 if policy.on_lost == "rerun" else 1):
            self.fail(f"{key}: attempt {claim.attempt}")

    def was_excusable(self, last: Launch, end: Outcome, at: float) -> bool:
        """Finished work may run again only if its node died before it could report it."""
        died = self.deaths.get(last.node, float("inf"))
        return end.kind == "lost" or not self.only_deaths or died < at + SETTLE_S

    def leave(self, claim: Claim, outcome: Outcome, at: float) -> None:
        del self.inside[claim.fire.lane or claim.fire.key][claim.fence]
        self.ended[claim.fire.key] = outcome, at

    def emit(self, event: str, **fields: Any) -> None:
        self.events[event] += 1
        if "outcome" in fields:
            self.over[fields["fire"], fields["outcome"]] += 1

    def check(self, shadow: Shadow, due: set[str], end: datetime) -> None:
        """Check that each due instant ended once, was launched once, and was reported once."""
        for key in sorted(due):
            if len(finals := shadow.finals.get(key, [])) != 1:
                self.fail(
                    f"{key} ended {len(finals)} times: {finals}, launched {len(self.launches[key])} times"
                )
        for key in sorted(shadow.finals.keys() - shadow.expected(end)):
            if shadow.finals[key][0].outcome.cause != "stopped":  # a stop may come before the due instant
                self.fail(f"{key} is no instant of its job: {shadow.finals[key]}")
        for key, finals in shadow.finals.items():
            self.check_reports(key, finals)
            self.check_hooks(key, finals[-1], shadow)

    def check_reports(self, key: str, finals: list[Final]) -> None:
        """Each end is reported by one node; by none only if that node died before it could."""
        for outcome, node, at, fire in finals:
            had_time = self.deaths.get(node, float("inf")) > at + REPORT_S
            reports, by_hand = self.over[fire.key, outcome.kind], outcome.cause == "stopped"
            if reports > 1 + self.failovers:
                self.fail(f"{key}: {outcome.kind} was reported {reports} times")
            if not reports and had_time and not self.failovers and not by_hand:
                self.fail(f"{key}: {outcome.kind} was never reported by {node}")
            if outcome.kind == "skipped" and self.launches[key] and not self.failovers:
                self.fail(f"{key} was skipped and launched")
            if outcome.kind == "replaced" and same_job(key, outcome.by) and outcome.by < key:
                self.fail(f"{key} was replaced by the older {outcome.by}")

    def check_hooks(self, key: str, final: Final, shadow: Shadow) -> None:
        """The hook of a failure is recorded once, in the same commit."""
        hook, wanted = f"{final.fire.key}/on_failure", "on_failure" in final.fire.policy.hooks
        if wanted and final.outcome.kind in FAILURES and hook not in shadow.hooks:
            self.fail(f"{key}: {final.outcome.kind}, and its hook was never put")
        if hook in shadow.hooks and final.outcome.kind not in FAILURES and not self.failovers:
            self.fail(f"{key}: {final.outcome.kind}, and yet its hook was put")

    def check_none(self, kinds: set[str], shadow: Shadow) -> None:
        """Check that no fire ended in one of these ways, for which the scenario gives no reason."""
        for key, finals in shadow.finals.items():
            outcome = finals[0].outcome
            if outcome.kind in kinds and outcome.cause != "stopped":
                self.fail(f"{key} was {outcome} for nothing: launched {len(self.launches[key])} times")


def keys_of(fire: Fire, job: Job | None) -> list[str]:
    """The key of the fire; for a span, the keys of all its instants."""
    if fire.instants == 1 or job is None or fire.first_at is None:
        return [fire.key]
    instants = job.schedule.between(fire.first_at - timedelta(seconds=1), fire.due_at)
    return [fire_at(job, due_at).key for due_at in instants]


def same_job(key: str, other: str) -> bool:
    return key.partition("@")[0] == other.partition("@")[0] and "@" in key
