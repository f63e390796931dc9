"""Writes results to stdout (tables and coloured text on a terminal, aligned text elsewhere, JSON), and notes
to stderr."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.views.formatting import iso, local_time, printable, relative

if TYPE_CHECKING:
    import argparse

    from rich.table import Table as RichTable

_COLOURS = {
    "succeeded": "green",
    "running": "cyan",
    "stopping": "yellow",
    "paused": "yellow",
    "failed": "red",
    "rejected": "red",
    "timed-out": "red",
    "lost": "red",
    "missed": "yellow",
    "skipped": "yellow",
    "replaced": "yellow",
    "cancelled": "yellow",
    "disabled": "dim",
}
_COLOURED = ("outcome", "last", "state", "since")  # columns whose first word is coloured
LAST_LOW = 20  # characters: the last column is not wrapped narrower than this
GAP = 2  # between columns
WIDTH_LOW, WIDTH_MAX = 40, 110  # narrower or wider lines are hard to read


def is_terminal() -> bool:
    return sys.stdout.isatty()


def say(text: str) -> None:
    """Print a note to stderr: anything that is not the result."""
    sys.stdout.flush()  # keeps the order if both go to one terminal
    print(text, file=sys.stderr, flush=True)


def write_json(value: Any) -> None:
    is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    print(json.dumps(value, indent=2, ensure_ascii=not is_unicode))


class Table(NamedTuple):
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    kept: Sequence[str] = ("job", "fire", "due", "next", "outcome")  # columns that are never wrapped
    spare: Sequence[str] = ()  # columns that a narrow terminal drops, the first one first


def write_found(args: argparse.Namespace, records: Iterable[Any], table: Table, nothing: str) -> int:
    """Write the records as JSON, or the table; if it has no rows, the note `nothing`."""
    if args.output == "json":
        write_json([*records])
    elif table.rows:
        write_table(table)
    elif nothing:
        say(nothing)
    return 0


def write_table(table: Table) -> None:
    heads, cells = drop_empty_columns(table.heads, table.rows)
    if is_terminal():
        from rich.console import Console  # slow to import

        console = Console(highlight=False, markup=False)
        heads, cells = drop_spare_columns(heads, cells, table.spare, console.width)
        console.print(rich_table(heads, cells, table.kept))
    else:
        print("\n".join(align_columns(heads, cells)))


def drop_empty_columns(
    heads: Sequence[str], rows: Iterable[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    """Drop columns without text, and make every cell printable."""
    cells = [[printable(cell) for cell in row] for row in rows]
    columns = [i for i in range(len(heads)) if any(row[i] for row in cells)]
    return [heads[i] for i in columns], [[row[i] for i in columns] for row in cells]


def drop_spare_columns(
    heads: list[str], cells: list[list[str]], spare: Sequence[str], width: int
) -> tuple[list[str], list[list[str]]]:
    """Drop spare columns until the table fits; the last column may be wrapped unless it is spare."""
    for name in spare:
        widths = [max(len(row[i]) for row in (heads, *cells)) for i in range(len(heads))]
        if heads[-1] not in spare:
            widths[-1] = min(widths[-1], LAST_LOW)
        if sum(widths) + GAP * (len(heads) - 1) <= width:
            break
        if name in heads:
            i = heads.index(name)
            heads, cells = heads[:i] + heads[i + 1 :], [row[:i] + row[i + 1 :] for row in cells]
    return heads, cells


def align_columns(heads: list[str], rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (heads, *rows)
    ]


def rich_table(
    heads: list[str], rows: list[list[str]], kept: Sequence[str], rigid: Sequence[str] = ()
) -> RichTable:
    """Build the table for a terminal; `rigid` columns keep their width."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    for i, head in enumerate(heads):
        width = max(len(row[i]) for row in (heads, *rows)) if head in rigid else None
        table.add_column(head, no_wrap=head in kept, overflow="fold", min_width=width)
    for row in rows:
        table.add_row(*(Text(cell, _colour(head, cell)) for head, cell in zip(heads, row, strict=True)))
    return table


def _colour(head: str, cell: str) -> str:
    return _COLOURS.get(cell.partition(" ")[0].rstrip(","), "") if head in _COLOURED else ""


def time_cell(
    instant: datetime | None, now: datetime, shown: Callable[[datetime, datetime], str] = local_time
) -> str:
    """An instant in a table: local time for people, UTC for programs."""
    if instant is None:
        return ""
    return shown(instant, now) if is_terminal() else iso(instant) or ""


relative_cell = partial(time_cell, shown=relative)  # for people, how far away it is


def wrapped(text: str, first: str = "", indent: str = "") -> str:
    """Put the text after `first` and wrap it to the width of the terminal; not in a file or a pipe."""
    if not is_terminal():
        return first + text
    return textwrap.fill(
        text,
        width=max(WIDTH_LOW, min(WIDTH_MAX, shutil.get_terminal_size().columns)),
        initial_indent=first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def coloured(text: str, colour: str) -> str:
    """Add colour codes on a terminal, unless NO_COLOR is set."""
    codes = {"green": 32, "yellow": 33, "red": 31, "dim": 2, "bold": 1}
    return f"\x1b[{codes[colour]}m{text}\x1b[0m" if is_terminal() and not os.environ.get("NO_COLOR") else text
