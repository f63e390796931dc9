"""JSON records of jobs and fires for the API, in the words of the CLI's `-o json`.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from detent.dashboard.picture import EACH, Picture
from detent.manifest.check import Manifest
from detent.model import DEAD, Job, Kind, Row
from detent.stores.paging import place_of
from detent.views.formatting import iso
from detent.views.job_text import canonical_job, schedule_text
from detent.views.jobs import last_record
from detent.views.json_records import fire_record, names_record, state_text, took_s
from detent.views.pauses import pause_record

LETTERS: Mapping[Kind, str] = {
    "succeeded": "s", "failed": "f", "rejected": "j", "timed-out": "t", "skipped": "k", "replaced": "e",
    "lost": "l", "missed": "m", "cancelled": "c",
}  # fmt: skip


POLICY = (
    "concurrency", "max_running", "timeout_s", "catch_up", "start_deadline_s", "on_lost", "late_after_s",
)  # fmt: skip


class About(NamedTuple):
    """What the manifest says about a job."""

    schedule: str = ""  # "": the manifest does not have the job
    schedules: tuple[str, ...] = ()
    timezone: str = "UTC"
    description: str = ""
    tags: tuple[str, ...] = ()
    queue: str | None = None
    enabled: bool = True
    is_chained: bool = False


def about(manifest: Manifest | None, name: str) -> About:
    """`name` is the job's name in the store."""
    base = name.partition("/")[0]
    if manifest is None or base not in manifest.canonical:
        return About()
    job = canonical_job(manifest, base)
    return About(
        schedule=schedule_text(job),
        schedules=tuple(job.get("schedules", ())),
        timezone=job["timezone"],
        description=job.get("description", ""),
        tags=tuple(job.get("tags", ())),
        queue=job.get("queue", "default"),
        enabled=base not in manifest.disabled,
        is_chained="after" in job,
    )


def job_entry(picture: Picture, name: str, known: About, wrong: Mapping[str, str]) -> dict[str, Any]:
    """A job on the screen Now.  `wrong`: `failing` or `late`, by job."""
    rows = sorted(picture.newest.get(name, {}).values(), key=lambda row: place_of(row.fire))[-EACH:]
    over = [row for row in rows if row.state == "over"]
    running = sum(row.fire.job == name for row in picture.running)
    pause, next_at = picture.pauses.get(name), picture.coming.of(name.partition("/")[0])
    watermark = picture.watermarks.by_job.get(name)
    has_ended = bool(known.schedule) and known.enabled and next_at is None and not known.is_chained
    states = [
        f"running {running}" if running > 1 else "running" if running else "",
        "paused" if pause else "",
        "" if known.enabled else "disabled",
        "ended" if has_ended else "",
        wrong.get(name, ""),
    ]
    return {
        "schedule": known.schedule,
        "next_due_at": iso(next_at),
        "enabled": known.enabled,
        "paused": pause_record(pause) if pause else None,
        "running": running,
        "state": ", ".join(filter(None, states)),
        "last": last_record(over[-1]) if over else None,
        "succeeded_at": iso(watermark.succeeded_at) if watermark else None,
        "spark": "".join(map(_letter, rows)),
        "queue": known.queue,
        **_percentiles(over),
    }


def job_details(name: str, known: About) -> dict[str, Any]:
    return {
        **names_record(name),
        "name": name,
        "description": known.description,
        "tags": [*known.tags],
        "schedules": [*known.schedules],
        "timezone": known.timezone,
    }


def _letter(row: Row) -> str:
    if row.state == "over":
        return LETTERS[row.outcome.kind] if row.outcome else "s"
    return "r" if row.state == "claimed" else "w"


def _percentiles(rows: Iterable[Row]) -> dict[str, Any]:
    took = sorted(seconds for row in rows if (seconds := _took_s(row)) is not None)
    return {f"p{part}_ms": _at(took, part) for part in (50, 95)}


def _took_s(row: Row) -> float | None:
    """Without attempts, the duration of the last one."""
    if row.attempts or not row.attempt or not row.claimed_at or not row.over_at:
        return took_s(row)
    return (row.over_at - row.claimed_at).total_seconds()


def _at(values: list[float], part: int) -> int | None:
    """The nearest-rank percentile, in milliseconds."""
    return round(values[-(-len(values) * part // 100) - 1] * 1000) if values else None


def fire_entry(row: Row) -> dict[str, Any]:
    """A fire in a list."""
    record = fire_record(row) | {"name": row.fire.job, "queue": row.fire.queue, "late_ms": _late_ms(row)}
    if row.state == "claimed":
        record |= {"attempt": row.attempt, "started_at": iso(row.claimed_at)}
    return record


def _late_ms(row: Row) -> int | None:
    """How long after it was due the first attempt started; None: it did not start."""
    started_at = row.attempts[0].started_at if row.attempts else row.claimed_at if row.attempt else None
    return round((started_at - row.fire.due_at).total_seconds() * 1000) if started_at else None


def mark(row: Row, reason_max: int) -> dict[str, Any]:
    """A fire on the timeline."""
    attempts: list[list[Any]] = [
        [_seconds(one.started_at), _seconds(one.ended_at), one.outcome.kind] for one in row.attempts
    ]
    if row.state == "claimed" and row.claimed_at and row.attempt > len(row.attempts):
        attempts.append([_seconds(row.claimed_at), None, "running"])
    said = row.outcome.reason if row.outcome else row.stop.reason if row.stop else ""
    return {
        "job": row.fire.job,
        "due": _seconds(row.fire.due_at),
        "state": state_text(row),
        "reason": said[:reason_max],
        "attempts": attempts,
    }


def _seconds(instant: Any) -> float:
    seconds = round(instant.timestamp(), 2)
    return int(seconds) if seconds == int(seconds) else seconds


def can_change(row: Row, is_retried: bool, jobs: Collection[str]) -> list[str]:
    """What a user may do with the fire.  `is_retried`: its app can sign messages."""
    if row.fire.origin == "hook":
        return []
    if row.state != "over":
        return [] if row.stop else ["kill"]
    if row.fire.origin == "push":
        is_dead = row.outcome is not None and row.outcome.kind in DEAD
        return [*(["retry"] if is_retried else []), "forget"] if is_dead else []
    return ["again"] if row.fire.job.partition("/")[0] in jobs else []


def job_policy(job: Job) -> dict[str, Any]:
    """The policy in force, with its defaults."""
    policy = job.policy
    return {name: getattr(policy, name) for name in POLICY} | {"max_attempts": policy.retries.max_attempts}
