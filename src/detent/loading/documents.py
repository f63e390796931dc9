"""Parses YAML, TOML and JSON into plain documents, with the line of each path.

- All three give the same document: mappings with text keys, lists, texts, numbers, booleans, None.
- A duplicate key, a syntax error and too deep nesting are problems with a line.
- A plain word in YAML is a number, a boolean or null only if YAML 1.1 and 1.2 agree on it.  `on`, `yes`,
  `010`, `1:30`, `1e5` and dates stay texts.  Tags and `<<` are refused, and aliases are limited.
- Lines are computed when they are first needed: most documents have no problem.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from detent.loading.line_numbers import LineIndex
from detent.manifest.problems import ManifestError, Problem
from detent.text import NESTING_MAX, TOO_DEEP, is_too_deep, quote

ALIASED_MAX = 100_000  # values that the aliases of a document expand to
DIGITS_MAX = 4000  # Python refuses longer integers
TOO_LONG = "a number has too many digits"
STR_TAG = "tag:yaml.org,2002:str"

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(0|[1-9][0-9]*)\.[0-9]+([eE][-+][0-9]+)?")
_PLAIN: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_TOML_PLACE = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)


class Lines(Mapping[str, int]):
    """Maps paths to lines, which are computed on first use."""

    def __init__(self, find: Callable[[], dict[str, int]]) -> None:
        self._find = find

    @cached_property
    def _found(self) -> dict[str, int]:
        return self._find()

    def __getitem__(self, path: str) -> int:
        return self._found[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def document_error(message: str, line: int = 0, column: int = 0) -> ManifestError:
    return ManifestError([Problem(path="", message=message, line=line, column=column)])


# JSON.


class _DuplicateKey(Exception):
    pass


def parse_json(text: str) -> tuple[Any, Lines]:
    import json

    if is_too_deep(text):
        raise document_error(TOO_DEEP)
    try:
        document = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise document_error(f"this is not JSON: {error.msg}", error.lineno, error.colno) from None
    except _DuplicateKey:
        found = LineIndex(text, is_toml=False).duplicates
        raise ManifestError([_duplicate(path, line) for path, line in found]) from None
    except ValueError:
        raise document_error(TOO_LONG) from None
    return document, Lines(lambda: LineIndex(text, is_toml=False).lines)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise _DuplicateKey
    return fields


def _duplicate(path: str, line: int, column: int = 0) -> Problem:
    key = quote(path.rpartition("/")[2])
    return Problem(path, f"duplicate key {key}", line, column, advice="keep one", is_about_key=True)


# TOML.


def parse_toml(text: str) -> tuple[Any, Lines]:
    import tomllib

    try:
        document = _without_dates(tomllib.loads(text), NESTING_MAX)
    except tomllib.TOMLDecodeError as error:
        raise _toml_error(str(error), text) from None
    except RecursionError:
        raise document_error(TOO_DEEP) from None
    except ValueError:
        raise document_error(TOO_LONG) from None
    return document, Lines(lambda: LineIndex(text, is_toml=True).lines)


def _toml_error(message: str, text: str) -> ManifestError:
    place = _TOML_PLACE.fullmatch(message)
    if place is None:
        return document_error(f"this is not TOML: {message}")
    twice = " (is a key or a table given twice?)" if re.search("overwrite|twice|mutate", place[1]) else ""
    line = int(place[2]) if place[2] else text.count("\n") + 1
    return document_error(f"this is not TOML: {place[1]}{twice}", line, int(place[3] or 0))


def _without_dates(value: Any, left: int) -> Any:
    """Convert TOML's dates to texts.  `left` limits the depth."""
    if isinstance(value, dict | list) and not left:
        raise document_error(TOO_DEEP)
    if isinstance(value, dict):
        return {name: _without_dates(item, left - 1) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_dates(item, left - 1) for item in value]
    return value.isoformat() if hasattr(value, "isoformat") else value


# YAML.


def parse_yaml(text: str) -> tuple[Any, Lines]:
    def lines() -> dict[str, int]:
        found: dict[str, int] = {}
        _Yaml(text, found).read()
        return found

    return _Yaml(text).read(), Lines(lines)


class _Anchored(NamedTuple):
    value: Any
    size: int  # number of values, including itself
    height: int  # depth of nesting


