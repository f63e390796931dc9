"""`detent worker`: a node that runs the tasks of an app in Python code for the messages in its queues."""

import argparse
import os

from detent.app.daemon import DaemonOptions, check_queues, run, style_of
from detent.cli.context import load_task_app
from detent.cli.options import count
from detent.cli.run.telemetry import add_telemetry_options, telemetry_of
from detent.loading.sources import read_once
from detent.node.service import WorkerOptions

COOLDOWN_S = 60
CPUS = os.cpu_count() or 1
EXAMPLE = "detent worker shop:app mail --concurrency 8 --processes 2"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("app", metavar="MODULE:APP", help="the app in code whose tasks to run")
    queues = "serve these queues, the first one first (default: the queues of its tasks and of app.allow)"
    parser.add_argument("queues", nargs="*", metavar="QUEUE", help=queues)
    parser.add_argument("--store", metavar="URL", help="the store's URL (default: the app's)")
    for name, metavar, default, about in (
        ("--concurrency", "N", CPUS, "how many messages to run at once (default: the number of CPUs)"),
        ("--processes", "P", 0, "how many processes to run them in (default: the same as --concurrency)"),
        ("--cooldown", "S", COOLDOWN_S, f"seconds to leave a failing store alone (default: {COOLDOWN_S})"),
    ):
        parser.add_argument(name, type=count, default=default, metavar=metavar, help=about)
    parser.add_argument("--no-wait", action="store_true", help="exit at once if the store does not answer")
    add_telemetry_options(parser)


def main(args: argparse.Namespace) -> int:
    env, app = dict(os.environ), load_task_app(args.app)
    own = [*(task.queue for task in app.tasks().values()), *app.allowed()]
    queues = tuple(args.queues) or tuple(dict.fromkeys(own))
    check_queues(queues, app)
    options = DaemonOptions(
        name=args.app,
        load=read_once(args.app, env),
        env=env,
        store=args.store,
        queues=queues,
        waits=not args.no_wait,
        worker=WorkerOptions(app.inbox(), False, args.concurrency, args.processes, args.cooldown),
        telemetry=telemetry_of(args),
        listeners=app.listeners,
    )
    return run(options, style_of(args.output, env))
