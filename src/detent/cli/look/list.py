"""`detent list`: the manifest's jobs, when they are due next, how they went last, what they do now."""

from __future__ import annotations

import argparse
from collections import Counter
from datetime import datetime
from typing import Any, NamedTuple

from detent import clock
from detent.cli.act.pauses import Pause, find_pauses, pause_record
from detent.cli.context import add_store_options, open_manifest_context
from detent.cli.formatting import iso, relative, time_cell
from detent.cli.host.host_state import add_host_filter
from detent.cli.host.resources import list_resources
from detent.cli.job_text import canonical_job, schedule_text
from detent.cli.lookup import NOT_HOOKS, SCAN_MAX, find_job
from detent.cli.tables import is_terminal, say, write_json, write_table
from detent.manifest.check import Manifest
from detent.model import Job, Query, Row
from detent.schedules.timetable import fires_at_boot
from detent.stores.base import Store, find_all

EXAMPLE = "detent list -o json"


class JobStatus(NamedTuple):
    """What there is to tell of a job."""

    name: str
    canonical: dict[str, Any]
    enabled: bool
    next_at: datetime | None = None
    pause: Pause | None = None
    running: int = 0
    last: Row | None = None
    at_boot: bool = False


def add_options(parser: argparse.ArgumentParser) -> None:
    add_store_options(parser)
    add_host_filter(parser, "instead: list what this host scheduler has of the app")


def main(args: argparse.Namespace) -> int:
    if args.host:
        return list_resources(args)
    manifest, context = open_manifest_context(args)
    now = clock.now()
    jobs = {job.name: job for job in manifest.jobs}
    rows = [_job_status(manifest, name, jobs.get(name), now) for name in manifest.canonical]
    if context.store is None:
        say(context.no_store_yet)
    else:
        rows = _with_fires(manifest, rows, context.store)
    if args.output == "json":
        write_json([_record(row) for row in rows])
    else:
        write_table(("job", "schedule", "next", "last", "state"), (_row(row, now) for row in rows))
    return 0


def _job_status(manifest: Manifest, name: str, job: Job | None, now: datetime) -> JobStatus:
    next_at = job.schedule.after(now) if job else None
    listed = JobStatus(name, canonical_job(manifest, name), enabled=job is not None, next_at=next_at)
    return listed._replace(at_boot=job is not None and fires_at_boot(job.schedule, now))


def _with_fires(manifest: Manifest, rows: list[JobStatus], store: Store) -> list[JobStatus]:
    pauses = find_pauses(store, manifest.app)
    claimed = find_all(store, Query(app=manifest.app, state="claimed", origins=NOT_HOOKS, limit=SCAN_MAX))
    running = Counter(row.fire.job for row in claimed)
    told = []
    for row in rows:
        stored = find_job(manifest, row.name)
        last = find_all(store, Query(job=stored, state="over", origins=NOT_HOOKS, limit=1))
        told.append(
            row._replace(pause=pauses.get(stored), running=running[stored], last=last[0] if last else None)
        )
    return told


def _record(row: JobStatus) -> dict[str, Any]:
    app, _, job = row.name.partition(".")
    return {
        "app": app,
        "job": job,
        "schedules": row.canonical.get("schedules", []),
        "at": row.canonical.get("at"),
        "after": row.canonical.get("after", []),
        "timezone": row.canonical["timezone"],
        "next_due_at": iso(row.next_at),
        "enabled": row.enabled,
        "paused": row.pause is not None,
        "pause": pause_record(row.pause) if row.pause else None,
        "running": row.running,
        "last": _last_record(row.last) if row.last else None,
    }


def _last_record(row: Row) -> dict[str, Any]:
    outcome = row.outcome
    return {
        "fire": row.fire.key,
        "due_at": iso(row.fire.due_at),
        "over_at": iso(row.over_at),
        "outcome": outcome.kind if outcome else None,
        "reason": outcome.reason if outcome else None,
        "cause": outcome.cause if outcome else None,
    }


def _row(row: JobStatus, now: datetime) -> tuple[str, ...]:
    next_at = time_cell(row.next_at, now, for_person=is_terminal()) or ("at boot" if row.at_boot else "")
    return row.name, schedule_text(row.canonical), next_at, _last(row.last, now), _state(row)


def _last(row: Row | None, now: datetime) -> str:
    if row is None or row.outcome is None or row.over_at is None:
        return ""
    when = relative(row.over_at, now) if is_terminal() else iso(row.over_at)
    return f"{row.outcome.kind} {when}"


def _state(row: JobStatus) -> str:
    follows = "after" in row.canonical
    states = [
        f"running {row.running}" if row.running > 1 else "running" if row.running else "",
        "paused" if row.pause else "",
        "" if row.enabled else "disabled",
        "ended" if row.enabled and row.next_at is None and not row.at_boot and not follows else "",
    ]
    return ", ".join(state for state in states if state)
