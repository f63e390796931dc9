"""`detent history`: lists past fires, newest first."""

import argparse
from datetime import datetime

from detent import clock
from detent.cli.context import add_store_options, open_context
from detent.cli.host.resources import show_changes
from detent.cli.options import add_count
from detent.cli.tables import Table, say, time_cell, write_found
from detent.hosts.registry import HOSTS
from detent.model import Query, Row
from detent.stores.base import find_all
from detent.views.context import Context
from detent.views.formatting import duration, iso
from detent.views.json_records import fire_record, state_text, took_s
from detent.views.lookup import NOT_HOOKS, find_stored_job

EXAMPLE = "detent history backup -n 50"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", nargs="?", metavar="JOB", help="only fires of this job (default: of all jobs)")
    add_count(parser, 20, "how many to list")
    parser.add_argument("--hooks", action="store_true", help="include hooks")
    add_store_options(parser)
    host = "list the changes that were made to this host scheduler instead, with time and user"
    parser.add_argument("--host", choices=HOSTS, help=host)


def main(args: argparse.Namespace) -> int:
    if args.host:
        return show_changes(args)
    context, now = open_context(args), clock.now()
    found = _find(context, args, now)
    heads = ("fire", "due", "outcome", "attempts", "took", "node", "reason")
    table = Table(heads, [_row(row, now) for row in found], spare=("node", "attempts", "due", "took"))
    return write_found(args, map(fire_record, found), table, "no fires yet" if context.store else "")


def _find(context: Context, args: argparse.Namespace, now: datetime) -> list[Row]:
    if context.store is None:
        if args.job and context.manifest:
            find_stored_job(context, args.job)  # an unknown job is an error even without a store
        say(context.no_store_yet)
        return []
    job = find_stored_job(context, args.job) if args.job else ""
    origins = () if args.hooks else NOT_HOOKS
    query = Query(app=context.app, job=job, origins=origins, until=now, limit=args.count)
    return find_all(context.store, query)


def _row(row: Row, now: datetime) -> tuple[str, ...]:
    attempts = str(row.attempt) if row.attempt else ""
    spent_s = took_s(row)
    if row.state == "claimed":
        spent_s = max(0.0, (now - row.claimed_at).total_seconds()) if row.claimed_at else None
    due = time_cell(row.fire.due_at, now)
    return row.fire.key, due, state_text(row), attempts, duration(spent_s), row.node, _reason(row, now)


def _reason(row: Row, now: datetime) -> str:
    reason = row.outcome.reason if row.outcome else ""
    if row.state == "over":
        if row.fire.instants == 1:
            return reason
        span = f"{row.fire.instants:,} instants since {iso(row.fire.first_at)}"
        return f"{reason}; {span}" if reason else span
    if row.stop:
        return row.stop.reason
    if row.state == "pending" and row.outcome and row.run_at:
        retry_s = max(0.0, (row.run_at - now).total_seconds())
        return f"{row.outcome.kind}, {reason}; retried in {retry_s:.0f} s"
    return ""
