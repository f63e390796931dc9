"""The arguments of a message: bound to the function's parameters and written as JSON when it is pushed.

1. What the function would refuse is refused at once, and so is what JSON cannot hold or would change: the
   worker gets what was given.  A tuple arrives as a list.
2. A message holds a list for positions, or an object for names.  Where both are given, the names win.
3. The fire that a function asks for is not given: the worker has it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from detent.app.declarations import location_of
from detent.app.queue.annotations import RETURN, Hint, Mismatch, hints_of
from detent.errors import UsageError
from detent.messages.envelope import PAYLOAD_MAX
from detent.messages.strict_json import encode
from detent.runners.call.function import fire_parameter, is_fire
from detent.text import NESTING_MAX, did_you_mean, listed, plural, quote

_PLAIN = frozenset({str, int, bool, type(None)})
_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_NONE: dict[str, Any] = {}
OURS = ("detent.app.queue", "detent.app", "asyncio", "concurrent.futures", "threading")


class ArgumentsError(UsageError, TypeError):
    """What was to be pushed does not fit the task."""


class Shape(NamedTuple):
    """What a function takes of a message, as far as it can be seen without binding."""

    least: int = 0  # positions
    most: int = 0
    names: frozenset[str] = frozenset()
    needed: frozenset[str] = frozenset()
    is_known: bool = False  # False: each message is bound


class Parameters:
    """Those of one task."""

    def __init__(self, task: str, function: Callable[..., Any]) -> None:
        self._task, self._function = task, function
        self._signature = _signature_of(function)
        self._shape = _shape_of(self._signature)

    def text(self, given: Sequence[Any], named: Mapping[str, Any], later: int = 0) -> str:
        """The arguments as a message carries them; the first of them may be given `later`."""
        shape = self._shape
        if not named and shape.is_known and shape.least <= len(given) <= shape.most:
            value: Any = given
        elif named and not given and self._fits(named):
            value = named
        else:
            value = self._bound(given, named)
        if self._hints:
            value = self._each(value, Hint.to_json, later)
        return self._written(value, value.values() if isinstance(value, Mapping) else value)

    def received(self, value: Any) -> Any:
        """What a message carried, as the function takes it."""
        return self._each(value, Hint.from_json) if self._hints else value

    def result(self, value: Any) -> Any:
        """What it returned, as its annotation says."""
        hint = self._said.get(RETURN)
        try:
            return hint.from_json(value) if hint else value
        except Mismatch as error:
            raise self._wrong(f"its result {error}") from None

    def item_text(self, item: Any) -> str:
        """Of one item of `push_many`."""
        if isinstance(item, (tuple, list)):
            return self.text(item, _NONE)
        if isinstance(item, Mapping):
            return self.text((), item)
        raise self._wrong(
            f"an item of push_many is of type {type(item).__name__}; give a tuple for its positions, "
            'like ("a",), or a mapping for its names'
        )

    def _fits(self, named: Mapping[str, Any]) -> bool:
        shape = self._shape
        return shape.is_known and shape.names >= named.keys() >= shape.needed

    # Binding.

    def _bound(self, given: Sequence[Any], named: Mapping[str, Any]) -> Any:
        if self._signature is None:  # a built-in function without one
            if given and named:
                raise self._wrong("give all arguments by position or all by name: its signature is not known")
            return named or given
        try:
            bound = self._signature.bind(*given, **named)
        except TypeError as error:
            unknown = sorted(named.keys() - self._signature.parameters.keys())
            near = did_you_mean(unknown[0], self._signature.parameters) if unknown else ""
            raise self._wrong(f"{error}{near}; {self._allowed()}") from None
        return self._as_names(bound) if named else given

    def _as_names(self, bound: inspect.BoundArguments) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            kind = bound.signature.parameters[name].kind
            if kind == inspect.Parameter.VAR_KEYWORD:
                found |= value
            elif kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL):
                raise self._wrong(
                    f"{quote(name)} can be given by position only, and others are given by name: "
                    "a message has one or the other"
                )
            else:
                found[name] = value
        return found

    def _allowed(self) -> str:
        assert self._signature is not None
        return f"it takes {quote(str(self._signature))}" if self._signature.parameters else "it takes none"

    # Annotations.

    @cached_property
    def _said(self) -> dict[str, Hint]:
        return hints_of(self._function)

    @cached_property
    def _hints(self) -> dict[str, Hint]:
        return {name: hint for name, hint in self._said.items() if name != RETURN}

    def _each(self, value: Any, turn: Callable[[Hint, Any], Any], later: int = 0) -> Any:
        """Each argument that has an annotation, turned into what it is there or here."""
        names = self._names(value)
        items = [*(value.values() if isinstance(value, Mapping) else value)]
        known = zip(names[later:], items[later:], strict=True)
        turned = items[:later] + [self._turned(name, one, turn) for name, one in known]
        return dict(zip(names, turned, strict=True)) if isinstance(value, Mapping) else turned

    def _turned(self, name: str, value: Any, turn: Callable[[Hint, Any], Any]) -> Any:
        hint = self._hints.get(name)
        try:
            return turn(hint, value) if hint else value
        except Mismatch as error:
            raise self._wrong(f"the argument {quote(name)} {error}") from None

    # Writing.

    def _written(self, value: Any, items: Iterable[Any]) -> str:
        if not _PLAIN.issuperset(map(type, items)) and (fault := _fault(value, self._names(value))):
            raise self._wrong(fault)
        try:
            text = encode(value if isinstance(value, (list, tuple, dict)) else dict(value))
            size = len(text) if text.isascii() else len(text.encode())
        except UnicodeEncodeError:
            raise self._wrong(
                "a text among its arguments has half a character in it, a lone surrogate"
            ) from None
        except (TypeError, ValueError, RecursionError) as error:
            raise self._wrong(f"its arguments cannot be written as JSON: {error}") from None
        if size > PAYLOAD_MAX:
            raise self._wrong(
                f"its arguments have {plural(size, 'byte')} as JSON, and a message at most {PAYLOAD_MAX:,}: "
                "keep large data elsewhere and send its name"
            )
        return text

    def _names(self, value: Any) -> list[str]:
        """How messages call the arguments."""
        if isinstance(value, Mapping):
            return [str(name) for name in value]
        known = [*self._signature.parameters] if self._signature else []
        return [known[i] if i < len(known) else f"number {i + 1}" for i in range(len(value))]

    def _wrong(self, why: str) -> ArgumentsError:
        return ArgumentsError(f"{caller()}task {quote(self._task)}: {why}")


def caller() -> str:
    """The line of the app that led here, as messages begin with it; "": it was the command line."""
    frame = sys._getframe(1)
    while frame.f_back and str(frame.f_globals.get("__name__", "")).startswith(OURS):
        frame = frame.f_back
    return "" if str(frame.f_globals.get("__name__", "")).startswith("detent.") else f"{location_of(frame)}: "


# The function.


def _signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """Without the parameter that the worker fills; one that only has the name of it may be left out."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    found = fire_parameter(function)
    parameters = [*signature.parameters.values()]
    if found and is_fire(found[0].annotation):
        parameters = [one for one in parameters if one.name != found[0].name]
    elif found:
        parameters = [*_with_open_fire(parameters)]
        parameters.sort(key=lambda one: one.kind)
    return signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)


