"""NamedTuple, made quickly: a program that ends after one fire spends more on defining values than on them.

It is `typing.NamedTuple` in every respect but when its constructor is compiled: at the first use of it, and
of most values a process makes none.  Annotations are not looked at.
"""

import sys

TYPE_CHECKING = False  # typing's own would cost every start of ours what typing costs
if TYPE_CHECKING or sys.version_info >= (3, 14):  # there annotations are kept another way
    from typing import NamedTuple as NamedTuple
else:
    from _collections import _tuplegetter  # as `collections.namedtuple` has it

    def _make(cls, values):
        made = tuple.__new__(cls, values)
        if len(made) != len(cls._fields):
            raise TypeError(f"expected {len(cls._fields)} values, got {len(made)}")
        return made

    def _replace(self, /, **changes):
        made = self._make(map(changes.pop, self._fields, self))
        if changes:
            raise ValueError(f"got unexpected field names: {list(changes)!r}")
        return made

    def _asdict(self):
        return dict(zip(self._fields, self, strict=True))

    def _repr(self):
        told = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
        return f"{type(self).__name__}({told})"

    def _getnewargs(self):  # for copies and pickles
        return tuple(self)

    _SHARED = {
        "__slots__": (),
        "_make": classmethod(_make),
        "_replace": _replace,
        "_asdict": _asdict,
        "__repr__": _repr,
        "__getnewargs__": _getnewargs,
    }

    def _constructor(owner):
        """One that compiles the real one, and gives way to it."""

        def construct(cls, /, *values, **named):
            made = owner[0]
            words = ", ".join(made._fields)
            text = f"lambda _cls, {words}: _tuple_new(_cls, ({words}{',' * (len(made._fields) == 1)}))"
            real = eval(text, {"_tuple_new": tuple.__new__, "__builtins__": {}})
            real.__name__ = "__new__"
            real.__defaults__ = tuple(made._field_defaults.values())
            made.__new__ = real
            return real(cls, *values, **named)

        return construct

    class _Definition(type):
        def __new__(mcs, name, bases, space):
            fields = tuple(space.get("__annotations__", ()))
            defaults = {field: space.pop(field) for field in fields if field in space}
            owner = []
            space |= {field: _tuplegetter(place, "") for place, field in enumerate(fields)}
            space |= {"_fields": fields, "_field_defaults": defaults, "__match_args__": fields}
            for shared, value in _SHARED.items():
                space.setdefault(shared, value)
            made = type(name, (tuple,), space | {"__new__": _constructor(owner)})
            owner.append(made)
            return made

    _base = type.__new__(_Definition, "NamedTuple", (), {})

    class _NamedTuple:
        def __mro_entries__(self, bases):
            return (_base,)

    NamedTuple = _NamedTuple()
