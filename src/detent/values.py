"""The words of `typing` that definitions need, without it: a program that ends after one fire spends more on
defining things than on using them.

- For a type checker they are typing's own.
- `NamedTuple` is typing's in every respect but when its constructor is compiled: when it is used often, and
  of most values a process makes few.
- `Protocol` is an empty class, a `Literal` of words is str, and what says still less is object.
"""

import sys

TYPE_CHECKING = False  # typing's own would cost every start of ours what typing costs
if TYPE_CHECKING:
    from typing import Any as Any
    from typing import Final as Final
    from typing import Literal as Literal
    from typing import NoReturn as NoReturn
    from typing import Protocol as Protocol
    from typing import TypeVar as TypeVar
    from typing import assert_never as assert_never
    from typing import cast as cast
else:
    Any = Final = NoReturn = object

    class Protocol:
        """A seam: what others need of a thing."""

    class _Words:
        def __getitem__(self, words):
            return str

    Literal = _Words()

    def TypeVar(_):
        return object

    def assert_never(value, /):
        raise AssertionError(f"nobody thought of {value!r}")

    def cast(_, value):
        return value


if TYPE_CHECKING or sys.version_info >= (3, 14):  # there annotations are kept another way
    from typing import NamedTuple as NamedTuple
else:
    from _collections import _tuplegetter  # as `collections.namedtuple` has it

    OFTEN = 50  # by then, to compile it has cost less than to do without

    _uses = {}  # of a constructor that is not compiled yet

    class _Value(tuple):
        """What all of them have."""

        __slots__ = ()

        def __new__(cls, /, *values, **named):
            _uses[cls] = uses = _uses.get(cls, 0) + 1
            rest = cls._fields[len(values) :]
            if uses < OFTEN and len(values) <= len(cls._fields):
                given = {**cls._field_defaults, **named} if rest else named
                if named.keys() <= set(rest) and given.keys() >= set(rest):
                    return tuple.__new__(cls, (*values, *[given[field] for field in rest]))
            return _compile(cls)(cls, *values, **named)

        @classmethod
        def _make(cls, values):
            made = tuple.__new__(cls, values)
            if len(made) != len(cls._fields):
                raise TypeError(f"expected {len(cls._fields)} values, got {len(made)}")
            return made

        def _replace(self, /, **changes):
            fields, values = self._fields, [*self]
            try:
                for field, value in changes.items():
                    values[fields.index(field)] = value
            except ValueError:
                unknown = [one for one in changes if one not in fields]
                raise ValueError(f"got unexpected field names: {unknown!r}") from None
            return tuple.__new__(type(self), values)

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self):
            told = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
            return f"{type(self).__name__}({told})"

        def __getnewargs__(self):  # for copies and pickles
            return tuple(self)

    def _compile(cls):
        """The real constructor, which the class has from now on; it also knows what to say of wrong words."""
        words = ", ".join(cls._fields)
        text = f"lambda _cls, {words}: _tuple_new(_cls, ({words}{',' * (len(cls._fields) == 1)}))"
        real = eval(text, {"_tuple_new": tuple.__new__, "__builtins__": {}})
        real.__name__ = "__new__"
        real.__defaults__ = tuple(cls._field_defaults.values())
        owner = next(one for one in cls.__mro__ if "_fields" in vars(one))
        owner.__new__ = real
        return real

    class _Definition(type):
        def __new__(mcs, name, bases, space):
            fields = tuple(space.get("__annotations__", ()))
            defaults = {field: space.pop(field) for field in fields if field in space}
            for place, field in enumerate(fields):
                space[field] = _tuplegetter(place, "")
            space["__slots__"], space["_fields"], space["_field_defaults"] = (), fields, defaults
            space["__match_args__"] = fields
            return type(name, (_Value,), space)

    _base = type.__new__(_Definition, "NamedTuple", (), {})

    class _NamedTuple:
        def __mro_entries__(self, bases):
            return (_base,)

    NamedTuple = _NamedTuple()
