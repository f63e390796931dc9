"""JSON records of jobs and fires for the API, in the words of the CLI's `-o json`.  Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from detent.dashboard.picture import EACH, Picture
from detent.model import DEAD, Job, Kind, Row
from detent.stores.paging import place_of
from detent.views.formatting import iso
from detent.views.job_text import schedule_text
from detent.views.jobs import JobStatus, job_state, last_record
from detent.views.json_records import fire_record, names_record, started_at, state_text, took_s
from detent.views.pauses import pause_record

LETTERS: Mapping[Kind, str] = {
    "succeeded": "s", "failed": "f", "rejected": "j", "timed-out": "t", "skipped": "k", "replaced": "e",
    "lost": "l", "missed": "m", "cancelled": "c",
}  # fmt: skip
POLICY = (
    "concurrency", "max_running", "timeout_s", "catch_up", "start_deadline_s", "on_lost", "late_after_s",
)  # fmt: skip


def job_entry(picture: Picture, name: str, wrong: str) -> dict[str, Any]:
    """A job on the screen Now.  `wrong`: `failing`, `late` or nothing."""
    known = picture.known(name)
    rows = sorted(picture.newest.get(name, {}).values(), key=lambda row: place_of(row.fire))[-EACH:]
    over, base = [row for row in rows if row.state == "over"], name.partition("/")[0]
    watermark, disabled = picture.watermarks.by_job.get(name), picture.manifest and picture.manifest.disabled
    status = JobStatus(
        name=name,
        canonical=known,
        enabled=base not in (disabled or ()),
        next_at=picture.coming.of(base),
        pause=picture.pauses.get(name),
        running=sum(row.fire.job == name for row in picture.running),
        last=over[-1] if over else None,
        at_boot=picture.coming.fires_at_boot(base),
    )
    return {
        "schedule": schedule_text(known) if known else "",
        "next_due_at": iso(status.next_at),
        "enabled": status.enabled,
        "paused": pause_record(status.pause) if status.pause else None,
        "running": status.running,
        "state": ", ".join(filter(None, (job_state(status), wrong))),
        "last": last_record(status.last) if status.last else None,
        "succeeded_at": iso(watermark.succeeded_at) if watermark else None,
        "spark": "".join(map(_letter, rows)),
        "queue": known.get("queue", "default") if known else None,
        **_percentiles(over),
    }


def job_details(name: str, known: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **names_record(name),
        "name": name,
        "description": known.get("description", ""),
        "tags": known.get("tags", []),
        "schedules": known.get("schedules", []),
        "timezone": known.get("timezone", "UTC"),
    }


def _letter(row: Row) -> str:
    if row.state == "over":
        return LETTERS[row.outcome.kind] if row.outcome else "s"
    return "r" if row.state == "claimed" else "w"


def _percentiles(rows: Iterable[Row]) -> dict[str, Any]:
    took = sorted(seconds for row in rows if (seconds := _took_s(row)) is not None)
    return {f"p{part}_ms": _at(took, part) for part in (50, 95)}


def _took_s(row: Row) -> float | None:
    """For a row without attempts, the duration of the last one."""
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
    first_at = started_at(row)
    return round((first_at - row.fire.due_at).total_seconds() * 1000) if first_at else None


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
