"""Placeholders in the texts of hooks: `{{name}}`.  Pure."""

from collections.abc import Callable, Collection

from detent.text import listed, nearest, quote

OPEN, CLOSE = "{{", "}}"


def split_text(text: str) -> list[str]:
    """Return text and placeholder names alternately."""
    first, *rest = text.split(OPEN)
    parts = [first]
    for piece in rest:
        name, close, after = piece.partition(CLOSE)
        if close:
            parts += [name.strip(), after]
        else:  # not closed: plain text
            parts[-1] += OPEN + piece
    return parts


def fill_in(text: str, value_of: Callable[[str], str]) -> str:
    """Return the text with each placeholder replaced by its value."""
    parts = split_text(text)
    parts[1::2] = map(value_of, parts[1::2])
    return "".join(parts)


def names_in(text: str) -> list[str]:
    return split_text(text)[1::2]


def placeholder_fault(text: str, names: Collection[str]) -> tuple[str, str]:
    """Return what is wrong with the placeholders of a text, and advice; two empty texts if they are valid."""
    parts = split_text(text)
    for name in parts[1::2]:
        if name not in names:
            near = nearest(name, names)
            advice = f"did you mean {quote(near)}?" if near else f"allowed are {listed([*names], 'and')}"
            return f"unknown placeholder {quote(OPEN + name + CLOSE)}", advice
    if any(OPEN in part for part in parts[::2]):
        return f"{OPEN} is not closed", f"write a placeholder as {OPEN}{next(iter(names))}{CLOSE}"
    return "", ""
