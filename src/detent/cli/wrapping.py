"""Text in lines: as wide as the terminal, whole where the output is a file or a pipe."""

from __future__ import annotations

import os
import shutil
import textwrap

from detent.cli.tables import is_terminal

WIDTH_LOW, WIDTH_MAX = 40, 110  # narrower cannot be read, and neither can wider


def wrapped(text: str, first: str = "", indent: str = "") -> str:
    """The text after `first`, its further lines indented; words are not broken."""
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
    """On a terminal that wants colours."""
    codes = {"green": 32, "yellow": 33, "red": 31, "dim": 2, "bold": 1}
    return f"\x1b[{codes[colour]}m{text}\x1b[0m" if is_terminal() and not os.environ.get("NO_COLOR") else text
