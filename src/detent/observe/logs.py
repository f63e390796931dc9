"""Formats events as log lines: JSON for programs, or a short line for a terminal.

A line that may contain a secret is formatted again with its fields masked.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, TextIO

from detent import clock
from detent.events import EVENTS, Emit

if TYPE_CHECKING:
    from detent.messages.masking import Mask


Style = Literal["json", "plain", "coloured"]
_COLOURS = {"DEBUG": "\x1b[2m", "INFO": "", "WARN": "\x1b[33m", "ERROR": "\x1b[31m"}
_GREEN, _DIM, _RESET = "\x1b[32m", "\x1b[2m", "\x1b[0m"
_LEADING = ("app", "job", "run_id", "fire", "node")  # fields after time, level and event
_NOT_ON_TERMINAL = frozenset({"fire-started"})  # a terminal gets one line a fire, when it ends
_SHOWN_MAX = 3  # names of fires
_HINTS = (  # in lower case; a mask finds nothing in a line without any of these
    *("passw", "passphrase", "pwd", "secret", "token", "key", "credential", "authorization", "cookie"),
    *("signature", "jwt", "bearer", "basic", "://"),
)
_encode = json.JSONEncoder(default=str, ensure_ascii=False).encode


def log_to(stream: TextIO, style: Style, mask: Mask | None = None) -> Emit:
    """Return a listener that writes each event as one line; a failed write is ignored."""
    lock = threading.Lock()

    def write(line: Callable[[], str]) -> None:
        with lock:
            try:
                stream.write(line() + "\n")
                stream.flush()
            except (OSError, ValueError):  # the terminal is gone, or the disk is full
                pass

    return log_later(write, style, mask)


def log_later(write: Callable[[Callable[[], str]], None], style: Style, mask: Mask | None = None) -> Emit:
    """Return a listener that passes each event to `write` as a function that formats it, to save time."""

    def emit(event: str, **fields: Any) -> None:
        is_shown = style == "json" or event not in _NOT_ON_TERMINAL
        if is_shown and EVENTS[event].level != "DEBUG":
            write(partial(_masked_line, style, mask, event, clock.wall(), fields))

    return emit


def format_event(event: str, style: Style, **fields: Any) -> str:
    return _masked_line(style, None, event, clock.wall(), fields)


def _masked_line(style: Style, mask: Mask | None, event: str, at: float, fields: dict[str, Any]) -> str:
    line = _STYLES[style](event, at, fields)
    lower = line.lower()
    if not any(hint in lower for hint in _HINTS) and not (mask and mask.knows(line)):
        return line
    from detent.messages.masking import Mask  # late: a trigger rarely needs it

    return _STYLES[style](event, at, (mask or Mask()).fields(fields))


def _json_line(event: str, at: float, fields: dict[str, Any]) -> str:
    return _encode(record_of(event, at, fields))


def record_of(event: str, at: float, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a log line."""
    second, part = divmod(at, 1)
    time = f"{_to_the_second(int(second))}.{int(part * 1000):03}Z"
    record: dict[str, Any] = {"time": time, "level": EVENTS[event].level, "event": event}
    record |= {name: fields[name] for name in _LEADING if name in fields}
    return record | fields


@lru_cache(maxsize=4)  # many lines have the same second
def _to_the_second(seconds: int) -> str:
    return f"{clock.instant(seconds):%Y-%m-%dT%H:%M:%S}"


def _coloured_line(event: str, at: float, fields: dict[str, Any]) -> str:
    colour = _GREEN if event == "success" else _COLOURS[EVENTS[event].level]
    details = [
        form(fields[name]) for name, form in _DETAILS.items() if fields.get(name) not in (None, "", [])
    ]
    subject, rest = fields.get("fire") or fields.get("node", ""), "  ".join(filter(None, details))
    time = f"{clock.instant(at).astimezone():%H:%M:%S}"
    return f"{_DIM}{time}{_RESET} {colour}{event:<18}{_RESET} {subject}  {_DIM}{rest}{_RESET}".rstrip()


def _plain_line(event: str, at: float, fields: dict[str, Any]) -> str:
    return re.sub(r"\x1b\[[0-9]*m", "", _coloured_line(event, at, fields))


def _some(keys: list[str]) -> str:
    more = f" and {len(keys) - _SHOWN_MAX} more" if len(keys) > _SHOWN_MAX else ""
    return ", ".join(keys[:_SHOWN_MAX]) + more


_DETAILS: dict[str, Callable[[Any], str]] = {  # the fields on a terminal, in this order
    "attempt": lambda n: f"attempt {n}" if n > 1 else "",
    "attempts": lambda n: f"{n} attempts" if n > 1 else "",
    "reason": str,
    "again_in_s": lambda s: f"again in {s:g} s",
    "took_ms": lambda ms: f"{ms / 1000:.1f} s" if ms >= 1000 else f"{ms} ms" if ms else "",
    "late_s": lambda s: f"{s} s late",
    "instants": lambda n: f"{n} instants",
    "jobs": lambda jobs: f"{jobs} jobs" if isinstance(jobs, int) else ", ".join(jobs),
    "address": lambda address: f"http://{address}/metrics",
    "queues": lambda queues: f"serves {', '.join(queues)}",
    "lines": lambda n: f"{n} lines",
    "listener": str,
    "error": str,
    "url": str,
    "added": lambda jobs: f"added {', '.join(jobs)}",
    "changed": lambda jobs: f"changed {', '.join(jobs)}",
    "removed": lambda jobs: f"removed {', '.join(jobs)}",
    "running": lambda keys: f"still running: {_some(keys)}",
    "drain_s": lambda s: f"waits at most {s:g} s; a second Ctrl-C stops it at once",
}
_STYLES: dict[Style, Callable[[str, float, dict[str, Any]], str]] = {
    "json": _json_line,
    "plain": _plain_line,
    "coloured": _coloured_line,
}
