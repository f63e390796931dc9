"""Annotations of tasks: they check pushed arguments, and convert types that JSON does not have."""

from __future__ import annotations

import enum
import inspect
import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent import Detent, Fire
from detent.app.queue.annotations import classes_of
from detent.app.queue.arguments import ArgumentsError, Parameters

if TYPE_CHECKING:
    from nowhere import Nothing

NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)
NAME = UUID("12345678-1234-5678-1234-567812345678")


class Colour(enum.Enum):
    RED = "red"


class Line(pydantic.BaseModel):
    price: Decimal
    at: datetime


class Order(pydantic.BaseModel):
    number: int = pydantic.Field(alias="no")
    lines: list[Line] = []


ORDER = Order(no=7, lines=[Line(price=Decimal("9.90"), at=NOON)])


class Lossy(pydantic.BaseModel):
    secret: str = pydantic.Field(exclude=True, default="")


@dataclass
class Point:
    x: int
    at: date


def numbers(n: int, share: float = 0.5, name: str | None = None, flag: bool = False) -> None: ...
def lists(of: list[int], by: dict[str, list[str]], more: Sequence[float] = ()) -> None: ...
def loose(of: Any, by: object, more=None, other: Nothing = None) -> None: ...  # type: ignore[no-untyped-def]
def late(n: int = None) -> None: ...  # type: ignore[assignment] # noqa: RUF013
def rich(when: datetime, fire: Fire, name: UUID | None = None) -> None: ...
def points(of: list[Point], colour: Colour = Colour.RED) -> None: ...
def sums(
    total: Decimal, data: bytes = b"", wait: timedelta = timedelta(), ids: frozenset[int] = frozenset()
) -> None: ...
def small(n: Annotated[int, msgspec.Meta(le=9)], way: Literal["up", "down"] = "up") -> None: ...
def either(what: datetime | str) -> None: ...
def keyed(of: dict[int, str], at: Mapping[date, list[int]] = {}) -> None: ...
def files(one: Path, more: list[Path] = [], other: Path | str = "") -> None: ...  # noqa: B006
def days(on: date | datetime | None) -> None: ...
def models(order: Order, more: dict[str, Order] = {}, other: Order | str = "") -> None: ...  # noqa: B006
def lossy(of: Lossy) -> None: ...
def many(*names: int, **more: datetime) -> None: ...


FITS = [
    (numbers, (1, 2, None, True), {}),
    (numbers, (True,), {"share": 0.25}),
    (lists, ([1], {"a": ["b"]}), {}),
    (lists, ((1, 2), {}), {"more": [0.5]}),
    (loose, (NOON.isoformat(), 3, "x"), {}),
    (late, (None,), {}),
    (rich, (NOON,), {"name": NAME}),
    (rich, (NOON, NAME), {}),
    (points, ([Point(1, NOON.date())],), {"colour": Colour.RED}),
    (sums, (Decimal("1.10"), b"\x00\xff", timedelta(seconds=90), frozenset({3})), {}),
    (small, (9,), {"way": "down"}),
    (either, ("soon",), {}),
    (either, (NOON.isoformat(),), {}),
    (either, (NOON,), {}),
    (keyed, ({1: "a", -2: "b"},), {}),
    (keyed, ({},), {"at": {NOON.date(): [1]}}),
    (files, (Path("/a/b"), [Path("c")], Path("d")), {}),
    (files, (Path("/a/b"),), {"other": "d"}),
    (days, (NOON,), {}),
    (days, (NOON.date(),), {}),
    (days, (None,), {}),
    (models, (ORDER, {"a": ORDER}, ORDER), {}),
    (models, (ORDER,), {"other": "none"}),
    (many, (1, 2), {}),
]


@pytest.mark.parametrize(("function", "args", "named"), FITS)
def test_arguments_arrive_with_their_types(
    function: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]
) -> None:
    parameters = Parameters("t", function)
    found = parameters.received(json.loads(parameters.text(args, named)))
    bound = dict(zip(inspect.signature(function).parameters, args, strict=False))
    wanted = bound | named if named else [*args]
    assert _listed(found) == _listed(wanted)


def _listed(value: Any) -> Any:
    """A tuple arrives as a list, unless its annotation says otherwise."""
    if isinstance(value, Mapping):
        return {name: _listed(one) for name, one in value.items()}
    return [_listed(one) for one in value] if isinstance(value, list | tuple) else value


