"""`detent kill`: cancels a waiting fire, or asks the node of a running one to stop it."""

import argparse

from detent import clock
from detent.cli.context import add_store_options, open_context
from detent.cli.follow import Follower
from detent.cli.tables import say, write_json
from detent.errors import UsageError
from detent.views.context import require_store
from detent.views.formatting import current_user, relative
from detent.views.json_records import fire_record, state_text
from detent.views.lookup import fetch_fire, find_fire

EXAMPLE = "detent kill backup --wait"


def add_options(parser: argparse.ArgumentParser) -> None:
    about = "a fire's key or run id, the beginning of one, or a job (its running or waiting fire)"
    parser.add_argument("fire", metavar="FIRE", help=about)
    parser.add_argument("--wait", action="store_true", help="wait until all of its processes have ended")
    add_store_options(parser)


def main(args: argparse.Namespace) -> int:
    context = open_context(args)
    store = require_store(context)
    row = find_fire(context, args.fire, to_end=True)
    key, for_program = row.fire.key, args.output == "json"
    if not store.cancel(key, f"killed by {current_user()}"):
        row = fetch_fire(store, key)
        when = f" {relative(row.over_at, clock.now())}" if row.over_at else ""
        raise UsageError(f"{key} is over already: {state_text(row)}{when}")
    row = fetch_fire(store, key)
    if not for_program:
        say(f"{key} is cancelled" if row.state == "over" else f"asked {row.node} to stop {key}")
    if args.wait:
        row = Follower(store, quiet=True).follow(row)
        if not for_program:
            say(f"{key} {state_text(row)}")
    if for_program:
        write_json(fire_record(row))
    return 0
