"""The shapes that a value of a document can have, with their checks and messages.

`check` returns the clean value (variables expanded, `60.0` as 60, an instant in UTC).  If the value is wrong,
it reports the problem and returns INVALID, so that one mistake does not hide the next.
`manifest.json_schema` reads the same shapes, so editors and the checker accept the same documents.
"""

import json
import re
from collections.abc import Callable, Iterable
from math import isfinite
from typing import Any, NamedTuple, Protocol

from detent.errors import UsageError
from detent.manifest.problems import INVALID, Findings
from detent.schedules.timetable import parse_instant
from detent.text import NESTING_MAX, TOO_DEEP, is_unicode, listed, nearest, plural, quote, show

TEXT_MAX = 65_536  # characters of a text in arguments

Fault = tuple[str, str]  # message and advice
OK: Fault = ("", "")

NAME = "[a-z][a-z0-9-]{0,62}"  # of an app or a job


class Shape(Protocol):
    def check(self, value: Any, path: str, findings: Findings) -> Any:
        """Return the clean value, or report a problem and return INVALID."""


class Integer(NamedTuple):
    low: int
    high: int

    def check(self, value: Any, path: str, findings: Findings) -> Any:
        number = int(value) if type(value) is float and value.is_integer() else value
        if type(number) is int and self.low <= number <= self.high:
            return number
        return findings.problem(path, f"{show(value)} is not a whole number from {self.low} to {self.high}")


class Number(NamedTuple):
    low: float
    high: float

    def check(self, value: Any, path: str, findings: Findings) -> Any:
        if type(value) in (int, float) and self.low <= value <= self.high:
            return int(value) if value == int(value) else value
        return findings.problem(path, f"{show(value)} is not a number from {self.low:g} to {self.high:g}")


class Boolean(NamedTuple):
    def check(self, value: Any, path: str, findings: Findings) -> Any:
        if type(value) is bool:
            return value
        return findings.problem(path, f"{show(value)} is not true or false (without quotes)")


class Choice(NamedTuple):
    words: tuple[str, ...]

    def check(self, value: Any, path: str, findings: Findings) -> Any:
        word = value
        if type(value) is str and value not in self.words:
            word = findings.expand(value, path)
            if word is None:
                return INVALID
        if word in self.words:
            return word
        near = nearest(word, self.words) if type(word) is str else ""
        advice = f"did you mean {quote(near)}?" if near else ""
        return findings.problem(path, f"{show(word)} is not {listed(self.words)}", advice)


class Text(NamedTuple):
    high: int  # characters
    low: int = 0
    pattern: str = ""  # of the whole text, in the common syntax of Python and ECMAScript
    allowed: str = "a text"  # completes the message "... is not"
    expands: bool = True  # `${VAR}` is expanded
    secret: bool = False  # messages do not show the value

    def check(self, value: Any, path: str, findings: Findings) -> Any:
        if type(value) is not str:
            shown = "this" if self.secret else show(value)
            advice = "put it in quotes" if type(value) in (int, float, bool) else ""
            return findings.problem(path, f"{shown} is not {self.allowed}", advice)
        text = findings.expand(value, path) if self.expands else value
        if text is None:
            return INVALID
        message, advice = self._fault(text)
        return findings.problem(path, message, advice) if message else text

    def _fault(self, text: str) -> Fault:
        if len(text) > self.high:
            return f"{plural(len(text), 'character')} are too many", f"at most {self.high:,}"
        if len(text) < self.low:
            return "the value is empty", f"give {self.allowed}"
        if "\0" in text or not is_unicode(text):
            return "the text has a NUL or half a surrogate pair, which no program accepts", ""
        if self.pattern and not re.fullmatch(self.pattern, text):
            return f"{'this' if self.secret else quote(text)} is not {self.allowed}", ""
        return OK


class Instant(NamedTuple):
    """An instant with its offset, in whole seconds.  The clean value is in UTC, as in RFC 3339."""

    def check(self, value: Any, path: str, findings: Findings) -> Any:
        text = findings.expand(value, path) if type(value) is str else show(value)
        if text is None:
            return INVALID
        try:
            instant = parse_instant(text, path.rpartition("/")[2])
        except UsageError as error:
            return findings.problem(path, str(error))
        if instant.microsecond:
            return findings.problem(path, "an instant is given to the second, without a fraction")
        if instant.year < 1970:
            return findings.problem(path, "an instant must not be before 1970")
        return f"{instant:%Y-%m-%dT%H:%M:%S}Z"


class ListOf(NamedTuple):
    item: Shape
    low: int
    high: int
    noun: str
    accepts_single: bool = False  # a value that is not a list means a list of this value

    def check(self, value: Any, path: str, findings: Findings) -> Any:
        if type(value) is not list:
            if self.accepts_single:
                item = self.item.check(value, path, findings)
                return INVALID if item is INVALID else [item]
            is_line = type(value) is str and self.noun == "word"
            advice = f"write [{', '.join(value.split())}]" if is_line else ""
            return findings.problem(path, f"{show(value)} is not a list of {self.noun}s", advice)
        if not self.low <= len(value) <= self.high:
            allowed = f"from {self.low} to {self.high:,}" if self.low else f"at most {self.high:,}"
            return findings.problem(path, plural(len(value), self.noun), f"allowed are {allowed}")
        items = [self.item.check(item, f"{path}/{i}", findings) for i, item in enumerate(value)]
        return INVALID if any(item is INVALID for item in items) else items


