"""`detent list`: lists the jobs of the manifest with their next and last fire and their state."""

from __future__ import annotations

import argparse
from collections import Counter
from datetime import datetime
from typing import Any, NamedTuple

from detent import clock
from detent.cli.act.pauses import Pause, find_pauses, pause_record
from detent.cli.context import add_store_options, open_manifest_context
from detent.cli.formatting import iso, relative_cell, time_cell
from detent.cli.host.host_state import add_host_filter
from detent.cli.host.resources import list_resources
from detent.cli.job_text import canonical_job, schedule_text
from detent.cli.json_records import names_record
from detent.cli.lookup import NOT_HOOKS, SCAN_MAX, find_job
from detent.cli.tables import say, write_json, write_table
from detent.manifest.check import Manifest
from detent.model import Job, Query, Row
from detent.schedules.timetable import fires_at_boot
from detent.stores.base import Store, find_all

EXAMPLE = "detent list -o json"


class JobStatus(NamedTuple):
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
    add_host_filter(parser, "list what this host scheduler has of the app instead")


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
    at_boot = job is not None and fires_at_boot(job.schedule, now)
    return JobStatus(name, canonical_job(manifest, name), job is not None, next_at, at_boot=at_boot)


def _with_fires(manifest: Manifest, rows: list[JobStatus], store: Store) -> list[JobStatus]:
    pauses = find_pauses(store, [manifest.app])
    claimed = find_all(store, Query(app=manifest.app, state="claimed", origins=NOT_HOOKS, limit=SCAN_MAX))
    running = Counter(row.fire.job for row in claimed)
    found = []
    for row in rows:
        name = find_job(manifest, row.name)
        last = find_all(store, Query(job=name, state="over", origins=NOT_HOOKS, limit=1))
        found.append(
            row._replace(pause=pauses.get(name), running=running[name], last=last[0] if last else None)
        )
    return found


def _record(row: JobStatus) -> dict[str, Any]:
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
    next_at = time_cell(row.next_at, now) or ("at boot" if row.at_boot else "")
    last = row.last and row.last.outcome and f"{row.last.outcome.kind} {relative_cell(row.last.over_at, now)}"
    return row.name, schedule_text(row.canonical), next_at, last or "", _state(row)


def _state(row: JobStatus) -> str:
    has_ended = row.enabled and row.next_at is None and not row.at_boot and "after" not in row.canonical
    states = [
        f"running {row.running}" if row.running > 1 else "running" if row.running else "",
        "paused" if row.pause else "",
        "" if row.enabled else "disabled",
        "ended" if has_ended else "",
    ]
    return ", ".join(filter(None, states))
