"""`detent show`: prints a job or a whole manifest with its defaults filled in."""

import argparse
import json
from itertools import islice

from detent import clock
from detent.cli.act.pauses import pauses_if_readable
from detent.cli.context import add_manifest_options, read_manifest
from detent.cli.host.host_state import add_host_filter
from detent.cli.host.resources import show_resources
from detent.cli.tables import Table, say, time_cell, write_json, write_table
from detent.manifest.canonical import without_password
from detent.manifest.check import Manifest, canonical_text
from detent.schedules.timetable import FOREVER
from detent.text import plural
from detent.views.formatting import printable
from detent.views.job_text import canonical_job, job_fields, schedule_text, shorten, work_text
from detent.views.lookup import find_job, job_of
from detent.views.pauses import pause_text

EXAMPLE = "detent show backup, detent show -f detent.yaml --canonical"
NEXT_SHOWN = 3


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", nargs="?", metavar="JOB", help="only this job (default: the whole manifest)")
    about = "print the canonical form: compact, ordered JSON"
    parser.add_argument("--canonical", action="store_true", help=about)
    add_manifest_options(parser)
    add_host_filter(parser, "print what this host scheduler has of the job instead")


def main(args: argparse.Namespace) -> int:
    if args.host:
        return show_resources(args)
    manifest = read_manifest(args.file, args.secret_ref)
    name = find_job(manifest, args.job).partition("/")[0] if args.job else ""
    text = manifest.canonical[name] if name else canonical_text(manifest)
    if args.canonical:
        print(text)
    elif args.output == "json":
        write_json(json.loads(text))
    elif name:
        _show_job(manifest, name)
    else:
        _show_manifest(manifest)
    return 0


def _show_job(manifest: Manifest, name: str) -> None:
    job = canonical_job(manifest, name)
    lines = [("job", name), *job_fields(job)]
    if name in manifest.disabled:
        lines.append(("state", "disabled"))
    else:
        pause = pauses_if_readable(manifest).get(find_job(manifest, name))
        lines += [("state", pause_text(pause, clock.now()))] if pause else []
        lines += [("next", text) for text in _next_times(manifest, name)]
    width = max(len(field) for field, _ in lines)
    for field, value in lines:
        print(f"{field.ljust(width)}  {printable(value)}")


def _next_times(manifest: Manifest, name: str) -> list[str]:
    now = clock.now()
    coming = job_of(manifest, name).schedule.between(now, FOREVER)
    return [time_cell(due_at, now) for due_at in islice(coming, NEXT_SHOWN)]


def _show_manifest(manifest: Manifest) -> None:
    store = without_password(manifest.store.url) or "the default"
    jobs = plural(len(manifest.canonical), "job")
    say(f"app {manifest.app}, version {manifest.version}, {jobs}, store {printable(store)}")
    heads = ("job", "schedule", "work", "description")
    write_table(Table(heads, [_row(manifest, name) for name in manifest.canonical]))


def _row(manifest: Manifest, name: str) -> tuple[str, str, str, str]:
    job = canonical_job(manifest, name)
    return name, schedule_text(job), shorten(work_text(job)), job.get("description", "")
