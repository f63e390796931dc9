"""Formats values for messages to people, suggests names, and limits the nesting of JSON text."""

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

QUOTED_MAX = 60  # characters of a wrong value that a message repeats
NESTING_MAX = 100  # levels of lists and mappings in JSON, YAML and TOML from outside
TOO_DEEP = f"lists and mappings are nested too deep: at most {NESTING_MAX} levels"
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")
_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\", '"': '\\"'}


def percent_encoded(text: str) -> str:
    """Do what `urllib.parse.quote(text, safe="")` does, without its slow import."""
    return "".join(chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in text.encode())


def is_unicode(text: str) -> bool:
    """False for text with lone surrogates, which stand for bytes that were not UTF-8."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def quote(text: str) -> str:
    """Put the text in double quotes: on one line, shortened, without control characters."""
    short = text if len(text) <= QUOTED_MAX else text[: QUOTED_MAX - 1] + "…"
    return '"' + "".join(map(_escape, short)) + '"'


def _escape(character: str) -> str:
    return _ESCAPES.get(character, character if character.isprintable() else f"\\u{ord(character):04x}")


def show(value: Any) -> str:
    """Describe a value of a document in the way its author wrote it."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            return quote(value)
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case int() if value.bit_length() > 200:
            return "a number with too many digits"
    return str(value)


def nearest(name: str, names: Collection[str]) -> str:
    """Return the most similar of these names, or "" if none is similar."""
    from difflib import get_close_matches  # slow to import, and needed only after a mistake

    close = get_close_matches(name.lower(), [known.lower() for known in names], n=1, cutoff=0.6)
    return next((known for known in names if close and known.lower() == close[0]), "")


def did_you_mean(name: str, names: Collection[str]) -> str:
    """Return `; did you mean "x"?` for the end of a message, or "" if no name is similar."""
    close = nearest(name, names)
    return f"; did you mean {quote(close)}?" if close else ""


def listed(words: Sequence[str], link: str = "or") -> str:
    """`a`, `a or b`, `a, b or c`."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {link} {words[-1]}"


def plural(count: int, noun: str) -> str:
    """`1 job`, `2 jobs`, `1,000 jobs`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with each of its texts, but not its keys, changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [map_texts(item, change) for item in value]
    if isinstance(value, dict):
        return {name: map_texts(item, change) for name, item in value.items()}
    return value


def is_too_deep(text: str) -> bool:
    """Check a JSON text before it is decoded: Python 3.14 decodes any depth without a `RecursionError`."""
    if text.count("[") + text.count("{") <= NESTING_MAX:
        return False
    depth = 0
    for token in re.finditer(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', text, re.DOTALL):  # a string or a bracket
        if token[0] in "[{":
            depth += 1
            if depth > NESTING_MAX:
                return True
        elif token[0] in "]}":
            depth -= 1
    return False