REFUSED = [
    (numbers, ("1",), {}, 'the argument "n" is of type str, and its annotation says int'),
    (numbers, (1.5,), {}, '"n" is of type float'),
    (numbers, (1,), {"name": 3}, '"name" is of type int, and its annotation says str | None'),
    (numbers, (1, "x"), {}, '"share" is of type str, and its annotation says float'),
    (lists, ("ab", {}), {}, '"of" is of type str, and its annotation says list[int]'),
    (lists, ([], [("a", 1)]), {}, '"by" is of type list'),
    (rich, ("soon",), {}, '"when" does not fit its annotation datetime: Invalid RFC3339'),
    (rich, (7,), {}, '"when" does not fit its annotation datetime: Expected `datetime`, got `int`'),
    (rich, (NOON.isoformat(),), {}, '"when" would arrive as datetime.datetime(2026'),
    (rich, (NOON,), {"name": "no"}, '"name" does not fit its annotation'),
    (points, ([{"x": "1", "at": "2026-01-01"}],), {}, "Expected `int`, got `str` - at `$[0].x`"),
    (points, ([],), {"colour": "blue"}, "Invalid enum value 'blue'"),
    (small, (10,), {}, "Expected `int` <= 9"),
    (small, (1, "left"), {}, "Invalid enum value 'left'"),
    (either, (7,), {}, '"what" is of type int, and its annotation says datetime.datetime | str'),
    (keyed, ({"1": "a"},), {}, """"of" would arrive as {1: 'a'}"""),
    (keyed, ({1: 2},), {}, '"of" does not fit its annotation dict[int, str]'),
    (files, ("/a/b",), {}, '"one" would arrive as PosixPath'),
    (models, ({"no": "x"},), {}, '"order" does not fit its annotation Order: 1 validation error'),
    (lossy, (Lossy(secret="x"),), {}, "Lossy is not the same after model_dump and model_validate"),
]


@pytest.mark.parametrize(("function", "args", "named", "message"), REFUSED)
def test_arguments_that_do_not_fit_their_annotation_are_refused_at_push(
    function: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentsError) as caught:
        Parameters("t", function).text(args, named)
    assert message in str(caught.value)
    assert "test_annotations.py:" in str(caught.value)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_json_values_are_not_converted(value: Any) -> None:
    parameters = Parameters("t", loose)
    assert parameters.received(json.loads(parameters.text((value, 1), {})))[0] == value


def test_only_types_that_json_lacks_are_converted_by_msgspec() -> None:
    for takes in (int, str | None, list, list[int], dict[str, Any], Sequence[dict[str, float]], Mapping):
        assert classes_of(takes)
    for takes in (datetime, list[date], dict[int, int], dict[str, UUID], tuple[int, ...], Literal["a"]):
        assert not classes_of(takes)


def test_a_result_has_the_type_of_its_annotation(shop: Detent) -> None:
    @shop.task(keep_result=True)
    def later(by: timedelta) -> datetime:
        return NOON + by

    @shop.task(keep_result=True)
    def unsaid(by: timedelta):  # type: ignore[no-untyped-def]
        return {"at": NOON + by}

    first, second = later.push(timedelta(days=1)), unsaid.push(timedelta(0))
    shop.drain()
    assert first.get() == NOON + timedelta(days=1)
    assert second.get() == {"at": "2026-03-29T12:00:00Z"}


def test_paths_and_models_are_valid_results(shop: Detent) -> None:
    @shop.task(keep_result=True)
    def copied(order: Order, to: Path) -> tuple[Order, Path]:
        return order, to

    handle = copied.push(ORDER, Path("/a"))
    shop.drain()
    assert handle.get() == (ORDER, Path("/a"))


def test_a_worker_gets_arguments_with_their_types(tmp_path: Path) -> None:
    here = Path(__file__).parent
    store = f"sqlite:///{tmp_path}/store.db"
    env = {"TYPED_STORE": store, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(here), "HOME": str(tmp_path)}
    script = """
        from datetime import UTC, datetime, timedelta
        from decimal import Decimal
        import subprocess, sys
        from typed_work import Invoice, app, due
        since = datetime(2026, 1, 1, tzinfo=UTC)
        handles = [due.push(Invoice(3, Decimal("9.90")), since)]
        handles += [due.push(invoice=Invoice(3, Decimal("9.90")), since=since, days=timedelta(hours=1))]
        worker = subprocess.Popen([sys.executable, "-m", "detent", "worker", "typed_work:app"])
        try:
            print([(one.get(timeout=30) - since).total_seconds() for one in handles])
        finally:
            worker.terminate()
            worker.wait()
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], env=env, capture_output=True, text=True, timeout=60
    )
    assert result.stdout == "[259200.0, 3600.0]\n", result.stderr


def test_without_msgspec_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgspec", None)
    parameters = Parameters("t", rich)
    with pytest.raises(
        ArgumentsError, match=r"of type datetime, which JSON does not have: pip install 'detent\[queue\]'"
    ):
        parameters.text((NOON,), {})
    with pytest.raises(ArgumentsError, match=r"annotation says datetime: pip install 'detent\[queue\]'"):
        parameters.received([NOON.isoformat()])
    assert Parameters("t", numbers).text((1,), {}) == "[1]"
