"""Checks and converts arguments and results by the annotations of a task.

1. Types that JSON has are checked at push time, by their outermost type: text is refused for a number.
2. Other types (datetimes, UUIDs, decimals, enums, dataclasses, paths, pydantic models) are converted by
   msgspec, in both directions.  This needs the extra `queue`, where messages are pushed and where they run.
3. For a union whose members msgspec cannot tell apart, like `datetime | str`, the message names the member.
4. Annotations that cannot be resolved, and types that msgspec does not know, are not checked.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections import abc
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from detent.runners.call.values import decoded, encoded

_LIST, _DICT = (list, tuple), (dict,)
_CLASSES: dict[Any, tuple[type, ...]] = {
    **dict.fromkeys((list, abc.Sequence, abc.Iterable, abc.Collection), _LIST),
    **dict.fromkeys((dict, abc.Mapping, abc.MutableMapping), _DICT),
    str: (str,),
    int: (int,),
    float: (float, int),
    bool: (bool,),
    type(None): (type(None),),
}
_ANYTHING = (Any, object)
_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
RETURN = "return"
EXTRA = "pip install 'detent[queue]'"
MEMBER, VALUE = "detent:type", "detent:value"  # keys of a value of a union: its member, and the JSON value


class Mismatch(Exception):
    """A value does not fit its annotation."""


class Hint(NamedTuple):
    """The annotation of one parameter."""

    type: Any
    classes: tuple[type, ...] = ()  # the JSON types that fit; empty: msgspec converts it

    def to_json(self, value: Any) -> Any:
        if self.classes:
            if not isinstance(value, self.classes):
                raise Mismatch(f"is of type {type(value).__name__}, and its annotation says {self}")
            return value
        if (msgspec := _msgspec()) is None:
            if isinstance(self.type, type) and isinstance(value, self.type):
                raise Mismatch(f"is of type {type(value).__name__}, which JSON does not have: {EXTRA}")
            return value
        if _is_mixed(self.type):
            return self._member_to_json(value)
        try:
            plain = msgspec.to_builtins(value, str_keys=True, enc_hook=encoded)
            found = self._converted(msgspec, plain)
        except TypeError:  # msgspec does not know the type; the value may still be valid JSON
            return value
        except ValueError as error:
            raise Mismatch(f"cannot be sent: {error}") from None
        if isinstance(value, str | dict) and found != value:
            raise Mismatch(f"would arrive as {found!r:.60}, as its annotation says {self}")
        return plain

    def _member_to_json(self, value: Any) -> Any:
        members = [one for one in typing.get_args(self.type) if _is_of(value, one)]
        if not members:
            raise Mismatch(f"is of type {type(value).__name__}, and its annotation says {self}")
        member = type(value) if type(value) in members else members[0]  # a datetime is a date too
        hint = Hint(member, classes_of(member))
        return hint.to_json(value) if hint.classes else {MEMBER: str(hint), VALUE: hint.to_json(value)}

    def _member_from_json(self, value: Any) -> Any:
        if not isinstance(value, dict) or value.keys() != {MEMBER, VALUE}:
            return value
        for hint in (Hint(one, classes_of(one)) for one in typing.get_args(self.type)):
            if str(hint) == value[MEMBER]:
                return hint.from_json(value[VALUE])
        raise Mismatch(f"is a {value[MEMBER]}, and its annotation says {self}")

    def from_json(self, value: Any) -> Any:
        if self.classes:
            return value
        if (msgspec := _msgspec()) is not None:
            if _is_mixed(self.type):
                return self._member_from_json(value)
            try:
                return self._converted(msgspec, value)
            except TypeError:
                return value
        if isinstance(self.type, type) and not isinstance(value, self.type):
            raise Mismatch(f"is of type {type(value).__name__}, and its annotation says {self}: {EXTRA}")
        return value

    def _converted(self, msgspec: Any, value: Any) -> Any:
        try:
            return msgspec.convert(value, self.type, str_keys=True, dec_hook=decoded)
        except ValueError as error:  # includes the ValidationErrors of msgspec and pydantic
            raise Mismatch(f"does not fit its annotation {self}: {error}") from None

    def __str__(self) -> str:
        return self.type.__name__ if isinstance(self.type, type) else str(self.type)


def hints_of(function: Callable[..., Any]) -> dict[str, Hint]:
    """The hints by the names of the parameters, and `return`; a parameter that takes anything has none."""
    try:
        hints = typing.get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters
        types = {
            name: hints[name] | None if one.default is None else hints[name]
            for name, one in parameters.items()
            if name in hints and one.kind not in _MANY and hints[name] not in _ANYTHING
        }
        types |= {RETURN: hints[RETURN]} if hints.get(RETURN, Any) not in _ANYTHING else {}
    except Exception:  # a name that is only imported for type checkers, or no signature at all
        return {}
    return {name: Hint(one, classes_of(one)) for name, one in types.items()}


def classes_of(annotation: Any) -> tuple[type, ...]:
    """The JSON types of an annotation that consists of JSON types only; else none."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is None:
        return _CLASSES.get(annotation, ()) if isinstance(annotation, type) else ()
    if origin in (typing.Union, types.UnionType):
        found = [classes_of(part) for part in parts]
        return sum(found, ()) if all(found) else ()
    classes = _CLASSES.get(origin, ())
    if classes == _DICT and parts and parts[0] is not str:
        return ()
    return classes if all(part in _ANYTHING or classes_of(part) for part in parts) else ()


@lru_cache(maxsize=1024)
def _is_mixed(annotation: Any) -> bool:
    """True for a union whose members msgspec cannot tell apart by their JSON."""
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return False
    try:
        _msgspec().json.Decoder(annotation, dec_hook=decoded)
    except TypeError:
        return True
    return False


def _is_of(value: Any, member: Any) -> bool:
    kind = typing.get_origin(member) or member
    return isinstance(kind, type) and isinstance(value, kind)


def _msgspec() -> Any:
    """None if it is not installed."""
    try:
        import msgspec
    except ImportError:
        return None
    return msgspec
