"""Does a command answer as its page shows?  Pages show real times, names and numbers; others are as good.

- `...` stands for any text, in a line or instead of lines.
- Space is space, however much of it, and so is the end of a line: where a line is wrapped depends on the
  width of the terminal and the length of a name.
- Unless `exact`, a time is like any time, a duration like any duration, and so are the names of nodes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

VARYING = (  # what varies, and the word that stands for it; the first that matches wins
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
