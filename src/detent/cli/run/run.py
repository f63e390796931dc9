"""`detent run`: a node that runs the jobs of a manifest, or of an app in Python code."""

import argparse
import os
import shutil
import sys
from functools import partial
from pathlib import Path

from detent.app.daemon import DaemonOptions, run, style_of, with_tasks
from detent.cli.context import add_store_options
from detent.cli.run.telemetry import add_telemetry_options, telemetry_of
from detent.cli.write.validate import find_warnings
from detent.dashboard import LISTEN
from detent.loading.files import STDIN
from detent.loading.foreign import CrontabPath, source_files
from detent.loading.module_app import is_app, load_app
from detent.loading.sources import find_place, is_url, read_manifest, read_once
from detent.manifest.canonical import without_password

EXAMPLE = "detent run -f detent.yaml --queues default,db"


def add_options(parser: argparse.ArgumentParser) -> None:
    add_store_options(parser)
    which = "serve only these queues (default: `default` and the queues of the app's tasks)"
    parser.add_argument("--queues", default="", metavar="A,B", help=which)
    about = f"serve the dashboard, too (default: on {LISTEN}, for this machine only)"
    parser.add_argument("--dashboard", nargs="?", const=LISTEN, metavar="HOST:PORT", help=about)
    parser.add_argument("--no-wait", action="store_true", help="exit at once if the store does not answer")
    add_telemetry_options(parser)


def main(args: argparse.Namespace) -> int:
    queues = tuple(args.queues.split(",")) if args.queues else ()
    options = _options(args.file, args.secret_ref, queues)
    options = options._replace(store=args.store, waits=not args.no_wait, hint=_hint(args))
    options = options._replace(telemetry=telemetry_of(args))
    style = style_of(args.output, os.environ)
    if not args.dashboard:
        return run(options, style)
    from detent.dashboard.opening import Beside

    beside = Beside(options, args.dashboard, style)
    try:
        return run(options._replace(load=beside.load), style)
    finally:
        beside.stop()


def _hint(args: argparse.Namespace) -> str:
    """The lines that a terminal shows at the start."""
    program = "detent" if shutil.which("detent") else sys.argv[0]
    named = {"--crontab" if isinstance(args.file, CrontabPath) else "-f": args.file, "--store": args.store}
    options = "".join(f" {option} {without_password(str(value))}" for option, value in named.items() if value)
    verbs = "\n".join(f"  {program} {verb}{options}" for verb in ("status", "history", "logs JOB"))
    return f"Ctrl-C stops this node. To see what it does, run in another terminal:\n{verbs}"


def _options(place: str | Path | None, secret_ref: str, queues: tuple[str, ...]) -> DaemonOptions:
    """Files are watched; a URL is read again on SIGHUP; code and standard input are read once."""
    env = dict(os.environ)
    if place and is_app(place):
        options = DaemonOptions(str(place), read_once(str(place), env), env, queues=queues)
        return with_tasks(options._replace(warn=partial(find_warnings, place)), load_app(str(place)))
    found = find_place(place)
    options = DaemonOptions(str(found), lambda: read_manifest(found, env, secret_ref), env)
    if not is_url(found):  # a URL is not fetched twice; the checker's warnings are enough
        options = options._replace(warn=partial(find_warnings, found))
    if found == STDIN:
        options = options._replace(load=read_once(str(found), env))
    elif isinstance(found, Path):
        options = options._replace(files=source_files(found))
    return options._replace(queues=queues) if queues else options
