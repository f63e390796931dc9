"""Binds the arguments of a message to the function's parameters and encodes them as JSON, at push time.

1. A push fails if the function would refuse the arguments, or if JSON cannot hold them or would change them.
   A tuple arrives as a list.
2. A message has a list of positions or an object of names.  If both are given, it has names.
3. The worker adds the fire that a function asks for; a push does not pass it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from detent.app.declarations import location_of
from detent.app.queue.annotations import RETURN, Hint, Mismatch, hints_of
from detent.errors import UsageError
from detent.messages.envelope import PAYLOAD_MAX
from detent.messages.strict_json import decode, encode
from detent.runners.call.function import fire_parameter, is_fire
from detent.text import NESTING_MAX, did_you_mean, listed, plural, quote

AS_JSON = "arguments as JSON: a list by position, like '[\"a\", 1]', or an object by name"
_PLAIN = frozenset({str, int, bool, type(None)})
_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_HOLDS = listed(("text", "numbers", "true and false", "None", "lists and dicts of them"), "and")
OURS = ("detent.app.queue", "detent.app", "asyncio", "concurrent.futures", "threading")


class ArgumentsError(UsageError, TypeError):
    """The arguments of a push do not fit the task."""


class Parameters:
    """The parameters of one task."""

    def __init__(self, task: str, function: Callable[..., Any]) -> None:
        self._task, self._function = task, function
        self._signature = _signature_of(function)
        self._positions = _positions_of(self._signature)

    def text(self, given: Sequence[Any], named: Mapping[str, Any], later: int = 0) -> str:
        """Encode the arguments; the first `later` of them are filled in later, and not checked."""
        if not named and len(given) in self._positions:
            value: Any = given  # binding takes twice as long as all else here: `make bench BENCH=queues`
        else:
            value = self._bound(given, named)
        if self._hints:
            value = self._convert(value, Hint.to_json, later)
        return self._encoded(value, value.values() if isinstance(value, Mapping) else value)

    def received(self, value: Any) -> Any:
        """Convert the arguments of a message to the types that the function declares."""
        return self._convert(value, Hint.from_json) if self._hints else value

    def result(self, value: Any) -> Any:
        """Convert a stored result to the type that the function declares."""
        hint = self._all_hints.get(RETURN)
        try:
            return hint.from_json(value) if hint else value
        except Mismatch as error:
            raise self._wrong(f"its result {error}") from None

    def item_text(self, item: Any) -> str:
        """Encode one item of `push_many`."""
        if isinstance(item, (tuple, list)):
            return self.text(item, {})
        if isinstance(item, Mapping):
            return self.text((), item)
        raise self._wrong(
            f"an item of push_many is of type {type(item).__name__}; give a tuple for its positions, "
            'like ("a",), or a mapping for its names'
        )

    def names_of(self, value: Sequence[Any] | Mapping[str, Any]) -> list[str]:
        """The names of these arguments."""
        if isinstance(value, Mapping):
            return [str(name) for name in value]
        known = self.names
        return [known[i] if i < len(known) else f"number {i + 1}" for i in range(len(value))]

    @property
    def names(self) -> list[str]:
        return [*self._signature.parameters] if self._signature else []

    # Binding.

    def _bound(self, given: Sequence[Any], named: Mapping[str, Any]) -> Any:
        if self._signature is None:  # a built-in function without one
            if given and named:
                raise self._wrong("give all arguments by position or all by name: its signature is not known")
            return named or given
        parameters = self._signature.parameters
        try:
            bound = self._signature.bind(*given, **named)
        except TypeError as error:
            unknown = sorted(named.keys() - parameters.keys())
            near = did_you_mean(unknown[0], parameters) if unknown else ""
            takes = f"it takes {quote(str(self._signature))}" if parameters else "it takes none"
            raise self._wrong(f"{error}{near}; {takes}") from None
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

    # Annotations.

    @cached_property
    def _all_hints(self) -> dict[str, Hint]:
        return hints_of(self._function)

    @cached_property
    def _hints(self) -> dict[str, Hint]:
        return {name: hint for name, hint in self._all_hints.items() if name != RETURN}

    def _convert(self, value: Any, convert: Callable[[Hint, Any], Any], later: int = 0) -> Any:
        """Convert each argument that has an annotation."""
        names = self.names_of(value)
        items = [*(value.values() if isinstance(value, Mapping) else value)]
        for place in range(later, len(items)):
            if hint := self._hints.get(names[place]):
                try:
                    items[place] = convert(hint, items[place])
                except Mismatch as error:
                    raise self._wrong(f"the argument {quote(names[place])} {error}") from None
        return dict(zip(names, items, strict=True)) if isinstance(value, Mapping) else items

    # Encoding.

    def _encoded(self, value: Any, items: Iterable[Any]) -> str:
        if not _PLAIN.issuperset(map(type, items)) and (fault := _fault(value, self.names_of(value))):
            raise self._wrong(fault)
        try:
            text = encode(value if isinstance(value, (list, tuple, dict)) else dict(value))
            size = len(text) if text.isascii() else len(text.encode())
        except UnicodeEncodeError:
            raise self._wrong("an argument contains half a character, a lone surrogate") from None
        except (TypeError, ValueError, RecursionError) as error:
            raise self._wrong(f"its arguments cannot be written as JSON: {error}") from None
        if size > PAYLOAD_MAX:
            raise self._wrong(
                f"its arguments have {plural(size, 'byte')} as JSON, and a message at most {PAYLOAD_MAX:,}: "
                "keep large data elsewhere and send its name"
            )
        return text

    def _wrong(self, why: str) -> ArgumentsError:
        return ArgumentsError(f"{caller()}task {quote(self._task)}: {why}")


def read_arguments(text: str) -> list[Any] | dict[str, Any]:
    """Read the arguments that a person typed."""
    try:
        found = decode(text)
    except (ValueError, RecursionError) as error:
        raise ArgumentsError(f"bad arguments {quote(text)}: not JSON: {error}; give {AS_JSON}") from None
    if not isinstance(found, list | dict):
        raise ArgumentsError(f"bad arguments {quote(text)}: give {AS_JSON}")
    return found


def caller() -> str:
    """The line of the app that called detent, as a prefix of a message; "" for the command line."""
    frame = sys._getframe(1)
    while frame.f_back and str(frame.f_globals.get("__name__", "")).startswith(OURS):
        frame = frame.f_back
    return "" if str(frame.f_globals.get("__name__", "")).startswith("detent.") else f"{location_of(frame)}: "


def _signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """The signature without the parameter for the fire.  If that is only recognised by its name, it becomes
    optional instead."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    found = fire_parameter(function)
    parameters = [*signature.parameters.values()]
    if found and is_fire(found[0].annotation):
        parameters = [one for one in parameters if one.name != found[0].name]
    elif found:
        parameters = sorted(_with_optional_fire(parameters), key=lambda one: one.kind)
    return signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)


