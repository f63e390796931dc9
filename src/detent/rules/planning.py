"""Which instants become fires, and what becomes of those of an outage?  Pure.

A plan covers every instant from the job's watermark until a little ahead of the store's now.  What is
too late to be run by the job's `catch_up` is missed already: such instants are one row together, a
span.  The rest are fires, one an instant; `rules.lanes` judges them when they are due.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from itertools import islice

from detent.model import Fire, Job, Plan, Policy, Watermark
from detent.rules.lanes import LATE_S

AHEAD_S = 120.0  # so far are fires planned
SCAN_MAX = 100_000  # instants looked at for one plan; a longer outage takes several
CATCH_UP_MAX = {"skip": 0, "latest": 1, "all": 100}
_LATE = timedelta(seconds=LATE_S)
_RESOLUTION = timedelta(seconds=1)  # instants are whole seconds
_QUIET_MAX = timedelta(minutes=15)  # so soon is it noticed that nobody plans a job any more
ON_TIME_MIN_S = 5.0  # a start that is no later than this is no outage, however often the job is due
HOOK_POLICY = Policy(concurrency="Allow", timeout_s=30.0)
UNPLANNED_START_S = 3600.0  # a hook or a manual fire that nobody could start for so long is given up


def plan(
    job: Job, watermark: Watermark, now: datetime, ahead_s: float = AHEAD_S, most: int = SCAN_MAX
) -> Plan:
    """Every instant of `job` from its watermark until a little ahead of the store's `now`, or until `most`
    instants that are not due yet."""
    end = max(watermark.at, now + timedelta(seconds=ahead_s))
    past = list(islice(job.schedule.between(watermark.at, min(now, end)), SCAN_MAX))
    room = 0 if len(past) == SCAN_MAX else most
    ahead = list(islice(job.schedule.between(max(watermark.at, now), end), room))
    until = [*past, *ahead][-1] if len(ahead) == room else _quiet_until(job, end)
    missed = _count_missed(job, past, now)
    fires = [*_span(job, past[:missed]), *_fires(job, past[missed:] + ahead)]
    return Plan(job.name, job.revision, watermark.at, until, tuple(fires))


def fire_at(job: Job, due_at: datetime) -> Fire:
    """The one fire of `job` at `due_at`."""
    policy, key = job.policy, key_of(job.name, due_at)
    limit_s = policy.start_deadline_s or (_on_time_s(job, due_at) if policy.catch_up == "skip" else 0.0)
    return Fire(
        key=key,
        job=job.name,
        due_at=due_at,
        run_id=run_id(due_at, key),
        queue=job.queue,
        lane=lane_of(job),
        start_by=due_at + timedelta(seconds=limit_s) if limit_s else None,
        policy=policy,
        revision=job.revision,
    )


def manual_fire(job: Job, due_at: datetime, token: str) -> Fire:
    """A fire that somebody asked for now; `token` is what tells it from another."""
    key = f"{key_of(job.name, due_at)}+{token}"
    start_by = due_at + timedelta(seconds=UNPLANNED_START_S)
    return fire_at(job, due_at)._replace(
        key=key, run_id=run_id(due_at, key), origin="manual", start_by=start_by
    )


def hook_fire(fire: Fire, hook: str, due_at: datetime, told: Mapping[str, object]) -> Fire:
    """The fire that calls a hook of `fire`'s job.  It has no lane, and is attempted once."""
    key = f"{fire.key}/{hook}"
    return Fire(
        key=key,
        job=fire.job,
        due_at=due_at,
        run_id=run_id(fire.due_at, key),
        queue=fire.queue,
        start_by=due_at + timedelta(seconds=UNPLANNED_START_S),
        policy=HOOK_POLICY,
        origin="hook",
        revision=fire.revision,
        payload=json.dumps({"hook": hook, "fire": fire.key, "due": rfc3339(fire.due_at), **told}),
        first_at=fire.due_at,
    )


def lane_of(job: Job) -> str:
    return "" if job.policy.concurrency == "Allow" else job.name


def key_of(job: str, due_at: datetime) -> str:
    return f"{job}@{rfc3339(due_at)}"


def rfc3339(instant: datetime) -> str:
    return instant.isoformat(timespec="seconds")[:19] + "Z"


@lru_cache(maxsize=4096)  # every node of a fleet, and every repeated plan, names the same fires
def run_id(due_at: datetime, key: str) -> str:
    """A UUIDv7 that every node computes alike: the due instant, and a hash of the key."""
    digest = int.from_bytes(sha256(key.encode()).digest()[:10], "big")
    last = f"{2 << 62 | digest & (1 << 62) - 1:016x}"
    return f"{_uuid_start(due_at)}-7{digest >> 62 & 0xFFF:03x}-{last[:4]}-{last[4:]}"


@lru_cache(maxsize=256)  # many messages are pushed at once
def _uuid_start(due_at: datetime) -> str:
    text = f"{int(due_at.timestamp() * 1000) & (1 << 48) - 1:012x}"
    return f"{text[:8]}-{text[8:]}"


def _quiet_until(job: Job, until: datetime) -> datetime:
    """Nothing is due before the next instant: until then a job need not be planned again."""
    most, following = until + _QUIET_MAX, job.schedule.after(until)
    return max(until, min(following - _RESOLUTION, most) if following else most)


def _count_missed(job: Job, past: list[datetime], now: datetime) -> int:
    """How many of the oldest instants are too late already."""
    late = sum(at + _LATE < now for at in past)
    kept = CATCH_UP_MAX[job.policy.catch_up]
    if job.policy.catch_up == "latest" and (len(past) > late or len(past) == SCAN_MAX):
        kept = 0  # a newer one is due in its own time, or will be found by the next plan
    return max(0, late - kept)


def _on_time_s(job: Job, due_at: datetime) -> float:
    """How late an instant may start under `skip`: until the next one is due, so that after an outage only the
    newest runs."""
    following = job.schedule.after(due_at)
    gap_s = (following - due_at).total_seconds() if following else LATE_S
    return min(max(gap_s, ON_TIME_MIN_S), LATE_S)


def _span(job: Job, missed: list[datetime]) -> list[Fire]:
    if not missed:
        return []
    last = fire_at(job, missed[-1])._replace(start_by=missed[-1])
    if len(missed) == 1:
        return [last]
    key = f"{key_of(job.name, missed[0])}..{rfc3339(missed[-1])}"
    return [last._replace(key=key, run_id=run_id(missed[0], key), first_at=missed[0], instants=len(missed))]


def _fires(job: Job, instants: list[datetime]) -> list[Fire]:
    fires = [fire_at(job, at) for at in instants]
    hooks = [hook for hook in job.policy.hooks if hook.startswith("on_late")]
    after = timedelta(seconds=job.policy.late_after_s)
    late = f"not started {job.policy.late_after_s:g} s after it was due"
    told = {"outcome": "", "reason": late, "cause": ""}
    return fires + [hook_fire(fire, hook, fire.due_at + after, told) for fire in fires for hook in hooks]
