"""Formats instants, durations, text on one line, and the name of the user."""

import getpass
import os
import socket
from datetime import datetime, tzinfo

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


def printable(text: str) -> str:
    """Return the text on one line, without control characters: it cannot disturb a terminal."""
    return "".join(c if c.isprintable() else "�" for c in " ".join(text.split()))


def current_user() -> str:
    """Who runs this command, as `ana@host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # the user id has no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
