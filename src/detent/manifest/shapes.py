"""The shapes that a value of a document can have: what is allowed, checked and format_problem in one place.

`check` answers with the clean value (variables filled in, `60.0` as 60, an instant in UTC), or tells
the findings what is wrong and answers INVALID, so that one mistake does not hide the next.
`manifest.json_schema` reads the same shapes: what an editor accepts and what we accept cannot drift apart.
"""

import json
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from math import isfinite
from typing import Any, Final, NamedTuple, Protocol

from detent.errors import UsageError
from detent.manifest.problems import Findings
from detent.schedules.timetable import parse_instant
from detent.text import NESTING_MAX, TOO_DEEP, did_you_mean, is_unicode, listed, nearest, plural, quote, show

INVALID: Final = object()  # stands for a value that was given, and refused
TEXT_MAX = 65_536  # characters of a text within arguments

NAME = "[a-z][a-z0-9-]{0,62}"  # of an app or a job


class Shape(Protocol):
    def check(self, value: Any, path: str, findings: Findings) -> Any:
        """The clean value, or INVALID once the findings know why."""


class Integer(NamedTuple):
    """A whole number.  A boolean is none."""

    low: int
    high: int

    def check(self, value: Any, path: str, findings: Findings) -> Any:
        number = int(value) if type(value) is float and value.is_integer() else value
        if type(number) is int and self.low <= number <= self.high:
            return number
        findings.problem(path, f"{show(value)} is not a whole number from {self.low} to {self.high}")
        return INVALID


class Number(NamedTuple):
    """A number, with a fraction or without."""

    low: float
    high: float

    def check(self, value: Any, path: str, findings: Findings) -> Any:
        if type(value) in (int, float) and self.low <= value <= self.high:
            return int(value) if value == int(value) else value
        findings.problem(path, f"{show(value)} is not a number from {self.low:g} to {self.high:g}")
        return INVALID


class Boolean(NamedTuple):
    """True or false."""

    def check(self, value: Any, path: str, findings: Findings) -> Any:
        if type(value) is bool:
            return value
        findings.problem(path, f"{show(value)} is not true or false (without quotes)")
        return INVALID


class Choice(NamedTuple):
    """One of a closed list of words."""

    words: tuple[str, ...]

    def check(self, value: Any, path: str, findings: Findings) -> Any:
        word = value
        if type(value) is str and value not in self.words:
            word = findings.expand(value, path)
            if word is None:
                return INVALID
        if word in self.words:
            return word
        meant = did_you_mean(word, self.words) if type(word) is str else ""
        findings.problem(path, f"{show(word)} is not {listed(self.words)}{meant}")
        return INVALID


class Text(NamedTuple):
    """A text.  What a message says of one that does not fit is `allowed`."""

    high: int  # characters at most
    low: int = 0
    pattern: str = ""  # of the whole text, as both Python and ECMA read it
    allowed: str = "a text"
    expands: bool = True  # `${VAR}` is filled in
    secret: bool = False  # a message never repeats it

    def check(self, value: Any, path: str, findings: Findings) -> Any:
        if type(value) is not str:
            findings.problem(path, self._not_text(value))
            return INVALID
        text = findings.expand(value, path) if self.expands else value
        if text is None:
            return INVALID
        fault = self._fault(text)
        if fault:
            findings.problem(path, fault)
            return INVALID
        return text

    def _not_text(self, value: Any) -> str:
        shown = "this" if self.secret else show(value)
        quotes = "; put it in quotes" if type(value) in (int, float, bool) else ""
        return f"{shown} is not {self.allowed}{quotes}"

    def _fault(self, text: str) -> str:
        if len(text) > self.high:
            return f"{plural(len(text), 'character')} are too many: at most {self.high:,}"
        if len(text) < self.low:
            return f"it is empty; give {self.allowed}"
        if "\0" in text or not is_unicode(text):
            return "it has a NUL or half a surrogate pair in it, which no program can be given"
        if self.pattern and not re.fullmatch(self.pattern, text):
            return f"{'this' if self.secret else quote(text)} is not {self.allowed}"
        return ""


