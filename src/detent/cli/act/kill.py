"""`detent kill`: end a fire that waits, or tell its node to stop it."""

from __future__ import annotations

import argparse

from detent import clock
from detent.cli.context import add_context, need_store, open_context
from detent.cli.follow import Watch
from detent.cli.formatting import relative, who
from detent.cli.json_records import fire_record, standing
from detent.cli.lookup import fetch, find_fire
from detent.cli.tables import say, write_json
from detent.errors import UsageError
from detent.model import Row

EXAMPLE = "detent kill backup --wait"


def options(parser: argparse.ArgumentParser) -> None:
    meant = "a fire's key or run id, the beginning of one, or a job (its running or waiting fire)"
    parser.add_argument("fire", metavar="FIRE", help=meant)
    parser.add_argument("--wait", action="store_true", help="wait until all of its processes have ended")
    add_context(parser)


def main(given: argparse.Namespace) -> int:
    context = open_context(given)
    store = need_store(context)
    row = find_fire(context, given.fire, to_end=True)
    key, for_program = row.fire.key, given.output == "json"
    if not store.cancel(key, f"killed by {who()}"):
        raise UsageError(_too_late(fetch(store, key)))
    row = fetch(store, key)
    if not for_program:
        say(f"{key} was waiting: it is over" if row.state == "over" else f"{row.node} is told to stop {key}")
    if given.wait:
        row = Watch(store, quiet=True).follow(row)
        if not for_program:
            say(f"{key} {standing(row)}")
    if for_program:
        write_json(fire_record(row))
    return 0


def _too_late(row: Row) -> str:
    when = f" {relative(row.over_at, clock.now())}" if row.over_at else ""
    return f"{row.fire.key} is over already: {standing(row)}{when}"
