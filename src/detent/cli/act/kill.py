"""`detent kill`: end a fire that waits, or tell its node to stop it."""

from __future__ import annotations

import argparse

from detent import clock
from detent.cli.context import add_store_options, open_context, require_store
from detent.cli.follow import Follower
from detent.cli.formatting import current_user, relative
from detent.cli.json_records import fire_record, state_text
from detent.cli.lookup import fetch_fire, find_fire
from detent.cli.tables import say, write_json
from detent.errors import UsageError
from detent.model import Row

EXAMPLE = "detent kill backup --wait"


def add_options(parser: argparse.ArgumentParser) -> None:
    meant = "a fire's key or run id, the beginning of one, or a job (its running or waiting fire)"
    parser.add_argument("fire", metavar="FIRE", help=meant)
    parser.add_argument("--wait", action="store_true", help="wait until all of its processes have ended")
    add_store_options(parser)


def main(args: argparse.Namespace) -> int:
    context = open_context(args)
    store = require_store(context)
    row = find_fire(context, args.fire, to_end=True)
    key, for_program = row.fire.key, args.output == "json"
    if not store.cancel(key, f"killed by {current_user()}"):
        raise UsageError(_too_late(fetch_fire(store, key)))
    row = fetch_fire(store, key)
    if not for_program:
        say(f"{key} was waiting: it is over" if row.state == "over" else f"{row.node} is told to stop {key}")
    if args.wait:
        row = Follower(store, quiet=True).follow(row)
        if not for_program:
            say(f"{key} {state_text(row)}")
    if for_program:
        write_json(fire_record(row))
    return 0


def _too_late(row: Row) -> str:
    when = f" {relative(row.over_at, clock.now())}" if row.over_at else ""
    return f"{row.fire.key} is over already: {state_text(row)}{when}"
