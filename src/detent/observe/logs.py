"""Events as lines: JSON for machines, a short coloured line for a terminal.

One line is one write, so that lines of threads never mix.  A reader that went away breaks no job.  A line in
which something looks like a secret is worded again, masked.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

from detent import clock
from detent.events import EVENTS, Emit

if TYPE_CHECKING:
    from detent.messages.masking import Mask


class Sink(Protocol):
    """Where lines go: a stream, or something that looks like one."""

    def write(self, line: str, /) -> object: ...

    def flush(self) -> object: ...


def format_event(event: str, style: Style, **fields: Any) -> str:
    """One event as its line."""
    return _word(style, None, event, clock.wall(), fields)


Style = Literal["json", "plain", "coloured"]
QUIET = frozenset({"DEBUG"})
_COLOURS = {"DEBUG": "\x1b[2m", "INFO": "", "WARN": "\x1b[33m", "ERROR": "\x1b[31m"}
_encode = json.JSONEncoder(default=str, ensure_ascii=False).encode  # made once, for thousands of lines
_GOOD, _DIM, _PLAIN = "\x1b[32m", "\x1b[2m", "\x1b[0m"
_LEADING = ("app", "job", "run_id", "fire", "node")  # behind time, level and event
_ON_TERMINAL: tuple[str, ...] = (
    "attempt",
    "attempts",
    "reason",
    "again_in_s",
    "took_ms",
    "late_s",
    "instants",
    "jobs",
    "queues",
)
_ON_TERMINAL += ("lines", "error", "added", "changed", "removed", "running", "drain_s")
_NOT_ON_TERMINAL = frozenset({"fire-started"})  # a person gets one line a fire, when it has ended
_SHOWN_MAX = 3  # fires by name
_HINTS: tuple[str, ...] = (
    "passw",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "key",
    "credential",
    "authorization",
    "cookie",
)
_HINTS += ("signature", "jwt", "bearer", "basic", "://")


def log_to(stream: Sink, style: Style, quiet: frozenset[str] = QUIET, mask: Mask | None = None) -> Emit:
    """A listener that writes each event as one line."""
    lock = threading.Lock()

    def write(line: Callable[[], str]) -> None:
        with lock:
            _write(stream, line())

    return log_later(write, style, quiet, mask)


def log_later(
    write: Callable[[Callable[[], str]], None],
    style: Style,
    quiet: frozenset[str] = QUIET,
    mask: Mask | None = None,
) -> Emit:
    """A listener that leaves the wording of each event to whoever writes it: who emits has other work."""

    def emit(event: str, **fields: Any) -> None:
        is_shown = style == "json" or event not in _NOT_ON_TERMINAL
        if is_shown and EVENTS[event].level not in quiet:
            write(partial(_word, style, mask, event, clock.wall(), fields))

    return emit


def _word(style: Style, mask: Mask | None, event: str, at: float, fields: dict[str, Any]) -> str:
    word = _STYLES[style]
    line = word(event, at, fields)
    if not _may_tell(line) and not (mask and mask.knows(line)):
        return line
    from detent.messages.masking import Mask  # late: few lines need it, and a trigger's none

    return word(event, at, (mask or Mask()).fields(fields))


def _may_tell(line: str) -> bool:
    """Is something in it of all that a mask without values would look for?"""
    lower = line.lower()
    for hint in _HINTS:  # noqa: SIM110 -- any() takes twice as long
        if hint in lower:
            return True
    return False


def _write(stream: Sink, line: str) -> None:
    try:
        stream.write(line + "\n")
        stream.flush()
    except (OSError, ValueError):  # the terminal is gone, or the disk is full: jobs go on
        return


def _json_line(event: str, at: float, fields: dict[str, Any]) -> str:
    second, part = divmod(at, 1)
    time = f"{_to_the_second(int(second))}.{int(part * 1000):03}Z"
    record: dict[str, Any] = {"time": time, "level": EVENTS[event].level, "event": event}
    for name in _LEADING:
        if name in fields:
            record[name] = fields[name]
    return _encode(record | fields)


@lru_cache(maxsize=4)  # many lines have one second
def _to_the_second(seconds: int) -> str:
    return f"{clock.instant(seconds):%Y-%m-%dT%H:%M:%S}"


def _terminal_line(event: str, at: float, fields: dict[str, Any]) -> str:
    colour = _GOOD if event == "success" else _COLOURS[EVENTS[event].level]
    told = "  ".join(text for name in _ON_TERMINAL if (text := _told(name, fields.get(name))))
    subject = fields.get("fire") or fields.get("node", "")
    time = f"{clock.instant(at).astimezone():%H:%M:%S}"
    return f"{_DIM}{time}{_PLAIN} {colour}{event:<18}{_PLAIN} {subject}  {_DIM}{told}{_PLAIN}".rstrip()


def _plain_line(event: str, at: float, fields: dict[str, Any]) -> str:
    return re.sub(r"\x1b\[[0-9]*m", "", _terminal_line(event, at, fields))


def _told(name: str, value: Any) -> str:
    return _WORDS[name](value) if value not in (None, "", []) else ""


def _first(keys: list[str]) -> str:
    more = f" and {len(keys) - _SHOWN_MAX} more" if len(keys) > _SHOWN_MAX else ""
    return ", ".join(keys[:_SHOWN_MAX]) + more


_WORDS: dict[str, Callable[[Any], str]] = {
    "reason": str,
    "error": str,
    "took_ms": lambda ms: f"{ms / 1000:.1f} s" if ms >= 1000 else f"{ms} ms" if ms else "",
    "again_in_s": lambda s: f"again in {s:g} s",
    "late_s": lambda s: f"{s} s late",
    "attempts": lambda n: f"{n} attempts" if n > 1 else "",
    "attempt": lambda n: f"attempt {n}" if n > 1 else "",
    "instants": lambda n: f"{n} instants",
    "lines": lambda n: f"{n} lines",
    "running": lambda keys: f"still running: {_first(keys)}",
    "drain_s": lambda s: f"waits at most {s:g} s; a second Ctrl-C ends it at once",
    "queues": lambda queues: f"serves {', '.join(queues)}",
    "jobs": lambda jobs: f"{jobs} jobs" if isinstance(jobs, int) else ", ".join(jobs),
    "added": lambda jobs: f"added {', '.join(jobs)}",
    "changed": lambda jobs: f"changed {', '.join(jobs)}",
    "removed": lambda jobs: f"removed {', '.join(jobs)}",
}

_STYLES: dict[Style, Callable[[str, float, dict[str, Any]], str]] = {
    "json": _json_line,
    "plain": _plain_line,
    "coloured": _terminal_line,
}
