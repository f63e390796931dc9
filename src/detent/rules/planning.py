"""Decides which instants of a schedule become fires, and which instants of an outage are missed.

A plan covers every instant from the job's watermark until shortly after the store's current time.  Instants
that `catch_up` rules out are recorded together as one missed span.  Every other instant becomes a fire of its
own, and `rules.lanes` decides about it when it is due.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import islice

from detent.model import Fire, Job, Plan, Policy, Retries, Watermark
from detent.rules.alerts import is_alert, is_repeated
from detent.rules.lanes import LATE_S

AHEAD_S = 120.0  # fires are planned this far into the future
SCAN_MAX = 100_000  # instants per plan; a longer outage takes several plans
CATCH_UP_MAX = {"skip": 0, "latest": 1, "all": 100}
_LATE = timedelta(seconds=LATE_S)
_RESOLUTION = timedelta(seconds=1)  # instants are whole seconds
_QUIET_MAX = timedelta(minutes=15)  # each job is planned at least this often, so an unplanned job is noticed
ON_TIME_MIN_S = 5.0  # a smaller delay is not an outage, however often the job is due
HOOK_POLICY = Policy(concurrency="Allow", timeout_s=30.0)
ALERT_POLICY = HOOK_POLICY._replace(  # an alert twice is better than none
    retries=Retries(max_attempts=4, min_s=10.0, max_s=60.0), on_lost="rerun"
)
UNPLANNED_START_S = 3600.0  # a hook or manual fire that has not started by then is missed


def plan(
    job: Job, watermark: Watermark, now: datetime, ahead_s: float = AHEAD_S, limit: int = SCAN_MAX
) -> Plan:
    """Plan `job` from its watermark until `ahead_s` after the store's `now`, or `limit` instants ahead."""
    end = max(watermark.at, now + timedelta(seconds=ahead_s))
    past = list(islice(job.schedule.between(watermark.at, min(now, end)), SCAN_MAX))
    room = 0 if len(past) == SCAN_MAX else limit
    ahead = list(islice(job.schedule.between(max(watermark.at, now), end), room))
    until = [*past, *ahead][-1] if len(ahead) == room else _quiet_until(job, end)
    missed = _count_missed(job, past, now)
    fires = [*_span(job, past[:missed]), *_fires(job, past[missed:] + ahead)]
    return Plan(job.name, job.revision, watermark.at, until, tuple(fires))


def fire_at(job: Job, due_at: datetime) -> Fire:
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
    """Return a fire that a person or a program requested; `token` makes it unique."""
    key = f"{key_of(job.name, due_at)}+{token}"
    start_by = due_at + timedelta(seconds=UNPLANNED_START_S)
    return fire_at(job, due_at)._replace(
        key=key, run_id=run_id(due_at, key), origin="manual", start_by=start_by
    )


def hook_fire(fire: Fire, hook: str, due_at: datetime, details: Mapping[str, object]) -> Fire:
    """Return the fire that calls a hook of `fire`'s job.  It has no lane.  Only an alert is retried."""
    key = f"{fire.key}/{hook}"
    return Fire(
        key=key,
        job=fire.job,
        due_at=due_at,
        run_id=run_id(fire.due_at, key),
        queue=fire.queue,
        start_by=due_at + timedelta(seconds=UNPLANNED_START_S),
        policy=_hook_policy(hook, fire.policy.remind_s),
        origin="hook",
        revision=fire.revision,
        payload=json.dumps({"hook": hook, "fire": fire.key, "due": rfc3339(fire.due_at), **details}),
        first_at=fire.due_at,
    )


def _hook_policy(hook: str, remind_s: float) -> Policy:
    if not is_alert(hook):
        return HOOK_POLICY
    return ALERT_POLICY._replace(remind_s=remind_s) if is_repeated(hook) else ALERT_POLICY


def lane_of(job: Job) -> str:
    return "" if job.policy.concurrency == "Allow" else job.name


def key_of(job: str, due_at: datetime) -> str:
    return f"{job}@{rfc3339(due_at)}"


def rfc3339(instant: datetime) -> str:
    return instant.isoformat(timespec="seconds")[:19] + "Z"


def run_id(due_at: datetime, key: str) -> str:
    """Return a UUIDv7 made of the due instant and a hash of the key.  Every node computes the same one."""
    milliseconds = int(due_at.timestamp() * 1000) & (1 << 48) - 1
    digest = int.from_bytes(sha256(key.encode()).digest()[:10], "big")
    random_a, random_b = digest >> 62 & 0xFFF, digest & (1 << 62) - 1
    text = f"{milliseconds << 80 | 7 << 76 | random_a << 64 | 2 << 62 | random_b:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _quiet_until(job: Job, until: datetime) -> datetime:
    """Return how far a plan reaches: just before the next instant, because nothing is due until then."""
    latest, following = until + _QUIET_MAX, job.schedule.after(until)
    return max(until, min(following - _RESOLUTION, latest) if following else latest)


def _count_missed(job: Job, past: list[datetime], now: datetime) -> int:
    """Return how many of the oldest instants `catch_up` rules out."""
    late = sum(at + _LATE < now for at in past)
    kept = CATCH_UP_MAX[job.policy.catch_up]
    if job.policy.catch_up == "latest" and (len(past) > late or len(past) == SCAN_MAX):
        kept = 0  # a newer instant is on time, or the next plan finds one
    return max(0, late - kept)


def _on_time_s(job: Job, due_at: datetime) -> float:
    """Return how late a fire may start under `skip`: until the next one is due, so only the newest runs."""
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
    delay = timedelta(seconds=job.policy.late_after_s)
    reason = f"not started {job.policy.late_after_s:g} s after it was due"
    details = {"outcome": "", "reason": reason, "cause": ""}
    return fires + [hook_fire(fire, hook, fire.due_at + delay, details) for fire in fires for hook in hooks]
