"""`detent resume`: starts scheduling paused jobs again, from their next instant on."""

import argparse

from detent.cli.act.pauses import add_jobs, check_jobs, log_pauses
from detent.cli.context import add_store_options, open_context
from detent.cli.tables import write_json
from detent.stores.base import PAUSE, app_of
from detent.views.context import require_store
from detent.views.formatting import printable
from detent.views.lookup import apps_of, find_jobs, known_jobs
from detent.views.pauses import find_pauses, pause_record

EXAMPLE = "detent resume backup"


def add_options(parser: argparse.ArgumentParser) -> None:
    add_jobs(parser)
    add_store_options(parser)


def main(args: argparse.Namespace) -> int:
    check_jobs(args)
    context = open_context(args)
    store = require_store(context)
    paused = find_pauses(store, apps_of(context))
    known = sorted({*paused, *known_jobs(context)})  # a removed job can still be paused
    names = [*paused] if args.is_all else find_jobs(args.jobs, known)
    resumed = [paused[name] for name in names if name in paused]
    for pause in resumed:
        store.note(app_of(pause.job), PAUSE + pause.job, "")
    log_pauses("resumed", resumed)
    if args.output == "json":
        write_json([pause_record(pause) for pause in resumed])
        return 0
    for pause in resumed:
        print(f"{pause.job} is resumed; it was paused: {printable(pause.text)}")
    for name in names:
        if name not in paused:
            print(f"{name} was not paused")
    if args.is_all and not resumed:
        print("no job was paused")
    return 0
