"""`detent queue`: what is on the queues of an app in code, what died there; and putting something on one."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from detent import clock
from detent.app.queue.queues import Queue, Queued
from detent.cli.context import Context, store_exists
from detent.cli.formatting import iso, time_cell
from detent.cli.options import count, seconds
from detent.cli.tables import is_terminal, say, write_json, write_table
from detent.errors import UsageError
from detent.loading.module_app import is_app, load_app
from detent.messages.strict_json import decode
from detent.model import Query, Rate, Size
from detent.rules.rates import PRIORITIES, without_priority
from detent.stores.base import RATE
from detent.text import listed, plural, quote

if TYPE_CHECKING:
    from detent.app.app import Detent

EXAMPLE = "detent queue shop:app ls, detent queue shop:app push send '[\"a@example.org\"]'"
RETRY_MAX = 10_000  # dead messages of a queue with one command
SHOWN_MAX = 60  # characters of a message's arguments in a table


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("app", metavar="MODULE:APP", help="the app in code whose queues to inspect")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, (about, add, _) in ACTIONS.items():
        own = actions.add_parser(
            name, help=about, description=f"{about[0].upper()}{about[1:]}.", allow_abbrev=False
        )
        own.add_argument(
            "-o",
            "--output",
            choices=("text", "json"),
            default=argparse.SUPPRESS,
            help="text for people, JSON for programs",
        )
        add(own)


def main(args: argparse.Namespace) -> int:
    if not is_app(args.app):
        raise UsageError(
            f"{quote(args.app)} is no app: name one as module:name, as in `detent queue shop:app ls`"
        )
    app = load_app(args.app)
    if not app.tasks() and not app.allowed():
        raise UsageError(f"{quote(args.app)} has no tasks: declare one with `@app.task()`")
    code: int = ACTIONS[args.action][2](app, args)
    return code


# Looking.


def _list(app: Detent, args: argparse.Namespace) -> int:
    if not _has_store(app):
        return 0
    queues = [app.queue(name) for name in _names(app, args)]
    sizes = [(queue, queue.size(), queue.rate()) for queue in queues]
    if args.output == "json":
        write_json([_record(app, *one) for one in sizes])
        return 0
    heads = ("queue", *Size._fields, "rate", "breakers")
    rows = [
        (queue.name, *(f"{number:,}" for number in size), _rate(queue, rate), _breakers(app, queue))
        for queue, size, rate in sizes
    ]
    write_table(heads, rows)
    return 0


def _record(app: Detent, queue: Queue, size: Size, rate: Rate | None) -> dict[str, Any]:
    limit = (
        {"most": rate.most, "per_s": rate.window_s, "smooth": rate.smooth, "by_key": rate.by_key}
        if rate
        else None
    )
    if limit and rate and not rate.by_key:
        limit["used"] = queue.usage().used
    states = {name: app.breaker(name).state() for name in _breakers_of(app, queue)}
    return {"queue": queue.name, **size._asdict(), "rate": limit, "breakers": states}


def _rate(queue: Queue, rate: Rate | None) -> str:
    if rate is None:
        return ""
    used = "by key" if rate.by_key else f"{queue.usage().used} used"
    return f"{rate.most:,} in {rate.window_s:g} s, {used}{', smooth' if rate.smooth else ''}"


def _breakers(app: Detent, queue: Queue) -> str:
    return ", ".join(f"{name} {app.breaker(name).state()}" for name in _breakers_of(app, queue))


def _breakers_of(app: Detent, queue: Queue) -> list[str]:
    tasks = [task for task in app.tasks().values() if queue.name in (task.queue, *task.queues)]
    return sorted({task.policy.breaker for task in tasks if task.policy.breaker})


def _peek(app: Detent, args: argparse.Namespace) -> int:
    if not _has_store(app):
        return 0
    found = [one for name in _names(app, args) for one in app.queue(name).peek(args.count)]
    return _write(found, args, "nothing waits")


def _dead(app: Detent, args: argparse.Namespace) -> int:
    if not _has_store(app):
        return 0
    found = [one for name in _names(app, args) for one in app.queue(name).dead(args.count)]
    return _write(found, args, "no message is dead")


def _write(found: list[Queued], args: argparse.Namespace, nothing: str) -> int:
    now = clock.now()
    if args.output == "json":
        write_json(
            [{**one._asdict(), "run_at": iso(one.run_at), "over_at": iso(one.over_at)} for one in found]
        )
    elif found:
        heads = ("fire", "priority", "state", "attempts", "due", "over", "arguments", "reason")
        write_table(heads, [_row(one, now) for one in found])
    else:
        say(nothing)
    return 0


def _row(one: Queued, now: Any) -> tuple[str, ...]:
    text = "" if one.args is None else json.dumps(one.args, ensure_ascii=False)
    shown = text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…"
    due = time_cell(None if one.over_at else one.run_at, now, for_person=is_terminal())
    over = time_cell(one.over_at, now, for_person=is_terminal())
    priority = "" if one.priority == "normal" else one.priority
    return one.key, priority, one.state, str(one.attempts or ""), due, over, shown, one.reason


# Changing.


def _push(app: Detent, args: argparse.Namespace) -> int:
    task = app.task_named(args.task)
    said = {"delay": args.delay_s, "priority": args.priority, "unique": args.unique, "queue": args.queue}
    pushing = task.options(**{name: value for name, value in said.items() if value})
    try:
        arguments = decode(args.args)
    except ValueError as error:
        raise UsageError(f"bad arguments {quote(args.args)}: they are no JSON: {error}; {_ARGS}") from None
    if not isinstance(arguments, list | dict):
        raise UsageError(f"bad arguments {quote(args.args)}: {_ARGS}")
    handle = pushing.push(*arguments) if isinstance(arguments, list) else pushing.push(**arguments)
    if args.output == "json":
        write_json({"key": handle.key, "is_new": handle.is_new})
    else:
        print(handle.key)
        if not handle.is_new:
            say("it was there already: nothing was pushed")
    return 0


def _retry(app: Detent, args: argparse.Namespace) -> int:
    if bool(args.keys) == args.all:
        raise UsageError("name the keys to retry, as `dead` lists them, or all of them by --all")
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
        say("nothing was to be retried")
    return 0


def _purge(app: Detent, args: argparse.Namespace) -> int:
    if not (args.dead or args.pending):
        raise UsageError("say what to purge: --dead, --pending or both")
    gone = {name: app.queue(name).purge(dead=args.dead, pending=args.pending) for name in _names(app, args)}
    if args.output == "json":
        write_json([{"queue": name, "purged": number} for name, number in gone.items()])
        return 0
    for name, number in gone.items():
        print(f"{name}: {plural(number, 'message')} purged")
    return 0


# Which.


def _names(app: Detent, args: argparse.Namespace) -> list[str]:
    """The queue that was named, or all: those of tasks, of `app.allow`, with a rate, and with messages."""
    tasks, store = app.tasks().values(), app.open_store()
    known = {queue for task in tasks for queue in (task.queue, *task.queues)} | {*app.allowed()}
    known |= {note.name.removeprefix(RATE) for note in store.notes(app.name, RATE)}
    known |= {without_priority(queue) for queue, size in store.count(app.name).items() if any(size)}
    named = getattr(args, "queue", None)
    if named and named not in known:
        raise UsageError(f"{app.name} has no queue {quote(named)}; there are {listed(sorted(known), 'and')}")
    return [named] if named else sorted(known)


def _has_store(app: Detent) -> bool:
    """A store that nobody has used yet is not created by looking for it."""
    _, url = app.new_store()
    if not store_exists(url):
        say(Context(None, None, url).no_store_yet)
    return store_exists(url)


def _add_none(parser: argparse.ArgumentParser) -> None:
    """It takes nothing."""


def _add_queue(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("queue", nargs="?", metavar="QUEUE", help="only this queue (default: all)")


def _add_listing(parser: argparse.ArgumentParser) -> None:
    _add_queue(parser)
    most = "how many to show of each queue (default: 20)"
    parser.add_argument("-n", type=count, default=20, dest="count", metavar="N", help=most)


def _add_push(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", help="a task of the app")
    parser.add_argument("args", nargs="?", default="[]", metavar="JSON", help=_ARGS)
    parser.add_argument(
        "--delay", type=seconds, dest="delay_s", metavar="TIME", help="how long until it is due, such as 90m"
    )
    parser.add_argument("--priority", choices=PRIORITIES, help="the priority within its queue")
    parser.add_argument("--unique", metavar="TEXT", help="skip it if a message with this text exists")
    parser.add_argument("--queue", metavar="QUEUE", help="the queue (default: the task's)")


def _add_retry(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("keys", nargs="*", metavar="KEY", help="a dead message, as `dead` lists it")
    parser.add_argument("--all", action="store_true", help="all dead messages")
    parser.add_argument("--queue", metavar="QUEUE", help="with --all: only of this queue")


def _add_purge(parser: argparse.ArgumentParser) -> None:
    _add_queue(parser)
    parser.add_argument("--dead", action="store_true", help="delete dead messages")
    parser.add_argument("--pending", action="store_true", help="cancel waiting messages")


_ARGS = "arguments as JSON: a list by position, like '[\"a\", 1]', or an object by name (default: none)"
Action = tuple[str, Callable[[argparse.ArgumentParser], None], Callable[["Detent", argparse.Namespace], int]]
ACTIONS: dict[str, Action] = {
    "ls": ("list the queues with their sizes, rates and breakers", _add_none, _list),
    "push": ("put a message on a queue", _add_push, _push),
    "peek": ("show the next messages of a queue", _add_listing, _peek),
    "dead": ("list messages that failed for good", _add_listing, _dead),
    "retry": ("run dead messages again", _add_retry, _retry),
    "purge": ("delete dead messages, or cancel waiting ones", _add_purge, _purge),
}