class Instant(NamedTuple):
    """An instant with its offset, to the second.  Clean: in UTC, as RFC 3339 writes it."""

    def check(self, value: Any, path: str, findings: Findings) -> Any:
        text = findings.expand(value, path) if type(value) is str else value
        if text is None and value is not None:
            return INVALID
        fault = ""
        try:
            instant = parse_instant(text if type(text) is str else show(text), path.rpartition("/")[2])
            fault = _instant_fault(instant)
        except UsageError as error:
            fault = str(error)
        if not fault:
            return f"{instant:%Y-%m-%dT%H:%M:%S}Z"
        findings.problem(path, fault)
        return INVALID


def _instant_fault(instant: datetime) -> str:
    if instant.microsecond:
        return "an instant is given to the second, without a fraction"
    return "an instant is not before 1970" if instant.year < 1970 else ""


class ListOf(NamedTuple):
    """A list of one shape, its order kept."""

    item: Shape
    low: int
    high: int
    noun: str
    accepts_single: bool = False  # a value that is no list stands for the list of it alone

    def check(self, value: Any, path: str, findings: Findings) -> Any:
        if type(value) is not list:
            if self.accepts_single:
                item = self.item.check(value, path, findings)
                return INVALID if item is INVALID else [item]
            is_line = type(value) is str and self.noun == "word"
            advice = f"; write [{', '.join(value.split())}]" if is_line else ""
            findings.problem(path, f"{show(value)} is not a list of {self.noun}s{advice}")
            return INVALID
        if not self.low <= len(value) <= self.high:
            asked = f"from {self.low} to {self.high:,}" if self.low else f"at most {self.high:,}"
            findings.problem(path, f"{plural(len(value), self.noun)}: allowed are {asked}")
            return INVALID
        items = [self.item.check(item, f"{path}/{i}", findings) for i, item in enumerate(value)]
        return INVALID if any(item is INVALID for item in items) else items


class MapOf(NamedTuple):
    """A mapping from names to texts."""

    name: Text
    value: Shape
    high: int
    noun: str

    def check(self, value: Any, path: str, findings: Findings) -> Any:
        if type(value) is not dict:
            findings.problem(path, f"{show(value)} is not a mapping of {self.noun}s")
            return INVALID
        if len(value) > self.high:
            findings.problem(path, f"{plural(len(value), self.noun)}: allowed are at most {self.high:,}")
            return INVALID
        clean = {}
        for name in value:
            self.name.check(name, f"{path}/{name}", findings)
            clean[name] = self.value.check(value[name], f"{path}/{name}", findings)
        return INVALID if INVALID in clean.values() else clean


class Either(NamedTuple):
    """A text, or something that is none."""

    text: Shape
    other: Shape
    kind: type  # of the other: list or dict
    allowed: str
    mapping: Shape | None = None  # where the other is a list, and a mapping is allowed too

    def check(self, value: Any, path: str, findings: Findings) -> Any:
        if type(value) is str:
            return self.text.check(value, path, findings)
        if type(value) is self.kind:
            return self.other.check(value, path, findings)
        if type(value) is dict and self.mapping:
            return self.mapping.check(value, path, findings)
        findings.problem(path, f"{show(value)} is not {self.allowed}")
        return INVALID


class Arguments(NamedTuple):
    """The arguments of a call: a list or a mapping of JSON values, `${VAR}` filled in in their texts."""

    high: int  # characters of JSON at most

    def check(self, value: Any, path: str, findings: Findings) -> Any:
        if type(value) not in (list, dict):
            allowed = "a list (arguments by position) or a mapping (by name)"
            findings.problem(path, f"{show(value)} is not {allowed}")
            return INVALID
        clean = _json_value(value, path, findings)
        if clean is INVALID:
            return INVALID
        size = len(json.dumps(clean))
        if size > self.high:
            findings.problem(path, f"{size:,} characters of JSON are too many: at most {self.high:,}")
            return INVALID
        return clean or []  # an empty mapping says no more than an empty list


