"""Words for people: quoting, listing, counting, and the name that was probably meant."""

import re
from collections.abc import Collection, Sequence
from typing import Any

QUOTED_MAX = 60  # characters of a bad text that a message repeats
NESTING_MAX = 100
TOO_DEEP = f"lists and mappings are nested too deep: at most {NESTING_MAX} levels"
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")


def percent_encoded(text: str) -> str:
    """As a name of a file: `urllib.parse.quote` with nothing safe, without what that would load."""
    return "".join(chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in text.encode())


def is_unicode(text: str) -> bool:
    """False: it has halves of a surrogate pair in it, what is left of bytes that were not UTF-8."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def quote(text: str) -> str:
    """The text in double quotes, on one line, shortened, with nothing that could upset a terminal."""
    short = text if len(text) <= QUOTED_MAX else text[: QUOTED_MAX - 1] + "…"
    escaped = short.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else _escape(c) for c in escaped) + '"'


def _escape(character: str) -> str:
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character, f"\\u{ord(character):04x}")


def show(value: Any) -> str:
    """A value of a document, as its author would recognise it in a message."""
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
    """The one of these names that was probably meant; "" where none is close."""
    from difflib import get_close_matches  # late: only who made a mistake pays for it

    close = get_close_matches(name.lower(), [known.lower() for known in names], n=1, cutoff=0.6)
    return next((known for known in names if close and known.lower() == close[0]), "")


def did_you_mean(name: str, names: Collection[str]) -> str:
    """The end of a message about an unknown name: `; did you mean "x"?`, or nothing."""
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


def is_too_deep(text: str) -> bool:
    """Whether the lists and objects in a JSON text are nested more than `NESTING_MAX` levels deep."""
    if text.count("[") + text.count("{") <= NESTING_MAX:
        return False
    depth = 0
    for token in re.finditer(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', text, re.DOTALL):  # a text, or a bracket
        if token[0] in "[{":
            depth += 1
            if depth > NESTING_MAX:
                return True
        elif token[0] in "]}":
            depth -= 1
    return False
