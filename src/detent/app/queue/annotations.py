"""What the annotations of a task say: what is pushed is checked by them.

1. What JSON holds itself is looked at from outside: a text where a number is wanted is refused when it is
   pushed.
2. What JSON has no word for (instants, identifiers, decimals, enumerations, data classes, paths, pydantic
   models) is written by msgspec, and arrives as its annotation says; so is a result.  That takes the extra
   `queue`, where it is pushed and where it runs.
3. Of a union that msgspec cannot tell apart, like `datetime | str`, the member that the value belongs to
   travels with it.
4. What cannot be read of an annotation, or is of a type that msgspec does not know, is not checked.
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
MEMBER, VALUE = "detent:type", "detent:value"  # of a union: which member, and the value as JSON holds it


class Mismatch(Exception):
    """It is not what the annotation says, and why."""


class Hint(NamedTuple):
    """What one parameter takes."""

    type: Any
    classes: tuple[type, ...] = ()  # of what JSON holds itself; none: it is for msgspec

    def to_json(self, value: Any) -> Any:
        """As JSON can hold it."""
        if self.classes:
            if not isinstance(value, self.classes):
                raise Mismatch(f"is of type {type(value).__name__}, and its annotation says {self}")
            return value
        if (msgspec := _msgspec()) is None:
            if isinstance(self.type, type) and isinstance(value, self.type):
                raise Mismatch(f"is of type {type(value).__name__}, for which JSON has no word: {EXTRA}")
            return value
        if _is_mixed(self.type):
            return self._member_to_json(value)
        try:
            plain = msgspec.to_builtins(value, str_keys=True, enc_hook=encoded)
            found = self._converted(msgspec, plain)
        except TypeError:  # what msgspec does not know may be JSON all the same
            return value
        except ValueError as error:
            raise Mismatch(f"cannot be to_json: {error}") from None
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
        """As the function takes it."""
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
        except ValueError as error:  # msgspec's ValidationError and pydantic's among them
            raise Mismatch(f"is not what its annotation says, {self}: {error}") from None

    def __str__(self) -> str:
        return self.type.__name__ if isinstance(self.type, type) else str(self.type)


def hints_of(function: Callable[..., Any]) -> dict[str, Hint]:
    """By the names of its parameters, and `return`; those that may be anything have none."""
    try:
        said = typing.get_type_hints(function, include_extras=True)
        parameters = inspect.signature(function).parameters
        takes = {
            name: said[name] | None if one.default is None else said[name]
            for name, one in parameters.items()
            if name in said and one.kind not in _MANY and said[name] not in _ANYTHING
        }
        takes |= {RETURN: said[RETURN]} if said.get(RETURN, Any) not in _ANYTHING else {}
    except Exception:  # a name that is only imported for types, or no signature at all
        return {}
    return {name: Hint(one, classes_of(one)) for name, one in takes.items()}


def classes_of(takes: Any) -> tuple[type, ...]:
    """Those of what JSON holds itself; none where there is more to it."""
    origin, parts = typing.get_origin(takes), typing.get_args(takes)
    if origin is None:
        return _CLASSES.get(takes, ()) if isinstance(takes, type) else ()
    if origin in (typing.Union, types.UnionType):
        found = [classes_of(part) for part in parts]
        return sum(found, ()) if all(found) else ()
    classes = _CLASSES.get(origin, ())
    if classes == _DICT and parts and parts[0] is not str:
        return ()
    return classes if all(part in _ANYTHING or classes_of(part) for part in parts) else ()


@lru_cache(maxsize=1024)
def _is_mixed(takes: Any) -> bool:
    """Is it a union whose members msgspec cannot tell apart by their JSON?"""
    if typing.get_origin(takes) not in (typing.Union, types.UnionType):
        return False
    try:
        _msgspec().json.Decoder(takes, dec_hook=decoded)
    except TypeError:
        return True
    return False


def _is_of(value: Any, member: Any) -> bool:
    kind = typing.get_origin(member) or member
    return isinstance(kind, type) and isinstance(value, kind)


def _msgspec() -> Any:
    """None: it is not there."""
    try:
        import msgspec
    except ImportError:
        return None
    return msgspec
