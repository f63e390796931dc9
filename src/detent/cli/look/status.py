"""`detent status`: shows on one screen what is running, late, failing or due next; `--watch` redraws it."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from detent import clock
from detent.cli.context import add_store_options, open_context
from detent.cli.tables import (
    align_columns,
    drop_empty_columns,
    is_terminal,
    relative_cell,
    rich_table,
    time_cell,
    write_json,
)
from detent.errors import StoreUnavailable, UsageError
from detent.model import Row
from detent.views.context import Context
from detent.views.formatting import duration, printable
from detent.views.json_records import state_text
from detent.views.nodes import node_state
from detent.views.status import Failure, Overview, headline, look, overview_record, problems

if TYPE_CHECKING:
    from rich.console import Group

EXAMPLE = "detent status"
SHOWN_MAX = 10  # rows of a section
REDRAW_S = 1.0


class Section(NamedTuple):
    """A table; its first heading is the title."""

    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    advice: str = ""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--watch", action="store_true", help="redraw every second until Ctrl-C")
    about = "exit with 1 unless all is well, for monitors"
    parser.add_argument("--exit-code", action="store_true", help=about)
    add_store_options(parser)


def main(args: argparse.Namespace) -> int:
    context = open_context(args)
    if args.watch:
        if args.output == "json" or not is_terminal():
            raise UsageError("--watch needs a terminal and text output: leave it out")
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
    """Redraw until Ctrl-C; a missing store is looked for again each time."""
    from rich.live import Live
    from rich.text import Text

    with Live(screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            try:
                live.update(_drawn(look(context, clock.now())), refresh=True)
                _sleep(context)
            except StoreUnavailable as error:
                live.update(Text(printable(f"the store does not answer: {error}"), "bold red"), refresh=True)
                threading.Event().wait(REDRAW_S)
            context = context if context.store else again()


def _sleep(context: Context) -> None:
    if context.store and context.app:
        context.store.wait(context.app, REDRAW_S)
    else:
        threading.Event().wait(REDRAW_S)


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


def _write(overview: Overview) -> None:
    print(printable(headline(overview)))
    for section in _sections(overview):
        print("", *align_columns(*drop_empty_columns(section.heads, section.rows)), sep="\n")
        if section.advice:
            print(section.advice)


def _sections(overview: Overview) -> Iterator[Section]:
    """The sections with rows, each cut to SHOWN_MAX rows."""
    for section in _all_sections(overview):
        if len(section.rows) > SHOWN_MAX:
            more = f"and {len(section.rows) - SHOWN_MAX:,} more"
            advice = f"{more}; {section.advice}" if section.advice else more
            section = section._replace(rows=section.rows[:SHOWN_MAX], advice=advice)
        if section.rows:
            yield section


def _all_sections(overview: Overview) -> Iterator[Section]:
    now = overview.now
    heads: tuple[str, ...] = ("running", "for", "since", "attempt", "node", "state")
    yield Section(heads, [_running(row, overview) for row in overview.running])
    rows = [(one.job, time_cell(one.due_at, now), _times(one.times), one.why) for one in overview.late]
    yield Section(("late", "due", "times", "reason"), rows)
    unserved = [(one.queue, f"{one.waiting:,}", one.app) for one in overview.unserved]
    yield Section(("queue without a node", "waiting", "app"), unserved)
    rows = [
        (row.fire.key, time_cell(row.run_at, now), str(row.attempt), _reason(row))
        for row in overview.retrying
    ]
    yield Section(("waiting for a retry", "due", "attempts", "reason"), rows)
    keys = [failure.last.fire.key for failure in overview.failures if failure.last.attempts]
    advice = f"`detent logs {keys[0]}` shows its output" if keys else ""
    heads = ("failed in 24 h", "when", "outcome", "times", "since", "reason")
    yield Section(heads, [_failure(failure, now) for failure in overview.failures], advice)
    rows = [(pause.job, time_cell(pause.until, now), pause.by, pause.reason) for pause in overview.pauses]
    yield Section(("paused", "until", "by", "reason"), rows)
    coming = [
        (one.job, time_cell(one.due_at, now), "paused" if one.paused else "") for one in overview.coming
    ]
    yield Section(("next", "due", "state"), coming)
    rows = [
        (node.heartbeat.instance, _age(node.heartbeat.began_at, now), str(node.running), node_state(node))
        for node in overview.nodes
    ]
    yield Section(("node", "up", "running", "state"), rows)


def _running(row: Row, overview: Overview) -> tuple[str, ...]:
    is_dead = any(node.is_dead and node.heartbeat.instance == row.node for node in overview.nodes)
    state = "its node is dead" if is_dead else "stopping" if row.stop else ""
    since = time_cell(row.claimed_at, overview.now).partition(" (")[0]  # `for` says how long ago
    return row.fire.job, _age(row.claimed_at, overview.now), since, str(row.attempt), row.node, state


def _failure(failure: Failure, now: datetime) -> tuple[str, ...]:
    row, since = failure.last, "succeeded" if failure.well_at else ""
    when = relative_cell(row.over_at, now)
    return row.fire.job, when, state_text(row), _times(failure.times), since, _reason(row)


def _age(instant: datetime | None, now: datetime) -> str:
    return duration(max(0.0, (now - instant).total_seconds())) if instant else ""


def _times(count: int) -> str:
    return f"{count:,}" if count > 1 else ""


def _reason(row: Row) -> str:
    return row.outcome.reason if row.outcome else ""
