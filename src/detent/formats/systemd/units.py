"""Parses systemd unit files: sections, keys with their lines, words, time spans and specifiers.

- A line that ends in a backslash continues; `#` and `;` start a comment, also inside a continued line.
- A key may occur several times; an empty value resets it.
- Words are separated by spaces; quotes group them, and backslashes escape as in C.
- `%h`, the home of the manager's user, becomes `${HOME}`.  Specifiers that only the manager knows are kept.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from detent.errors import UsageError
from detent.manifest.problems import Problem, escape_dollars
from detent.text import quote

HOME = "\0home\0"  # replaced by `${HOME}` after other dollars are escaped
FOLDERS = {"t": "/run", "S": "/var/lib", "C": "/var/cache", "L": "/var/log", "E": "/etc"}
FOLDERS |= {"T": "/tmp", "V": "/var/tmp", "h": HOME, "%": "%"}
ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " "}
UNITS_S = {
    **dict.fromkeys(("us", "usec", "µs"), 1e-6),
    **dict.fromkeys(("ms", "msec"), 1e-3),
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3_600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604_800.0),
    **dict.fromkeys(("M", "month", "months"), 2_629_800.0),
    **dict.fromkeys(("y", "year", "years"), 31_557_600.0),
}

_AMOUNT = re.compile(r"\s*(\d{1,12}(?:\.\d{1,9})?)\s*([a-zA-Zµ]*)")
_SPECIFIER = re.compile(r"%(.)", re.DOTALL)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[0-7]{3}|.)", re.DOTALL)


class Entry(NamedTuple):
    section: str
    key: str
    value: str
    file: str
    line: int

    def problem(self, message: str) -> Problem:
        return Problem("", message, self.line, file=self.file)


class Unit(NamedTuple):
    name: str  # backup.timer
    entries: tuple[Entry, ...]

    @property
    def stem(self) -> str:
        return self.name.rpartition(".")[0]

    def given(self, section: str, *keys: str) -> list[Entry]:
        """Return the entries of these keys in the order of the file.  An empty value resets its key."""
        found: list[Entry] = []
        for entry in self.entries:
            if entry.section == section and entry.key in keys:
                found = [*found, entry] if entry.value else [old for old in found if old.key != entry.key]
        return found

    def last(self, section: str, *keys: str) -> Entry | None:
        """Return the last entry of these keys, which is the effective one."""
        found = self.given(section, *keys)
        return found[-1] if found else None

    def text(self, section: str, key: str, default: str = "") -> str:
        entry = self.last(section, key)
        return entry.value if entry else default


def parse_unit(name: str, text: str) -> Unit:
    entries, section = [], ""
    for line, content in _joined(text):
        key, equals, value = content.partition("=")
        if content.startswith("[") and content.endswith("]"):
            section = content[1:-1]
        elif not equals or not section:
            raise UsageError(
                f"{name}:{line}: {quote(content)} is neither a [Section] nor Key=value in a section"
            )
        else:
            entries.append(Entry(section, key.strip(), value.strip(), name, line))
    return Unit(name, tuple(entries))


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines with content and their numbers.  Continued lines are joined."""
    whole, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if line.startswith(("#", ";")):
            continue
        start = start or number
        if line.endswith("\\"):
            whole += line[:-1] + " "
            continue
        if whole + line:
            yield start, whole + line
        whole, start = "", 0
    if whole.strip():
        yield start, whole.strip()


def split_words(text: str) -> list[str]:
    """Split a value into words, and remove the quotes."""
    words: list[str] = []
    word, is_word, open_quote, at = "", False, "", 0
    while at < len(text):
        character = text[at]
        escape = _ESCAPE.match(text, at)
        if escape and open_quote != "'":
            word, is_word, at = word + _unescaped(escape[1]), True, escape.end()
            continue
        at += 1
        if open_quote or character in "'\"":
            if character == open_quote or not open_quote:
                open_quote = "" if open_quote else character
            else:
                word += character
            is_word = True
        elif not character.isspace():
            word, is_word = word + character, True
        elif is_word:
            words.append(word)
            word, is_word = "", False
    if open_quote:
        raise UsageError(f"{quote(text)} has a {open_quote} that is not closed")
    return [*words, word] if is_word else words


def _unescaped(escape: str) -> str:
    if len(escape) > 1:
        return chr(int(escape, 8) if escape.isdigit() else int(escape[1:], 16))
    if escape in ESCAPES:
        return ESCAPES[escape]
    return escape if escape in "\\'\"" else "\\" + escape


def parse_span(text: str) -> float | None:
    """Return the seconds of `1h 30min`, `90` or `2d`, or None for infinity."""
    if text.strip() == "infinity":
        return None
    total, at = 0.0, 0
    while at < len(text.rstrip()):
        amount = _AMOUNT.match(text, at)
        if amount is None or amount[2] not in UNITS_S:
            raise UsageError(f"{quote(text)} is not a time span such as 90, 15min or 1h 30min")
        total += float(amount[1]) * UNITS_S[amount[2]]
        at = amount.end()
    return total


def expand(text: str, unit: str) -> str:
    """Expand the specifiers that the unit's name determines."""
    return _SPECIFIER.sub(lambda match: _specified(match[1], unit, match[0]), text)


def unknown_specifiers(text: str) -> list[str]:
    """Return the specifiers that only the manager knows."""
    return [match[0] for match in _SPECIFIER.finditer(text) if _specified(match[1], "", match[0]) == match[0]]


def _specified(letter: str, unit: str, otherwise: str) -> str:
    stem = unit.rpartition(".")[0]
    prefix, _, instance = stem.partition("@")
    named = {"n": unit, "N": stem, "p": prefix, "i": instance, "P": prefix.replace("-", "/")}
    unescaped = re.sub(r"\\x([0-9a-f]{2})", lambda match: chr(int(match[1], 16)), instance.replace("-", "/"))
    named |= {"I": unescaped, "j": prefix.rpartition("-")[2]}
    return named.get(letter, FOLDERS.get(letter, otherwise))


def as_text(text: str) -> str:
    """Return the text for a manifest, with escaped dollars and `${HOME}`."""
    return escape_dollars(text).replace(HOME, "${HOME}")