def _with_open_fire(parameters: list[inspect.Parameter]) -> Iterator[inspect.Parameter]:
    """What comes after it has no position that the worker could count on."""
    is_after = False
    for one in parameters:
        is_after = is_after or one.name == "fire"
        default = None if one.name == "fire" else one.default
        has_place = one.kind == one.POSITIONAL_OR_KEYWORD
        yield one.replace(kind=one.KEYWORD_ONLY, default=default) if is_after and has_place else one


def _shape_of(signature: inspect.Signature | None) -> Shape:
    parameters = [*signature.parameters.values()] if signature else []
    kinds = [one.kind for one in parameters]
    if signature is None or any(kind in kinds for kind in _MANY):
        return Shape()
    by_position = [one for one in parameters if one.kind != one.KEYWORD_ONLY]
    needed = [one for one in parameters if one.default is one.empty]
    by_name = frozenset(one.name for one in parameters if one.kind != one.POSITIONAL_ONLY)
    only_by_name = [one for one in needed if one.kind == one.KEYWORD_ONLY]
    return Shape(
        least=len(needed) if not only_by_name else sys.maxsize,  # positions alone never do
        most=len(by_position),
        names=by_name,
        needed=frozenset(one.name for one in needed),
        is_known=True,
    )


# What JSON holds.


def _fault(value: Any, names: list[str]) -> str:
    """What JSON could not hold, or would change; "": nothing."""
    items = value.values() if isinstance(value, Mapping) else value
    for name, one in zip(names, items, strict=True):
        if fault := _fault_within(one, 1):
            where, what = fault
            return f"the argument {quote(name + where)} {what}; give what JSON can hold: {_HOLDS}"
    return ""


def _fault_within(value: Any, depth: int) -> tuple[str, str] | None:
    if depth > NESTING_MAX:
        return "", f"is nested more than {plural(NESTING_MAX, 'level')} deep"
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                return "", f"has a key of type {type(key).__name__}, and would arrive with a text for it"
            if fault := _fault_within(inner, depth + 1):
                return f"[{key!r}]{fault[0]}", fault[1]
        return None
    if isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            if fault := _fault_within(inner, depth + 1):
                return f"[{place}]{fault[0]}", fault[1]
        return None
    if isinstance(value, float):
        return None if value - value == 0 else ("", f"is {value}, which is no number of JSON")
    return None if isinstance(value, str | int | None) else ("", f"is of type {type(value).__name__}")


_HOLDS = listed(("text", "numbers", "true and false", "None", "lists and dicts of them"), "and")
