"""`detent pause`: stops scheduling jobs, for a while or until they are resumed.

- Instants that come due meanwhile are skipped, with the reason.  Running fires, retries and fires by hand
  continue.
- This verb logs the event `paused` as JSON to stderr, unless stderr is a terminal.  A pause that expires logs
  nothing.
"""

import argparse
from collections.abc import Mapping
from datetime import datetime

from detent import clock
from detent.cli.act.pauses import add_jobs, check_jobs, log_pauses
from detent.cli.context import add_store_options, open_context
from detent.cli.options import DURATION_MAX_S, parse_time, seconds
from detent.cli.tables import write_json
from detent.errors import UsageError
from detent.model import Query
from detent.stores.base import PAUSE, Store, app_of
from detent.text import listed, plural, quote
from detent.views.context import Context, require_store
from detent.views.formatting import current_user, local_time, printable
from detent.views.lookup import NOT_HOOKS, find_jobs, known_jobs
from detent.views.pauses import REASON_MAX, Pause, find_pauses, pause_record, pause_text

EXAMPLE = "detent pause backup --for 2h --reason 'the database moves'"
SHOWN_MAX = 5  # running fires that are named


def add_options(parser: argparse.ArgumentParser) -> None:
    add_jobs(parser)
    parser.add_argument("--reason", default="", metavar="TEXT", help="recorded with each skipped fire")
    ending = parser.add_mutually_exclusive_group()
    about = "how long, such as 2h or 3d"
    ending.add_argument("--for", type=seconds, dest="for_s", metavar="TIME", help=about)
    ending.add_argument("--until", metavar="TIME", help="when the pause ends: 18:00 or 2026-11-15 02:00")
    add_store_options(parser)


def main(args: argparse.Namespace) -> int:
    context, now = open_context(args), clock.now()
    store, names = require_store(context), _jobs(context, args)
    text, ttl_s = _text(args.reason), _ttl_s(args, now)
    apps = sorted({app_of(name) for name in names})
    before = find_pauses(store, apps)
    for name in names:
        store.note(app_of(name), PAUSE + name, text, ttl_s)
    after = find_pauses(store, apps)
    paused = [after[name] for name in names if name in after]
    log_pauses("paused", paused)
    if args.output == "json":
        write_json([pause_record(pause) for pause in paused])
    else:
        _print(paused, before, now)
        _print_running(store, names)
    return 0


def _jobs(context: Context, args: argparse.Namespace) -> list[str]:
    check_jobs(args)
    disabled = context.manifest.disabled if context.manifest else ()
    for name in args.jobs:
        if f"{context.app}.{name}" in disabled or name in disabled:
            raise UsageError(f"{name} is disabled in the manifest, so it does not fire anyway")
    known = known_jobs(context)
    return known if args.is_all else find_jobs(args.jobs, known)


def _text(reason: str) -> str:
    reason = printable(reason)
    if len(reason) > REASON_MAX:
        raise UsageError(f"the reason has {len(reason)} characters; {REASON_MAX} are allowed")
    return Pause("", current_user(), reason, clock.now(), None).text


def _ttl_s(args: argparse.Namespace, now: datetime) -> float:
    """How long the pause lasts; 0: until the jobs are resumed."""
    if args.until is None:
        return float(args.for_s or 0)
    ahead_s = (_until(args.until, now) - now).total_seconds()
    if not 0 < ahead_s <= DURATION_MAX_S:
        wrong = "it has passed already" if ahead_s <= 0 else "it is more than a hundred years ahead"
        raise UsageError(f"bad --until {quote(args.until)}: {wrong}")
    return ahead_s


def _until(text: str, now: datetime) -> datetime:
    """Parse a time in this machine's time zone; a time without a day that has passed is tomorrow's."""
    wall = now.astimezone().replace(tzinfo=None)
    found = parse_time(text, wall)
    until = found.at.astimezone()
    if until <= now and not found.has_day:
        until = parse_time(f"tomorrow {text}", wall).at.astimezone()
    return until


def _print(paused: list[Pause], before: Mapping[str, Pause], now: datetime) -> None:
    for pause in paused:
        print(f"{pause.job} is {pause_text(pause, now)}")
        if known := before.get(pause.job):
            print(f"  it was already paused since {local_time(known.since, now)}: {printable(known.text)}")
    if paused:
        print("instants that come due meanwhile are skipped; `detent resume` ends the pause")


def _print_running(store: Store, names: list[str]) -> None:
    queries = [Query(job=name, state="claimed", origins=NOT_HOOKS) for name in names]
    running = [row.fire.key for query in queries for row in store.find(query)]
    if running:
        more = [plural(len(running) - SHOWN_MAX, "other fire")] if len(running) > SHOWN_MAX else []
        still = "is still running" if len(running) == 1 else "are still running"
        print(f"{listed([*running[:SHOWN_MAX], *more], 'and')} {still}; `detent kill` stops a fire")
