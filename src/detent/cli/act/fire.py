"""`detent fire`: runs a job now, if a node is alive to run it.

With `--wait` it prints the output of the fire and exits with its exit code: that of the command, 128 + n if
signal n ended it, or 1 if there is none.
"""

import argparse
import secrets

from detent import clock
from detent.cli.context import add_store_options, open_manifest_context
from detent.cli.follow import Follower
from detent.cli.tables import say, write_json
from detent.model import Call, Command, Job, Row
from detent.rules.planning import manual_fire
from detent.views.json_records import fire_record
from detent.views.lookup import fetch_fire, find_job, job_of
from detent.views.nodes import require_served

EXAMPLE = "detent fire backup --wait"
TOKEN_BYTES = 4
EXIT_MAX = 255


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB", help="a job of the manifest: job, or app.job")
    parser.add_argument("--wait", action="store_true", help="print its output, and exit with its exit code")
    add_store_options(parser)


def main(args: argparse.Namespace) -> int:
    manifest, context = open_manifest_context(args)
    job = job_of(manifest, find_job(manifest, args.job))
    store, for_program = require_served(context, job), args.output == "json"
    fire = manual_fire(job, clock.now().replace(microsecond=0), secrets.token_hex(TOKEN_BYTES))
    store.put([fire])
    if not for_program:
        say(fire.key) if args.wait else print(fire.key)
    row = fetch_fire(store, fire.key)
    if args.wait:
        row = Follower(store, quiet=for_program).follow(row)
    if for_program:
        write_json(fire_record(row, with_output=args.wait))
    return exit_code(row, job) if args.wait else 0


def exit_code(row: Row, job: Job) -> int:
    """The exit code of the last attempt, as a shell reports it."""
    if row.outcome and row.outcome.kind == "succeeded":
        return 0
    status = row.attempts[-1].status if row.attempts and isinstance(job.work, Command | Call) else None
    if status and status < 0:
        return 128 - status
    return status if status and status <= EXIT_MAX else 1