class _Yaml:
    """Builds a document from the events of a YAML text, and limits its depth before it recurses."""

    def __init__(self, text: str, lines: dict[str, int] | None = None) -> None:
        import yaml

        self._yaml = yaml
        self._events: Iterator[Any] = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        self._anchors: dict[str, _Anchored] = {}
        self._size, self._aliased = 0, 0  # values so far, and how many came from aliases
        self._bottom = NESTING_MAX  # the fewest levels left inside the current value
        self._problems: list[Problem] = []
        self._lines = lines  # filled with the line of each path

    def read(self) -> Any:
        try:
            document = self._document()
        except self._yaml.YAMLError as error:
            raise _yaml_error(error) from None
        if self._problems:
            raise ManifestError(self._problems)
        return document

    def _document(self) -> Any:
        next(self._events)  # start of the stream
        if isinstance(next(self._events), self._yaml.StreamEndEvent):
            return None
        document = self._value(next(self._events), "", NESTING_MAX)
        next(self._events)  # end of the document
        after = next(self._events)
        if not isinstance(after, self._yaml.StreamEndEvent):
            self._refuse("", "a file has one document, but a second one starts here", after)
        return document

    def _value(self, event: Any, path: str, left: int) -> Any:
        if isinstance(event, self._yaml.AliasEvent):
            return self._alias(event, path, left)
        if event.tag not in (None, "!", STR_TAG):
            self._refuse(path, f"the tag {quote(event.tag)} is not supported; write the plain value", event)
        size, bottom = self._size, self._bottom
        self._size, self._bottom = size + 1, left
        if isinstance(event, self._yaml.ScalarEvent):
            value = self._scalar(event, path)
        elif not left:
            raise document_error(TOO_DEEP, *_mark(event))
        else:
            self._bottom = left - 1
            is_sequence = isinstance(event, self._yaml.SequenceStartEvent)
            value = self._sequence(path, left - 1) if is_sequence else self._mapping(path, left - 1)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchored(value, self._size - size, left - self._bottom)
        self._bottom = min(bottom, self._bottom)
        return value

    def _sequence(self, path: str, left: int) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), self._yaml.SequenceEndEvent):
            inner = f"{path}/{len(items)}" if path else str(len(items))
            self._note(inner, event)
            items.append(self._value(event, inner, left))
        return items

    def _mapping(self, path: str, left: int) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        while not isinstance(event := next(self._events), self._yaml.MappingEndEvent):
            key = self._key(event, path, left)
            inner = f"{path}/{key}" if path else key
            if key in fields:
                self._problems.append(_duplicate(inner, *_mark(event)))
            self._note(inner, event)
            fields[key] = self._value(next(self._events), inner, left)
        return fields

    def _key(self, event: Any, path: str, left: int) -> str:
        """Return a key as it is written, also `on`, `1` and `2026-01-01`."""
        if not isinstance(event, self._yaml.ScalarEvent):
            self._refuse(path, "a key must be a plain text", event)
            self._value(event, path, left)
            return ""
        key = str(event.value)
        if key == "<<" and event.implicit[0]:
            self._refuse(path, "`<<` is not supported; use `defaults` for shared fields", event)
        return key

    def _scalar(self, event: Any, path: str) -> Any:
        text = event.value
        if event.tag == STR_TAG or not event.implicit[0]:
            return text
        if text in _PLAIN:
            return _PLAIN[text]
        if _INTEGER.fullmatch(text):
            if len(text) > DIGITS_MAX:
                self._refuse(path, TOO_LONG, event)
                return None
            return int(text)
        return float(text) if _FLOAT.fullmatch(text) else text

    def _alias(self, event: Any, path: str, left: int) -> Any:
        found = self._anchors.get(event.anchor)
        if found is None:
            self._refuse(path, f"*{event.anchor} is not defined before this line", event)
            return None
        if found.height > left:
            raise document_error(TOO_DEEP, *_mark(event))
        self._aliased += found.size
        if self._aliased > ALIASED_MAX:
            message = f"aliases expand to more than {ALIASED_MAX:,} values; use fewer, or `defaults`"
            raise document_error(message, *_mark(event))
        self._size, self._bottom = self._size + found.size, min(self._bottom, left - found.height)
        return found.value

    def _refuse(self, path: str, message: str, event: Any) -> None:
        line, column = _mark(event)
        self._problems.append(Problem(path=path, message=message, line=line, column=column))

    def _note(self, path: str, event: Any) -> None:
        if self._lines is not None:
            self._lines.setdefault(path, event.start_mark.line + 1)


def _mark(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _yaml_error(error: Any) -> ManifestError:
    mark = getattr(error, "problem_mark", None)
    reason = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error).split("\n")[0]
    context = getattr(error, "context", None)
    message = f"this is not YAML: {context + ': ' if context else ''}{reason}"
    return document_error(message, mark.line + 1, mark.column + 1) if mark else document_error(message)