def _with_optional_fire(parameters: list[inspect.Parameter]) -> Iterator[inspect.Parameter]:
    """Parameters after the fire are by name only: their positions depend on whether it is given."""
    is_after = False
    for one in parameters:
        is_after = is_after or one.name == "fire"
        default = None if one.name == "fire" else one.default
        has_place = one.kind == one.POSITIONAL_OR_KEYWORD
        yield one.replace(kind=one.KEYWORD_ONLY, default=default) if is_after and has_place else one


def _positions_of(signature: inspect.Signature | None) -> range:
    """How many arguments by position certainly fit; empty if each call must be bound to know."""
    parameters = [*signature.parameters.values()] if signature else []
    needed = [one for one in parameters if one.default is one.empty]
    by_position = [one for one in parameters if one.kind != one.KEYWORD_ONLY]
    if signature is None or any(one.kind in _MANY for one in parameters):
        return range(0)
    if any(one.kind == one.KEYWORD_ONLY for one in needed):
        return range(0)
    return range(len(needed), len(by_position) + 1)


def _fault(value: Any, names: list[str]) -> str:
    """What JSON cannot hold or would change; "" if nothing."""
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
        for key in value:
            if not isinstance(key, str):
                return "", f"has a key of type {type(key).__name__}, which would arrive as text"
    if isinstance(value, dict | list | tuple):
        for place, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if fault := _fault_within(inner, depth + 1):
                return f"[{place!r}]{fault[0]}", fault[1]
        return None
    if isinstance(value, float):
        return None if value - value == 0 else ("", f"is {value}, which JSON cannot represent")
    return None if isinstance(value, str | int | None) else ("", f"is of type {type(value).__name__}")
