"""`detent queue`: inspects the queues of an app in Python code, and pushes, retries or purges messages."""

import argparse
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from detent import clock
from detent.app.app import Detent
from detent.app.queue.arguments import AS_JSON, read_arguments
from detent.app.queue.queues import Queue, Queued
from detent.cli.context import load_task_app, store_exists
from detent.cli.main import add_output
from detent.cli.options import add_count, seconds
from detent.cli.tables import Table, say, time_cell, write_found, write_json
from detent.errors import UsageError
from detent.model import Query, Size
from detent.rules.rates import PRIORITIES, without_priority
from detent.stores.base import RATE
from detent.text import listed, plural, quote
from detent.views.context import Context
from detent.views.formatting import iso
from detent.views.json_records import rate_record

EXAMPLE = "detent queue shop:app ls, detent queue shop:app push send '[\"a@example.org\"]'"
RETRY_MAX = 10_000  # dead messages that one command retries
SHOWN_MAX = 60  # characters of the arguments of a message in a table


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("app", metavar="MODULE:APP", help="the app in code whose queues to inspect")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, (about, add, _) in ACTIONS.items():
        sentence = f"{about[0].upper()}{about[1:]}."
        own = actions.add_parser(name, help=about, description=sentence, allow_abbrev=False)
        add_output(own, default=argparse.SUPPRESS)
        add(own)


def main(args: argparse.Namespace) -> int:
    app = load_task_app(args.app)
    if args.action in ("ls", "peek", "dead") and not store_exists(url := app.new_store()[1]):
        say(Context(None, None, url).no_store_yet)
        return 0
    return ACTIONS[args.action][2](app, args)


def _list(app: Detent, args: argparse.Namespace) -> int:
    queues = [app.queue(name) for name in _names(app, args)]
    records = [_record(app, queue) for queue in queues]
    table = Table(("queue", *Size._fields, "rate", "breakers"), [*map(_queue_row, records)])
    return write_found(args, records, table, "")


def _record(app: Detent, queue: Queue) -> dict[str, Any]:
    rate, limit = queue.rate(), None
    if rate:
        limit = rate_record(rate) | ({} if rate.by_key else {"used": queue.usage().used})
    tasks = [task for task in app.tasks().values() if queue.name in (task.queue, *task.queues)]
    breakers = sorted({task.policy.breaker for task in tasks if task.policy.breaker})
    states = {name: app.breaker(name).state() for name in breakers}
    return {"queue": queue.name, **queue.size()._asdict(), "rate": limit, "breakers": states}


def _queue_row(record: dict[str, Any]) -> tuple[str, ...]:
    sizes, rate = [f"{record[state]:,}" for state in Size._fields], ""
    if limit := record["rate"]:
        used = "by key" if limit["by_key"] else f"{limit['used']} used"
        rate = f"{limit['most']:,} per {limit['per_s']:g} s, {used}{', smooth' if limit['smooth'] else ''}"
    return record["queue"], *sizes, rate, ", ".join(map(" ".join, record["breakers"].items()))


def _show_messages(app: Detent, args: argparse.Namespace) -> int:
    """`peek` and `dead`."""
    queues = [app.queue(name) for name in _names(app, args)]
    is_dead, now = args.action == "dead", clock.now()
    read = Queue.dead if is_dead else Queue.peek
    found = [one for queue in queues for one in read(queue, args.count)]
    records = [{**one._asdict(), "run_at": iso(one.run_at), "over_at": iso(one.over_at)} for one in found]
    heads = ("fire", "priority", "state", "attempts", "due", "over", "arguments", "reason")
    table = Table(heads, [_row(one, now) for one in found])
    return write_found(args, records, table, "no dead messages" if is_dead else "no waiting messages")


def _row(one: Queued, now: datetime) -> tuple[str, ...]:
    text = "" if one.args is None else json.dumps(one.args, ensure_ascii=False)
    shown = text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…"
    due = time_cell(None if one.over_at else one.run_at, now)
    over = time_cell(one.over_at, now)
    priority = "" if one.priority == "normal" else one.priority
    return one.key, priority, one.state, str(one.attempts or ""), due, over, shown, one.reason


