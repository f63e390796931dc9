"""`detent list`: lists the jobs of the manifest with their next and last fire and their state."""

import argparse
from collections import Counter
from datetime import datetime

from detent import clock
from detent.cli.context import add_store_options, open_manifest_context
from detent.cli.host.host_state import add_host_filter
from detent.cli.host.resources import list_resources
from detent.cli.tables import Table, relative_cell, say, time_cell, write_found
from detent.manifest.check import Manifest
from detent.model import Query
from detent.stores.base import Store, find_all
from detent.views.job_text import schedule_text
from detent.views.jobs import JobStatus, job_record, job_state, job_status
from detent.views.lookup import NOT_HOOKS, SCAN_MAX, find_job
from detent.views.pauses import find_pauses

EXAMPLE = "detent list -o json"


def add_options(parser: argparse.ArgumentParser) -> None:
    add_store_options(parser)
    add_host_filter(parser, "list what this host scheduler has of the app instead")


def main(args: argparse.Namespace) -> int:
    if args.host:
        return list_resources(args)
    manifest, context = open_manifest_context(args)
    now = clock.now()
    jobs = {job.name: job for job in manifest.jobs}
    rows = [job_status(manifest, name, jobs.get(name), now) for name in manifest.canonical]
    if context.store is None:
        say(context.no_store_yet)
    else:
        rows = _with_fires(manifest, rows, context.store)
    table = Table(("job", "schedule", "next", "last", "state"), [_row(row, now) for row in rows])
    return write_found(args, map(job_record, rows), table, "")


def _with_fires(manifest: Manifest, rows: list[JobStatus], store: Store) -> list[JobStatus]:
    pauses = find_pauses(store, [manifest.app])
    claimed = find_all(store, Query(app=manifest.app, state="claimed", origins=NOT_HOOKS, limit=SCAN_MAX))
    running = Counter(row.fire.job for row in claimed)
    found = []
    for row in rows:
        name = find_job(manifest, row.name)
        last = next(iter(find_all(store, Query(job=name, state="over", origins=NOT_HOOKS, limit=1))), None)
        found.append(row._replace(pause=pauses.get(name), running=running[name], last=last))
    return found


def _row(row: JobStatus, now: datetime) -> tuple[str, ...]:
    next_at = time_cell(row.next_at, now) or ("at boot" if row.at_boot else "")
    last = row.last and row.last.outcome and f"{row.last.outcome.kind} {relative_cell(row.last.over_at, now)}"
    return row.name, schedule_text(row.canonical), next_at, last or "", job_state(row)
