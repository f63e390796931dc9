"""Decides which fires are late: those that should have started, and have not."""

from datetime import datetime, timedelta

from detent.model import Job, Row, Watermark
from detent.rules.lanes import LATE_S

OVERDUE_S = 5.0  # nodes usually start a due fire within a second


def late_since(row: Row, now: datetime, *, waits_for_lane: bool = False) -> datetime | None:
    """Return when this waiting fire of a job was due, if it is late."""
    fire = row.fire
    is_nominal = fire.origin == "schedule" and not row.attempt
    due_at = fire.due_at if is_nominal else row.run_at or fire.due_at
    usual_s = LATE_S if waits_for_lane and fire.policy.concurrency == "Queue" else OVERDUE_S
    is_node_s = "/" not in fire.queue  # a trigger's fire has a queue of its own
    return due_at if is_node_s and is_late(due_at, fire.policy.late_after_s or usual_s, now) else None


def unplanned_since(job: Job, watermark: Watermark, now: datetime) -> datetime | None:
    """Return the oldest late instant that no node has recorded as a fire."""
    due_at = job.schedule.after(watermark.at)
    return due_at if due_at and is_late(due_at, job.policy.late_after_s or OVERDUE_S, now) else None


def is_late(due_at: datetime, after_s: float, now: datetime) -> bool:
    return due_at + timedelta(seconds=after_s) < now
