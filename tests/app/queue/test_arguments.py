"""Arguments of a message: valid ones arrive unchanged, others are refused when they are pushed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from detent import Detent, Fire, UsageError
from detent.app.queue.arguments import ArgumentsError, Parameters
from detent.runners.call.function import bind


def plain(to: str, subject: str = "hi") -> None: ...
def anything(to: Any, subject=None) -> None: ...  # type: ignore[no-untyped-def]
def none() -> None: ...
def many(*names: str, **more: int) -> None: ...
def strict(first: int, /, second: int = 2, *, third: int = 3) -> None: ...
def named_only(*, size: int) -> None: ...
def with_fire(to: str, fire: Fire) -> None: ...
def fire_first(fire: Fire, to: str) -> None: ...
def open_fire(to, fire) -> None: ...  # type: ignore[no-untyped-def]
def open_fire_first(fire, to) -> None: ...  # type: ignore[no-untyped-def]
def wide(*names: str, size: int = 1) -> None: ...


class Colour(IntEnum):
    RED = 1


class Point(NamedTuple):
    x: int
    y: int


FITS = [
    (plain, ("a",), {}, ["a"]),
    (plain, ("a", "b"), {}, ["a", "b"]),
    (plain, (), {"to": "a"}, {"to": "a"}),
    (plain, ("a",), {"subject": "b"}, {"to": "a", "subject": "b"}),
    (none, (), {}, []),
    (many, ("a", "b", "c"), {}, ["a", "b", "c"]),
    (many, (), {"x": 1, "y": 2}, {"x": 1, "y": 2}),
    (strict, (1, 2), {}, [1, 2]),
    (named_only, (), {"size": 1}, {"size": 1}),
    (with_fire, ("a",), {}, ["a"]),
    (with_fire, (), {"to": "a"}, {"to": "a"}),
    (fire_first, ("a",), {}, ["a"]),
    (open_fire, ("a",), {}, ["a"]),
    (open_fire_first, (), {"to": "a"}, {"to": "a"}),
    (len, ([1, 2],), {}, [[1, 2]]),
    (anything, ("ä→", Colour.RED), {}, ["ä→", 1]),
    (
        anything,
        (Point(1, 2), {"a": [1.5, None, True, {"b": ()}]}),
        {},
        [[1, 2], {"a": [1.5, None, True, {"b": []}]}],
    ),
    (anything, (10**30, -0.0), {}, [10**30, -0.0]),
]


@pytest.mark.parametrize(("function", "given", "named", "expected"), FITS)
def test_valid_arguments_are_encoded_as_a_list_or_an_object(
    function: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any], expected: Any
) -> None:
    assert json.loads(Parameters("t", function).text(given, named)) == expected


@pytest.mark.parametrize(("function", "given", "named", "expected"), FITS)
def test_a_worker_can_call_the_function_with_encoded_arguments(
    function: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any], expected: Any
) -> None:
    """`bind` is what a worker's child does; the fire is given where it is asked for."""
    args, names = bind(function, json.loads(Parameters("t", function).text(given, named)), lambda: FIRE)
    function(*args, **names)


FIRE = Fire("a.b#1", "a", "b", "id", datetime.now(UTC), 1, 1, "node")
NESTED: list[Any] = []
for _ in range(150):
    NESTED = [NESTED]
REFUSED = [
    (plain, (), {}, "missing a required argument: 'to'"),
    (plain, ("a", "b", "c"), {}, "too many positional arguments"),
    (plain, ("a",), {"subjet": "b"}, "unexpected keyword argument 'subjet'; did you mean \"subject\"?"),
    (plain, ("a",), {"to": "b"}, "multiple values for argument 'to'"),
    (plain, (), {"subject": "b"}, "missing a required argument: 'to'"),
    (none, (1,), {}, "it takes none"),
    (strict, (1,), {"third": 4}, '"first" can be given by position only'),
    (strict, (), {"first": 1}, "'first'"),
    (named_only, (1,), {}, "too many positional arguments"),
    (named_only, (), {}, "'size'"),
    (with_fire, ("a", "b"), {}, "too many positional arguments"),
    (with_fire, ("a",), {"fire": "b"}, "unexpected keyword argument 'fire'"),
    (open_fire_first, ("a",), {}, "too many positional arguments"),
    (wide, ("a",), {"size": 2}, '"names" can be given by position only'),
    (anything, (object(),), {}, 'the argument "to" is of type object; give what JSON can hold'),
    (anything, ("a", datetime.now(UTC)), {}, 'the argument "subject" is of type datetime'),
    (anything, (), {"to": {1, 2}}, 'the argument "to" is of type set'),
    (anything, (b"a",), {}, "is of type bytes"),
    (anything, ({"a": [1, {"b": Path()}]},), {}, "\"to['a'][1]['b']\" is of type PosixPath"),
    (anything, ({1: 2},), {}, "has a key of type int"),
    (anything, (float("nan"),), {}, "is nan, which JSON cannot represent"),
    (anything, ([float("-inf")],), {}, '"to[0]" is -inf'),
    (plain, ("\ud800",), {}, "a lone surrogate"),
    (anything, (NESTED,), {}, "more than 100 levels deep"),
    (plain, ("x" * 300_000,), {}, "300,004 bytes as JSON, and a message at most 262,144"),
    (many, (1j,), {}, 'the argument "names" is of type complex'),
]


@pytest.mark.parametrize(("function", "given", "named", "message"), REFUSED)
def test_bad_arguments_are_refused_with_what_is_allowed(
    function: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentsError) as caught:
        Parameters("send", function).text(given, named)
    assert message in str(caught.value)
    assert 'task "send": ' in str(caught.value)


def test_a_refusal_is_both_a_usage_error_and_a_type_error() -> None:
    assert issubclass(ArgumentsError, UsageError) and issubclass(ArgumentsError, TypeError)


def test_a_list_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ArgumentsError, match="levels deep"):
        Parameters("send", anything).text((loop,), {})


PUSHES: dict[str, Callable[[Any], Any]] = {
    "push": lambda task: task.push(1),
    "push_many": lambda task: task.push_many([(1,)]),
    "an item that is no tuple": lambda task: task.push_many(["abc"]),
    "apush": lambda task: asyncio.run(task.apush(1)),
    "apush_many": lambda task: asyncio.run(task.apush_many([(1,)])),
    "message": lambda task: task.message(1),
    "options": lambda task: task.options(priority="urgent"),
    "options, then push": lambda task: task.options(delay=1).push(1),
}


@pytest.mark.parametrize("way", PUSHES)
def test_a_refusal_names_the_line_that_pushed_and_nothing_is_pushed(way: str) -> None:
    app = Detent("shop", store="memory:")
    task = app.task(name="send")(lambda: None)
    with pytest.raises(UsageError) as caught:
        PUSHES[way](task)
    line = PUSHES[way].__code__.co_firstlineno
    assert str(caught.value).startswith(f"tests/app/queue/{Path(__file__).name}:{line}: task "), caught.value
    assert app.queue("default").size().pending == 0
