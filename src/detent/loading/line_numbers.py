"""Finds the line of each path in a JSON or TOML text.

The text was already parsed, so it is valid except for duplicate keys in JSON.  `jobs/0/name` has the line of
its key, `schedules/1` the line of its item.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import count

_BLANK = re.compile(r"(?:[ \t\r\n\ufeff]|#[^\n]*)*")  # JSON has no comments, but also no # outside a string
_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}'
    r"|'''(?:[^']|'(?!''))*'{3,5}"
    r'|"(?:[^"\\]|\\.)*"'
    r"|'[^']*'",
    re.DOTALL,
)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BARE_VALUE = re.compile(r"\d{4}-\d\d-\d\d \d\d:[^\s,\]}#]*|[^\s,\]}#]+")  # TOML dates may have a space


class LineIndex:
    """The line of each path, and the duplicate keys with the line of the second one."""

    def __init__(self, text: str, *, is_toml: bool) -> None:
        self.lines: dict[str, int] = {}
        self.duplicates: list[tuple[str, int]] = []
        self._text = text
        self._at = 0
        self._counted = 0  # line breaks are counted up to here
        self._line = 1
        self._elements: dict[str, int] = {}  # TOML: the newest element of each array of tables
        # An unknown line must not hide the problem itself.
        with suppress(IndexError, AttributeError, RecursionError):
            self._statements() if is_toml else self._value("")

    def _value(self, path: str) -> None:
        self._skip()
        match self._text[self._at]:
            case "{":
                for _ in self._members("}"):
                    self._pair(path)
            case "[":
                for index in self._members("]"):
                    item = _join(path, str(index))
                    self.lines.setdefault(item, self._now())
                    self._value(item)
            case '"' | "'":
                self._take(_STRING)
            case _:
                self._take(_BARE_VALUE)

    def _members(self, end: str) -> Iterator[int]:
        """Yield the index of each member of a list or mapping when the scanner is at it."""
        self._at += 1
        for index in count():
            if self._next() == end:
                break
            yield index
            if self._next() == ",":
                self._at += 1
        self._at += 1

    def _pair(self, path: str) -> None:
        """`"key": value`, or in TOML `key.key = value`."""
        self._skip()
        line = self._now()
        parts = self._key()
        for part in parts[:-1]:
            path = _join(path, part)
            self.lines.setdefault(path, line)
        path = _join(path, parts[-1])
        if path in self.lines:
            self.duplicates.append((path, line))
        self.lines.setdefault(path, line)
        self._next()
        self._at += 1  # : or =
        self._value(path)

    def _key(self) -> list[str]:
        parts = []
        while True:
            quoted = self._next() in "\"'"
            part = self._take(_STRING if quoted else _BARE_KEY)
            parts.append(_unquoted(part) if quoted else part)
            if self._next() != ".":
                return parts
            self._at += 1

    def _statements(self) -> None:
        """Scan the tables and pairs of a TOML text."""
        table = ""
        while self._skip() < len(self._text):
            if self._text.startswith("[", self._at):
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> str:
        """Return the path of `[a.b]`, or of a new element of `[[a.b]]`."""
        is_element = self._text.startswith("[[", self._at)
        line = self._now()
        self._at += 2 if is_element else 1
        path = ""
        parts = self._key()
        for part in parts[:-1]:
            path = self._inside(_join(path, part), line)
        path = _join(path, parts[-1])
        self._at += 2 if is_element else 1
        self.lines.setdefault(path, line)
        if not is_element:
            return path
        self._elements[path] = self._elements.get(path, -1) + 1
        return self._inside(path, line)

    def _inside(self, path: str, line: int) -> str:
        """Return the path or, for an array of tables, the path of its newest element."""
        inside = f"{path}/{self._elements[path]}" if path in self._elements else path
        self.lines.setdefault(inside, line)
        return inside

    def _now(self) -> int:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def _skip(self) -> int:
        self._take(_BLANK)
        return self._at

    def _next(self) -> str:
        return self._text[self._skip()]

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        self._at = match.end()  # type: ignore[union-attr]  # no match raises: see __init__
        return match[0]  # type: ignore[index]


def _join(path: str, part: str) -> str:
    return f"{path}/{part}" if path else part


def _unquoted(text: str) -> str:
    import json

    if text[0] == "'" or "\\" not in text:
        return text[1:-1]
    try:
        return str(json.loads(text))
    except ValueError:  # an escape that only TOML has
        return text[1:-1]
