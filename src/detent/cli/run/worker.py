"""`detent worker`: a node that runs the tasks of an app in code, as messages ask for them."""

from __future__ import annotations

import argparse
import os
from typing import Any

from detent.app.daemon import DaemonOptions, check_queues, run, style_of
from detent.errors import UsageError
from detent.loading.module_app import is_app, load_app
from detent.loading.sources import read_once
from detent.node.service import WorkerOptions
from detent.text import quote

COOLDOWN_S = 60
EXAMPLE = "detent worker shop:app mail --concurrency 8 --processes 2"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("app", metavar="MODULE:APP", help="the app in code whose tasks to run")
    which = "serve these queues, the first one first (default: the queues of its tasks and of app.allow)"
    parser.add_argument("queues", nargs="*", metavar="QUEUE", help=which)
    parser.add_argument("--store", metavar="URL", help="the store's URL (default: the app's)")
    most: dict[str, Any] = {"type": _count, "default": os.cpu_count() or 1, "metavar": "N"}
    parser.add_argument(
        "--concurrency", help="how many messages to run at once (default: the number of CPUs)", **most
    )
    most |= {"default": 0, "metavar": "P"}
    parser.add_argument(
        "--processes", help="how many processes to run them in (default: the same as --concurrency)", **most
    )
    cooldown = f"seconds between requests to a store that failed 5 times in a row (default: {COOLDOWN_S})"
    parser.add_argument("--cooldown", type=_count, default=COOLDOWN_S, metavar="S", help=cooldown)
    parser.add_argument("--no-wait", action="store_true", help="exit at once if the store does not answer")


def main(args: argparse.Namespace) -> int:
    if not is_app(args.app):
        raise UsageError(f"{quote(args.app)} is no app: name one as module:name, as in `{EXAMPLE}`")
    env, app = dict(os.environ), load_app(args.app)
    tasks = app.tasks()
    if not tasks and not app.allowed():
        raise UsageError(f"{quote(args.app)} has no tasks: declare one with `@app.task()`")
    own = [*(task.queue for task in tasks.values()), *app.allowed()]
    queues = tuple(args.queues) or tuple(dict.fromkeys(own))
    check_queues(queues, app)
    worker = WorkerOptions(app.inbox(), False, args.concurrency, args.processes, args.cooldown)
    options = DaemonOptions(
        name=args.app,
        load=read_once(args.app, env),
        env=env,
        store=args.store,
        queues=queues,
        waits=not args.no_wait,
        worker=worker,
    )
    return run(options, style_of(args.output, env))


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{quote(text)} is no number from 1 up")
    return int(text)
