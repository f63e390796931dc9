"""Compares the output of a command with the output on a page.

- `...` on the page matches any text, in a line or instead of lines.
- Any white space matches any other: where a line wraps depends on the terminal and on the length of names.
- Unless `exact`, every time matches every other time; so do durations, names of nodes and the like.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

VARYING = (  # patterns, and the words that replace their matches; applied in this order
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22,}\b"), "RUN-ID"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d+)?)?Z?"), "TIME"),
    (re.compile(r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun) TIME"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b\d+(\.\d+)? (ms|s|min|h|d)\b( \d+ (s|min|h)\b)?"), "DURATION"),
    (re.compile(r"\bin DURATION|\bDURATION ago|\bnow\b"), "SOON"),
    (re.compile(r"\b[\w-]+\.[0-9a-f]{8}\b"), "NODE"),
    (re.compile(r"(?<![\w.-])[a-z_][\w-]*@[\w-]+"), "USER"),  # not `app.job@…`
    (re.compile(r"\+[0-9a-f]{8}\b"), "+TOKEN"),
    (re.compile(r"\b\d{12,}\b"), "FENCE"),
    (re.compile(r"[+-]\d\.\d s\b"), "OFFSET"),
)
ANY = "..."
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def is_like(shown: Sequence[str], said: str, *, exact: bool = False) -> bool:
    parts = re.split(rf" ?{re.escape(ANY)} ?", _plain(" ".join(shown), exact))
    return bool(re.fullmatch(".*".join(re.escape(part) for part in parts), _plain(said, exact)))


def begins_like(shown: Sequence[str], said: str) -> bool:
    return is_like([*shown, ANY], said)


def _plain(text: str, exact: bool) -> str:
    text = _ESCAPE.sub("", text)
    for pattern, word in () if exact else VARYING:
        text = pattern.sub(word, text)
    return " ".join(text.split())
