"""`detent history`: what was fired, newest first."""

from __future__ import annotations

import argparse
from datetime import datetime

from detent import clock
from detent.cli.context import Context, add_store_options, open_context
from detent.cli.formatting import duration, time_cell
from detent.cli.host.resources import show_changes
from detent.cli.json_records import fire_record, reason, state_text, took_s
from detent.cli.lookup import NOT_HOOKS, find_stored_job
from detent.cli.options import count
from detent.cli.tables import is_terminal, say, write_json, write_table
from detent.hosts.registry import HOSTS
from detent.model import Query, Row
from detent.stores.base import find_all

EXAMPLE = "detent history backup -n 50"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", nargs="?", metavar="JOB", help="only fires of this job (default: of all jobs)")
    parser.add_argument(
        "-n", type=count, default=20, dest="count", metavar="N", help="how many to list (default: 20)"
    )
    parser.add_argument("--hooks", action="store_true", help="include hooks")
    add_store_options(parser)
    about = "instead: list what was changed on this host scheduler, when and by whom"
    parser.add_argument("--host", choices=HOSTS, help=about)


def main(args: argparse.Namespace) -> int:
    if args.host:
        return show_changes(args)
    context, now = open_context(args), clock.now()
    rows = _find(context, args, now)
    if args.output == "json":
        write_json([fire_record(row) for row in rows])
    elif rows:
        heads = ("fire", "due", "outcome", "attempts", "took", "node", "reason")
        write_table(heads, (_row(row, now) for row in rows), spare=("node", "attempts", "due", "took"))
    elif context.store:
        say("nothing was fired yet")
    return 0


def _find(context: Context, args: argparse.Namespace, now: datetime) -> list[Row]:
    """What is planned for later is not history."""
    if context.store is None:
        if args.job and context.manifest:
            find_stored_job(context, args.job)
        say(context.no_store_yet)
        return []
    job = find_stored_job(context, args.job) if args.job else ""
    origins = () if args.hooks else NOT_HOOKS
    query = Query(app=context.app, job=job, origins=origins, until=now, limit=args.count)
    return find_all(context.store, query)


def _row(row: Row, now: datetime) -> tuple[str, ...]:
    attempts = str(row.attempt) if row.attempt else ""
    due = time_cell(row.fire.due_at, now, for_person=is_terminal())
    took = duration(took_s(row) if row.state != "claimed" else _so_far_s(row, now))
    return row.fire.key, due, state_text(row), attempts, took, row.node, reason(row, now)


def _so_far_s(row: Row, now: datetime) -> float | None:
    return max(0.0, (now - row.claimed_at).total_seconds()) if row.claimed_at else None
