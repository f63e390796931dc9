"""`detent pause`: keep jobs from firing by their schedules, for a while or until they are resumed.

- A pause is a note in the store.  Instants that come due meanwhile are skipped, each with the reason; what
  runs, waits for a retry or is fired by hand goes on.
- The event `paused` is told by this verb, since it happens once in the fleet and here: as a line of JSON on
  stderr, unless a person looks at it.  A pause that ends by its time is told by nobody.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from datetime import datetime

from detent import clock
from detent.cli.act.pauses import (
    REASON_MAX,
    Pause,
    add_jobs,
    check_jobs,
    find_pauses,
    log_pauses,
    pause_record,
    pause_text,
)
from detent.cli.context import Context, add_store_options, open_context, require_store
from detent.cli.formatting import current_user, local_time
from detent.cli.lookup import NOT_HOOKS, find_jobs, known_jobs
from detent.cli.options import DURATION_MAX_S, parse_time, seconds
from detent.cli.tables import printable, write_json
from detent.errors import UsageError
from detent.model import Query
from detent.stores.base import PAUSE, Store, app_of
from detent.text import listed, plural, quote

EXAMPLE = "detent pause backup --for 2h --reason 'the database moves'"
SHOWN_MAX = 5  # fires that go on


def add_options(parser: argparse.ArgumentParser) -> None:
    add_jobs(parser)
    parser.add_argument("--reason", default="", metavar="TEXT", help="recorded with each skipped fire")
    ending = parser.add_mutually_exclusive_group()
    ending.add_argument(
        "--for", type=seconds, dest="for_s", metavar="TIME", help="how long, such as 2h or 3d"
    )
    ending.add_argument("--until", metavar="TIME", help="when the pause ends: 18:00 or 2026-11-15 02:00")
    add_store_options(parser)


def main(args: argparse.Namespace) -> int:
    context, now = open_context(args), clock.now()
    store, names = require_store(context), _meant(context, args)
    text, ttl_s = _text(args.reason), _ttl_s(args, now)
    before = {name: pause for app in _apps(names) for name, pause in find_pauses(store, app).items()}
    for name in names:
        store.note(app_of(name), PAUSE + name, text, ttl_s)
    after = {name: pause for app in _apps(names) for name, pause in find_pauses(store, app).items()}
    paused = [after[name] for name in names if name in after]
    log_pauses("paused", paused)
    if args.output == "json":
        write_json([pause_record(pause) for pause in paused])
    else:
        _say(paused, before, now)
        _say_what_runs(store, names)
    return 0


def _meant(context: Context, args: argparse.Namespace) -> list[str]:
    check_jobs(args)
    disabled = context.manifest.disabled if context.manifest else ()
    for name in args.jobs:
        if f"{context.app}.{name}" in disabled or name in disabled:
            raise UsageError(f"{name} is disabled in the manifest: it does not fire anyway")
    known = known_jobs(context)
    return known if args.is_all else find_jobs(args.jobs, known)


def _apps(names: list[str]) -> list[str]:
    return sorted({app_of(name) for name in names})


def _text(reason: str) -> str:
    told = printable(reason)
    if len(told) > REASON_MAX:
        raise UsageError(f"the reason has {len(told)} characters; {REASON_MAX} are allowed")
    return Pause("", current_user(), told, clock.now(), None).text


def _ttl_s(args: argparse.Namespace, now: datetime) -> float:
    """For how long; 0: until somebody resumes them."""
    if args.until is None:
        return float(args.for_s or 0)
    ahead_s = (_until(args.until, now) - now).total_seconds()
    if not 0 < ahead_s <= DURATION_MAX_S:
        wrong = "it has passed already" if ahead_s <= 0 else "it is more than a hundred years ahead"
        raise UsageError(f"bad --until {quote(args.until)}: {wrong}")
    return ahead_s


def _until(text: str, now: datetime) -> datetime:
    """By the clock on this machine's wall; a time of which today's has passed is tomorrow's."""
    said = parse_time(text, now.astimezone().replace(tzinfo=None))
    until = said.shown.astimezone()
    if until <= now and not said.has_day:
        until = parse_time(f"tomorrow {text}", now.astimezone().replace(tzinfo=None)).shown.astimezone()
    return until


def _say(paused: list[Pause], before: Mapping[str, Pause], now: datetime) -> None:
    for pause in paused:
        print(f"{pause.job} is {pause_text(pause, now)}")
        if known := before.get(pause.job):
            print(f"  it was already, since {local_time(known.since, now)}: {printable(known.text)}")
    if paused:
        them = "it" if len(paused) == 1 else "them"
        print(f"instants that come due meanwhile are skipped; `detent resume` takes {them} up again")


def _say_what_runs(store: Store, names: list[str]) -> None:
    running = [
        row.fire.key
        for name in names
        for row in store.find(Query(job=name, state="claimed", origins=NOT_HOOKS))
    ]
    if running:
        more = [plural(len(running) - SHOWN_MAX, "other fire")] if len(running) > SHOWN_MAX else []
        goes = "runs now, and goes on" if len(running) == 1 else "run now, and go on"
        print(f"{listed([*running[:SHOWN_MAX], *more], 'and')} {goes}; `detent kill` ends a fire")
