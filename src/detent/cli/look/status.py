"""`detent status`: one screen that says whether all is well; with `--watch`, until Ctrl-C."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from detent import clock
from detent.cli.context import Context, add_store_options, open_context
from detent.cli.formatting import duration, iso, relative, time_cell
from detent.cli.json_records import state_text
from detent.cli.look.nodes import state_text as node_standing
from detent.cli.look.status_model import Failure, Overview, headline, look, overview_record, problems
from detent.cli.tables import (
    align_columns,
    drop_empty_columns,
    is_terminal,
    printable,
    rich_table,
    write_json,
)
from detent.errors import StoreUnavailable, UsageError
from detent.model import Row

if TYPE_CHECKING:
    from rich.console import Group

EXAMPLE = "detent status"
SHOWN_MAX = 10  # rows of a section
REDRAW_S = 1.0


class Section(NamedTuple):
    """A table whose first head is its title."""

    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    advice: str = ""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--watch", action="store_true", help="redraw every second until Ctrl-C")
    parser.add_argument(
        "--exit-code", action="store_true", help="exit with 1 unless all is well, for monitors"
    )
    add_store_options(parser)


def main(args: argparse.Namespace) -> int:
    context = open_context(args)
    if args.watch:
        if args.output == "json" or not is_terminal():
            raise UsageError("--watch is for a person at a terminal; leave it out, and ask again when needed")
        _watch(context, lambda: open_context(args))
    overview = look(context, clock.now())
    if args.output == "json":
        write_json(overview_record(overview))
    elif is_terminal():
        from rich.console import Console

        Console(highlight=False, markup=False).print(_drawn(overview))
    else:
        _write(overview)
    return 1 if args.exit_code and problems(overview) else 0


def _watch(context: Context, again: Callable[[], Context]) -> None:
    """It ends by Ctrl-C.  A store that does not exist yet is looked for again."""
    from rich.live import Live

    with Live(screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            try:
                live.update(_drawn(look(context, clock.now())), refresh=True)
                _sleep(context)
            except StoreUnavailable as error:
                live.update(_alarm(f"the store does not answer: {error}"), refresh=True)
                threading.Event().wait(REDRAW_S)
            context = context if context.store else again()


def _sleep(context: Context) -> None:
    if context.store and context.app:
        context.store.wait(context.app, REDRAW_S)
    else:
        threading.Event().wait(REDRAW_S)


# The screen.


def _drawn(overview: Overview) -> Group:
    from rich.console import Group
    from rich.text import Text

    style = "bold red" if problems(overview) else "bold green"
    parts: list[object] = [Text(printable(headline(overview)), style)]
    for section in _sections(overview):
        heads, rows = drop_empty_columns(section.heads, section.rows)
        parts += [Text(""), rich_table(heads, rows, kept=heads[:-1], rigid=heads[1:-1])]
        parts += [Text(section.advice, "dim")] if section.advice else []
    return Group(*parts)  # type: ignore[arg-type]


def _alarm(text: str) -> Group:
    from rich.console import Group
    from rich.text import Text

    return Group(Text(printable(text), "bold red"))


def _write(overview: Overview) -> None:
    print(printable(headline(overview)))
    for section in _sections(overview):
        print("", *align_columns(*drop_empty_columns(section.heads, section.rows)), sep="\n")
        if section.advice:
            print(section.advice)


def _sections(overview: Overview) -> Iterator[Section]:
    for made in (_running, _late, _unserved, _retrying, _failed, _paused, _next, _nodes):
        section = made(overview)
        if len(section.rows) > SHOWN_MAX:
            more = f"and {len(section.rows) - SHOWN_MAX:,} more"
            advice = f"{more}; {section.advice}" if section.advice else more
            section = section._replace(rows=section.rows[:SHOWN_MAX], advice=advice)
        if section.rows:
            yield section


def _running(overview: Overview) -> Section:
    now = overview.now
    rows = [
        (row.fire.job, _since(row.claimed_at, now), _at(row.claimed_at, now), *_told(row, overview))
        for row in overview.running
    ]
    return Section(("running", "for", "since", "attempt", "node", "state"), rows)


def _told(row: Row, overview: Overview) -> tuple[str, ...]:
    is_dead = any(node.is_dead and node.heartbeat.instance == row.node for node in overview.nodes)
    return str(row.attempt), row.node, "its node is dead" if is_dead else "stopping" if row.stop else ""


def _since(instant: datetime | None, now: datetime) -> str:
    return duration(max(0.0, (now - instant).total_seconds())) if instant else ""


def _late(overview: Overview) -> Section:
    rows = [(one.job, _when(one.due_at, overview.now), _times(one.times), one.why) for one in overview.late]
    return Section(("late", "due", "times", "reason"), rows)


def _unserved(overview: Overview) -> Section:
    rows = [(one.queue, f"{one.waiting:,}", one.app) for one in overview.unserved]
    return Section(("queue without a node", "waiting", "app"), rows)


def _retrying(overview: Overview) -> Section:
    rows = [
        (row.fire.key, _when(row.run_at, overview.now), str(row.attempt), _reason(row))
        for row in overview.retrying
    ]
    return Section(("waits for a retry", "again", "attempts", "reason"), rows)


def _failed(overview: Overview) -> Section:
    rows = [_failure(failure, overview.now) for failure in overview.failures]
    keys = [failure.last.fire.key for failure in overview.failures if failure.last.attempts]
    shows = f"`detent logs {keys[0]}` shows what it wrote" if keys else ""
    heads = ("failed in 24 h", "when", "outcome", "times", "since", "reason")
    return Section(heads, rows, shows)


def _failure(failure: Failure, now: datetime) -> tuple[str, ...]:
    row, since = failure.last, "succeeded" if failure.well_at else ""
    return row.fire.job, _ago(row.over_at, now), state_text(row), _times(failure.times), since, _reason(row)


def _times(count: int) -> str:
    return f"{count:,}" if count > 1 else ""


def _reason(row: Row) -> str:
    return row.outcome.reason if row.outcome else ""


def _paused(overview: Overview) -> Section:
    rows = [
        (pause.job, _when(pause.until, overview.now), pause.by, pause.reason) for pause in overview.pauses
    ]
    return Section(("paused", "until", "by", "reason"), rows)


def _next(overview: Overview) -> Section:
    rows = [
        (one.job, _when(one.due_at, overview.now), "paused" if one.paused else "") for one in overview.coming
    ]
    return Section(("next", "due", "state"), rows)


def _nodes(overview: Overview) -> Section:
    rows = []
    for node in overview.nodes:
        beat = node.heartbeat
        rows.append(
            (beat.instance, _since(beat.began_at, overview.now), str(node.running), node_standing(node))
        )
    return Section(("node", "up", "running", "state"), rows)


def _when(instant: datetime | None, now: datetime) -> str:
    return time_cell(instant, now, for_person=is_terminal())


def _at(instant: datetime | None, now: datetime) -> str:
    """Where how long ago it was stands beside it."""
    return _when(instant, now).partition(" (")[0]


def _ago(instant: datetime | None, now: datetime) -> str:
    return relative(instant, now) if instant and is_terminal() else iso(instant) or ""
