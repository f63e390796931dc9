"""Formats instants, durations, wrapped and coloured text, and the name of the user."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import textwrap
from datetime import datetime, tzinfo

from detent.cli.tables import is_terminal

WIDTH_LOW, WIDTH_MAX = 40, 110  # narrower or wider lines are hard to read

_STEPS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_NOW_S = 1.0


def iso(instant: datetime | None) -> str | None:
    """`2026-03-01T02:00:00Z`, with milliseconds if there are any."""
    if instant is None:
        return None
    milliseconds = instant.microsecond // 1000
    fraction = f".{milliseconds:03}" if milliseconds else ""
    return f"{instant:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def relative(instant: datetime, now: datetime) -> str:
    """`in 3 min`, `2 h ago`, `now`."""
    ahead_s = (instant - now).total_seconds()
    if abs(ahead_s) < _NOW_S:
        return "now"
    return f"in {_rounded(ahead_s)}" if ahead_s > 0 else f"{_rounded(-ahead_s)} ago"


def _rounded(seconds: float) -> str:
    unit, size = next(step for step in _STEPS if seconds >= step[1])
    return f"{int(seconds / size)} {unit}"


def duration(seconds: float | None) -> str:
    """`12 ms`, `3.4 s`, `5 min 10 s`, `2 h 3 min`; empty for None."""
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    larger = next(i for i, (_, size) in enumerate(_STEPS) if seconds >= size)
    (unit, size), (smaller, part) = _STEPS[larger], _STEPS[larger + 1]
    rest = int(seconds % size / part)
    return f"{int(seconds / size)} {unit}" + (f" {rest} {smaller}" if rest else "")


def local_time(instant: datetime, now: datetime, zone: tzinfo | None = None) -> str:
    """`14:00:00 (in 2 h)`, with the date unless it is today."""
    shown, today = instant.astimezone(zone), now.astimezone(zone)
    day = "" if shown.date() == today.date() else f"{shown:%Y-%m-%d} "
    return f"{day}{shown:%H:%M:%S} ({relative(instant, now)})"


def time_cell(instant: datetime | None, now: datetime) -> str:
    """An instant in a table: local time for people, UTC for programs."""
    if instant is None:
        return ""
    return local_time(instant, now) if is_terminal() else iso(instant) or ""


def relative_cell(instant: datetime | None, now: datetime) -> str:
    """As `time_cell`, but for people only how far away it is."""
    if instant is None:
        return ""
    return relative(instant, now) if is_terminal() else iso(instant) or ""


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


def current_user() -> str:
    """Who runs this command, as `ana@host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # the user id has no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
