"""`detent next`: shows when jobs are due, in their time zones and in UTC, and how clock changes affect it."""

import argparse
from datetime import datetime, timedelta
from heapq import merge
from itertools import islice

from detent import clock
from detent.cli.act.pauses import pauses_if_readable
from detent.cli.context import add_manifest_options, read_manifest
from detent.cli.options import add_count, instant
from detent.cli.tables import Table, is_terminal, say, write_json, write_table
from detent.schedules.timetable import fires_at_boot
from detent.text import listed
from detent.views.formatting import iso, relative
from detent.views.lookup import find_job, job_of
from detent.views.upcoming import Upcoming, instants_of, upcoming_record

EXAMPLE = "detent next backup -n 5 --from 2026-10-24T00:00Z"

_JUST_BEFORE = timedelta(microseconds=1)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", nargs="?", metavar="JOB", help="only this job (default: all jobs)")
    add_count(parser, 10, "how many to show")
    about = "start at this time (default: now)"
    parser.add_argument("--from", type=instant, dest="since", metavar="TIME", help=about)
    add_manifest_options(parser)


def main(args: argparse.Namespace) -> int:
    manifest, now = read_manifest(args.file, args.secret_ref), clock.now()
    jobs = manifest.jobs if args.job is None else (job_of(manifest, find_job(manifest, args.job)),)
    since = now if args.since is None else args.since - _JUST_BEFORE
    pauses = pauses_if_readable(manifest)
    coming = list(islice(merge(*(instants_of(manifest, job, since, pauses) for job in jobs)), args.count))
    if args.output == "json":
        write_json([upcoming_record(one) for one in coming])
        return 0
    if coming:
        write_table(Table(("due", "utc", "in", "job", "note"), [_row(one, now) for one in coming]))
    at_boot = [job.name.partition("/")[0] for job in jobs if fires_at_boot(job.schedule, since)]
    if at_boot:
        say(f"at boot, when a node first starts: {listed(at_boot, 'and')}")
    for job in jobs:
        if job.after:
            say(f"after {listed(job.after)} succeeded: {job.name.partition('/')[0]}")
    if not coming and not at_boot and not any(job.after for job in jobs):
        say("nothing is due any more")
    return 0


def _row(one: Upcoming, now: datetime) -> tuple[str, ...]:
    local = f"{one.local:%a %Y-%m-%d %H:%M:%S} {one.timezone}"
    ahead = relative(one.due_at, now) if is_terminal() else ""
    return local, iso(one.due_at) or "", ahead, one.job, one.note