class MapOf(NamedTuple):
    name: Text
    value: Shape
    high: int
    noun: str

    def check(self, value: Any, path: str, findings: Findings) -> Any:
        if type(value) is not dict:
            return findings.problem(path, f"{show(value)} is not a mapping of {self.noun}s")
        if len(value) > self.high:
            return findings.problem(path, plural(len(value), self.noun), f"allowed are at most {self.high:,}")
        clean = {}
        for name in value:
            self.name.check(name, f"{path}/{name}", findings)
            clean[name] = self.value.check(value[name], f"{path}/{name}", findings)
        return INVALID if INVALID in clean.values() else clean


class Either(NamedTuple):
    """A text, or a list or mapping."""

    text: Shape
    other: Shape
    kind: type  # of the other: list or dict
    allowed: str
    mapping: Shape | None = None  # set if the other is a list, and a mapping is allowed too

    def check(self, value: Any, path: str, findings: Findings) -> Any:
        if type(value) is str:
            return self.text.check(value, path, findings)
        if type(value) is self.kind:
            return self.other.check(value, path, findings)
        if type(value) is dict and self.mapping:
            return self.mapping.check(value, path, findings)
        return findings.problem(path, f"{show(value)} is not {self.allowed}")


class Arguments(NamedTuple):
    """The arguments of a call: a list or a mapping of JSON values.  Variables in texts are expanded."""

    high: int  # characters of JSON

    def check(self, value: Any, path: str, findings: Findings) -> Any:
        if type(value) not in (list, dict):
            allowed = "a list (arguments by position) or a mapping (by name)"
            return findings.problem(path, f"{show(value)} is not {allowed}")
        clean = _json_value(value, path, findings)
        if clean is INVALID:
            return INVALID
        size = len(json.dumps(clean))
        if size > self.high:
            return findings.problem(
                path, f"{size:,} characters of JSON are too many", f"at most {self.high:,}"
            )
        return clean or []  # an empty mapping means the same as an empty list


def _json_value(value: Any, path: str, findings: Findings) -> Any:
    if type(value) is str:
        return Text(high=TEXT_MAX).check(value, path, findings)
    if type(value) in (list, dict):
        return _json_values(value, path, findings)
    if value is None or type(value) in (bool, int) or (type(value) is float and isfinite(value)):
        return value
    return findings.problem(
        path, f"{show(value)} is not JSON", "allowed are texts, numbers, true, false and null"
    )


def _json_values(value: Any, path: str, findings: Findings) -> Any:
    if path.count("/") > NESTING_MAX:
        return findings.problem(path, TOO_DEEP)
    named = value if type(value) is dict else {str(i): item for i, item in enumerate(value)}
    for name in named:
        if type(name) is not str:
            findings.problem(f"{path}/{name}", f"{show(name)} is not a name", "put it in quotes")
    clean = {name: _json_value(item, f"{path}/{name}", findings) for name, item in named.items()}
    if any(item is INVALID or type(name) is not str for name, item in clean.items()):
        return INVALID
    return clean if type(value) is dict else [*clean.values()]


class Checked(NamedTuple):
    """A shape with one more rule."""

    shape: Shape
    rule: Callable[[Any], Fault]

    def check(self, value: Any, path: str, findings: Findings) -> Any:
        clean = self.shape.check(value, path, findings)
        message, advice = OK if clean is INVALID else self.rule(clean)
        return findings.problem(path, message, advice) if message else clean


class Field(NamedTuple):
    name: str
    shape: Shape
    default: Any = None  # None: no default, and absent from the canonical form
    about: str = ""  # one line for an editor's tooltip
    since: int = 1  # the first manifest version that has it


class Record:
    """A mapping with a fixed set of fields."""

    def __init__(self, fields: Iterable[Field], required: tuple[str, ...] = ()) -> None:
        self.fields = tuple(fields)
        self.required = required
        self._shapes = {field.name: field.shape for field in self.fields}

    @property
    def names(self) -> list[str]:
        return [*self._shapes]

    def check(self, value: Any, path: str, findings: Findings) -> Any:
        """Return the given fields, clean.  Defaults may still add fields, so `check_required` comes later."""
        if type(value) is not dict:
            advice = f"allowed are {listed(self.names, 'and')}"
            return findings.problem(path, f"{show(value)} is not a mapping", advice)
        clean = {}
        prefix = f"{path}/" if path else ""
        for name, given in value.items():
            shape = self._shapes.get(name)
            if shape is None:
                message = f"unknown key {quote(str(name))}"
                findings.key_problem(f"{prefix}{name}", message, self._advice(str(name)))
            else:
                clean[name] = shape.check(given, f"{prefix}{name}", findings)
        return clean

    def _advice(self, unknown: str) -> str:
        known = self._known_paths()
        known |= {name.removesuffix("_seconds"): path for name, path in known.items()}
        meant = nearest(unknown, known)
        return f"did you mean {quote(known[meant])}?" if meant else f"allowed are {listed(self.names, 'and')}"

    def _known_paths(self) -> dict[str, str]:
        """Return the names of all fields, also of nested records, with their paths."""
        nested = {
            name: f"{field.name}.{path}"
            for field in self.fields
            if isinstance(field.shape, Record)
            for name, path in field.shape._known_paths().items()
        }
        return {**nested, **{name: name for name in self._shapes}}

    def check_required(self, given: Any, path: str, findings: Findings) -> None:
        for name in self.required:
            if name not in given:
                findings.key_problem(f"{path}/{name}" if path else name, f"missing key {quote(name)}")
