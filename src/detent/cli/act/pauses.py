"""The options and events that `pause`, `resume` and `next` share."""

import argparse
import sys
from typing import Literal

from detent.cli.context import context_for
from detent.cli.tables import say
from detent.errors import DetentError, UsageError
from detent.manifest.check import Manifest
from detent.observe.logs import log_to
from detent.views.formatting import current_user
from detent.views.pauses import Pause, find_pauses, pause_record


def pauses_if_readable(manifest: Manifest) -> dict[str, Pause]:
    """The pauses of the manifest's app; for verbs that also work without a store."""
    try:
        context = context_for(manifest)
        return find_pauses(context.store, [manifest.app]) if context.store else {}
    except DetentError as error:
        say(f"cannot read which jobs are paused: {error}")
        return {}


def add_jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="a job, or a pattern such as 'report-*'")
    parser.add_argument("--all", action="store_true", dest="is_all", help="all jobs")


def check_jobs(args: argparse.Namespace) -> None:
    if args.is_all == bool(args.jobs):
        raise UsageError("name jobs, or use --all")


def log_pauses(event: Literal["paused", "resumed"], pauses: list[Pause]) -> None:
    """Log an event for each pause as JSON to stderr, unless stderr is a terminal."""
    if sys.stderr.isatty():
        return
    emit = log_to(sys.stderr, "json")
    for pause in pauses:
        emit(event, **pause_record(pause) | {"by": current_user()})
