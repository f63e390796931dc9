"""Formats instants in tables, and wrapped and coloured text."""

import os
import shutil
import textwrap
from collections.abc import Callable
from datetime import datetime
from functools import partial

from detent.cli.tables import is_terminal
from detent.views.formatting import iso, local_time, relative

WIDTH_LOW, WIDTH_MAX = 40, 110  # narrower or wider lines are hard to read


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
