"""Describes a job with its next and last fire and its state."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from detent.manifest.check import Manifest
from detent.model import Job, Row
from detent.schedules.timetable import fires_at_boot
from detent.views.formatting import iso
from detent.views.job_text import canonical_job
from detent.views.json_records import names_record, outcome_record
from detent.views.pauses import Pause, pause_record


class JobStatus(NamedTuple):
    name: str
    canonical: Mapping[str, Any]  # empty: the manifest does not have the job
    enabled: bool
    next_at: datetime | None = None
    pause: Pause | None = None
    running: int = 0
    last: Row | None = None
    at_boot: bool = False


def job_status(manifest: Manifest, name: str, job: Job | None, now: datetime) -> JobStatus:
    next_at = job.schedule.after(now) if job else None
    at_boot = job is not None and fires_at_boot(job.schedule, now)
    return JobStatus(name, canonical_job(manifest, name), job is not None, next_at, at_boot=at_boot)


def job_record(row: JobStatus) -> dict[str, Any]:
    return {
        **names_record(row.name),
        "schedules": row.canonical.get("schedules", []),
        "at": row.canonical.get("at"),
        "after": row.canonical.get("after", []),
        "timezone": row.canonical["timezone"],
        "next_due_at": iso(row.next_at),
        "enabled": row.enabled,
        "paused": row.pause is not None,
        "pause": pause_record(row.pause) if row.pause else None,
        "running": row.running,
        "last": last_record(row.last) if row.last else None,
    }


def last_record(row: Row) -> dict[str, Any]:
    times = {"due_at": iso(row.fire.due_at), "over_at": iso(row.over_at)}
    return {"fire": row.fire.key, **times, **outcome_record(row.outcome)}


def job_state(row: JobStatus) -> str:
    may_end = bool(row.canonical) and not row.at_boot and "after" not in row.canonical
    states = [
        f"running {row.running}" if row.running > 1 else "running" if row.running else "",
        "paused" if row.pause else "",
        "" if row.enabled else "disabled",
        "ended" if may_end and row.enabled and row.next_at is None else "",
    ]
    return ", ".join(filter(None, states))
