"""`detent logs`: prints the output of a fire to stdout, and everything else to stderr."""

import argparse
from typing import Any

from detent.cli.context import add_store_options, open_context
from detent.cli.follow import Follower
from detent.cli.tables import write_json
from detent.model import Row
from detent.stores.base import Store
from detent.views.context import require_store
from detent.views.formatting import iso
from detent.views.json_records import fire_record
from detent.views.lookup import find_fire
from detent.views.output import find_output

EXAMPLE = "detent logs backup --follow"


def add_options(parser: argparse.ArgumentParser) -> None:
    about = "a fire's key or run id, the beginning of one, or a job (its newest fire)"
    parser.add_argument("fire", metavar="FIRE", help=about)
    parser.add_argument("--follow", action="store_true", help="keep printing until the fire ends")
    add_store_options(parser)


def main(args: argparse.Namespace) -> int:
    context = open_context(args)
    store, row = require_store(context), find_fire(context, args.fire)
    for_program = args.output == "json"
    watch = Follower(store, quiet=for_program)
    if args.follow:
        row = watch.follow(row)
    else:
        watch.look(row)
    if for_program:
        record = fire_record(row, with_output=True)
        write_json(record | {"running": _running(store, row)})
    return 0


def _running(store: Store, row: Row) -> dict[str, Any] | None:
    if row.state != "claimed":
        return None
    segments = find_output(store, row)
    output = b"".join(segments.read()).decode("utf-8", "replace") if segments else None
    started_at = iso(row.claimed_at)
    return {"attempt": row.attempt, "node": row.node, "started_at": started_at, "output": output}