def _push(app: Detent, args: argparse.Namespace) -> int:
    task = app.task_named(args.task)
    options = {"delay": args.delay_s, "priority": args.priority, "unique": args.unique, "queue": args.queue}
    pushing = task.options(**{name: value for name, value in options.items() if value})
    handle = pushing.push_many([read_arguments(args.args)])[0]
    if args.output == "json":
        write_json({"key": handle.key, "is_new": handle.is_new})
    else:
        print(handle.key)
        if not handle.is_new:
            say("nothing was pushed: a message with this key already exists")
    return 0


def _retry(app: Detent, args: argparse.Namespace) -> int:
    if bool(args.keys) == args.all:
        raise UsageError("name the keys to retry, as `dead` lists them, or use --all")
    store, keys = app.open_store(), dict[str, list[str]]()
    for key in args.keys:
        row = next(iter(store.find(Query(key=key, limit=1))), None)
        keys.setdefault(without_priority(row.fire.queue) if row else _names(app, args)[0], []).append(key)
    if args.all:
        keys = {name: [one.key for one in app.queue(name).dead(RETRY_MAX)] for name in _names(app, args)}
    handles = [handle for name, some in keys.items() for handle in app.queue(name).retry(*some)]
    if args.output == "json":
        write_json([{"key": handle.key, "is_new": handle.is_new} for handle in handles])
        return 0
    for handle in handles:
        print(handle.key)
    if not handles:
        say("there was nothing to retry")
    return 0


def _purge(app: Detent, args: argparse.Namespace) -> int:
    if not (args.dead or args.pending):
        raise UsageError("name what to purge: --dead, --pending or both")
    gone = {name: app.queue(name).purge(dead=args.dead, pending=args.pending) for name in _names(app, args)}
    if args.output == "json":
        write_json([{"queue": name, "purged": number} for name, number in gone.items()])
        return 0
    for name, number in gone.items():
        print(f"{name}: {plural(number, 'message')} purged")
    return 0


def _names(app: Detent, args: argparse.Namespace) -> list[str]:
    """The named queue, or all: those of tasks and of `app.allow`, and those with a rate or messages."""
    tasks, store = app.tasks().values(), app.open_store()
    known = {queue for task in tasks for queue in (task.queue, *task.queues)} | {*app.allowed()}
    known |= {note.name.removeprefix(RATE) for note in store.notes(app.name, RATE)}
    known |= {without_priority(queue) for queue, size in store.count(app.name).items() if any(size)}
    named = getattr(args, "queue", None)
    if named and named not in known:
        raise UsageError(f"{app.name} has no queue {quote(named)}; it has {listed(sorted(known), 'and')}")
    return [named] if named else sorted(known)


def _add_queue(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("queue", nargs="?", metavar="QUEUE", help="only this queue (default: all)")


def _add_listing(parser: argparse.ArgumentParser) -> None:
    _add_queue(parser)
    add_count(parser, 20, "how many to show of each queue")


def _add_push(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", help="a task of the app")
    parser.add_argument("args", nargs="?", default="[]", metavar="JSON", help=f"{AS_JSON} (default: none)")
    about = "run it after this time, such as 90m"
    parser.add_argument("--delay", type=seconds, dest="delay_s", metavar="TIME", help=about)
    parser.add_argument("--priority", choices=PRIORITIES, help="the priority within its queue")
    parser.add_argument("--unique", metavar="TEXT", help="do nothing if a message with this text exists")
    parser.add_argument("--queue", metavar="QUEUE", help="the queue (default: the task's)")


def _add_retry(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("keys", nargs="*", metavar="KEY", help="a dead message, as `dead` lists it")
    parser.add_argument("--all", action="store_true", help="all dead messages")
    parser.add_argument("--queue", metavar="QUEUE", help="with --all: only of this queue")


def _add_purge(parser: argparse.ArgumentParser) -> None:
    _add_queue(parser)
    parser.add_argument("--dead", action="store_true", help="delete dead messages")
    parser.add_argument("--pending", action="store_true", help="cancel waiting messages")


Action = tuple[str, Callable[[argparse.ArgumentParser], None], Callable[[Detent, argparse.Namespace], int]]
ACTIONS: dict[str, Action] = {
    "ls": ("list the queues with their sizes, rates and breakers", lambda parser: None, _list),
    "push": ("put a message on a queue", _add_push, _push),
    "peek": ("show the next messages of a queue", _add_listing, _show_messages),
    "dead": ("list messages that failed for good", _add_listing, _show_messages),
    "retry": ("run dead messages again", _add_retry, _retry),
    "purge": ("delete dead messages, or cancel waiting ones", _add_purge, _purge),
}