def _json_value(value: Any, path: str, findings: Findings) -> Any:
    if type(value) is str:
        return Text(high=TEXT_MAX).check(value, path, findings)
    if type(value) in (list, dict):
        return _json_values(value, path, findings)
    if value is None or type(value) in (bool, int) or (type(value) is float and isfinite(value)):
        return value
    findings.problem(path, f"{show(value)} is not JSON: allowed are texts, numbers, true, false and null")
    return INVALID


def _json_values(value: Any, path: str, findings: Findings) -> Any:
    if path.count("/") > NESTING_MAX:
        findings.problem(path, TOO_DEEP)
        return INVALID
    named = value if type(value) is dict else {str(i): item for i, item in enumerate(value)}
    for name in named:
        if type(name) is not str:
            findings.problem(f"{path}/{name}", f"{show(name)} is not a name; put it in quotes")
    clean = {name: _json_value(item, f"{path}/{name}", findings) for name, item in named.items()}
    if any(item is INVALID or type(name) is not str for name, item in clean.items()):
        return INVALID
    return clean if type(value) is dict else [*clean.values()]


class Checked(NamedTuple):
    """A shape with one more rule, which answers what is wrong, or nothing."""

    shape: Shape
    rule: Callable[[Any], str]

    def check(self, value: Any, path: str, findings: Findings) -> Any:
        clean = self.shape.check(value, path, findings)
        fault = "" if clean is INVALID else self.rule(clean)
        if not fault:
            return clean
        findings.problem(path, fault)
        return INVALID


class Field(NamedTuple):
    """A named part of a record."""

    name: str
    shape: Shape
    default: Any = None  # None: it has none, and stays away from the canonical form
    about: str = ""  # one line for an editor's tooltip
    since: int = 1  # the manifest version that brought it


class Record:
    """A mapping whose fields are all known by name."""

    def __init__(self, fields: Iterable[Field], required: tuple[str, ...] = ()) -> None:
        self.fields = tuple(fields)
        self.required = required
        self._shapes = {field.name: field.shape for field in self.fields}

    @property
    def names(self) -> list[str]:
        return [*self._shapes]

    def check(self, value: Any, path: str, findings: Findings) -> Any:
        """The clean fields that were given.  What is required, `missing` tells: it may come later."""
        if type(value) is not dict:
            findings.problem(path, f"{show(value)} is not a mapping; allowed are {listed(self.names)}")
            return INVALID
        clean = {}
        prefix = f"{path}/" if path else ""
        for name, given in value.items():
            shape = self._shapes.get(name)
            if shape is None:
                findings.problem(f"{prefix}{name}", self._unknown(str(name)))
            else:
                clean[name] = shape.check(given, f"{prefix}{name}", findings)
        return clean

    def _unknown(self, name: str) -> str:
        known_paths = self.known_paths()
        known_paths |= {known.removesuffix("_seconds"): place for known, place in known_paths.items()}
        meant = nearest(name, known_paths)
        told = f"did you mean {quote(known_paths[meant])}?" if meant else f"allowed are {listed(self.names)}"
        return f"unknown field {quote(name)}; {told}"

    def known_paths(self) -> dict[str, str]:
        """The names of all fields, here and further in, with where they belong."""
        further = {
            name: f"{field.name}/{place}"
            for field in self.fields
            if isinstance(field.shape, Record)
            for name, place in field.shape.known_paths().items()
        }
        return {**further, **{name: name for name in self._shapes}}

    def missing(self, clean: Any, path: str, findings: Findings) -> None:
        for name in self.required:
            if name not in clean:
                findings.problem(f"{path}/{name}" if path else name, "it is missing, and has no default")
