"""Finding a function, giving it its arguments and its fire, and judging what it did."""

import functools
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import detent
from detent.runners.call.fire import fire_of
from detent.runners.call.function import (
    REASON_MAX,
    RESULT_MAX,
    CannotCall,
    bind,
    exit_status,
    find,
    reason_of,
    returned,
    traceback_of,
)

VARIABLES = {
    "DETENT_APP": "billing",
    "DETENT_JOB": "send",
    "DETENT_FIRE": "billing.send@2026-03-01T02:00:00Z",
    "DETENT_RUN_ID": "019ca",
    "DETENT_DUE": "2026-03-01T02:00:00Z",
    "DETENT_ATTEMPT": "2",
    "DETENT_FENCE": "77",
    "DETENT_NODE": "n.1",
}
FIRE = fire_of(VARIABLES, 1_770_000_000.0)


def plain(a: int, b: int = 0) -> None: ...
def asks(a: int, fire: Any) -> None: ...
def asks_first(fire: Any, a: int) -> None: ...
def asks_by_name(*, fire: Any) -> None: ...
def wants(one: detent.Fire, a: int) -> None: ...
def wants_only(one: detent.Fire, /, a: int) -> None: ...
def wants_in_words(a: int, one: "detent.Fire") -> None: ...
def takes_all(*fire: Any, **rest: Any) -> None: ...
@functools.wraps(wants)
def wrapped(*args: Any, **named: Any) -> None: ...


def yields() -> Any:
    yield 1


async def yields_later() -> Any:
    yield 1


@pytest.mark.parametrize("function", [yields, yields_later])
def test_a_generator_function_cannot_be_called(function: Callable[..., Any]) -> None:
    with pytest.raises(CannotCall, match="is a generator function: a call of it runs none of its code"):
        find(f"{__name__}:{function.__name__}")


@pytest.mark.parametrize(
    ("function", "args", "given", "named"),
    [
        (plain, [1, 2], [1, 2], {}),
        (plain, {"a": 1}, [], {"a": 1}),
        (asks, [1], [1], {"fire": FIRE}),
        (asks, {"a": 1}, [], {"a": 1, "fire": FIRE}),
        (asks, [1, "mine"], [1, "mine"], {}),
        (asks, {"a": 1, "fire": "mine"}, [], {"a": 1, "fire": "mine"}),
        (asks_first, ["mine", 1], ["mine", 1], {}),
        (asks_by_name, [], [], {"fire": FIRE}),
        (wants, [1], [FIRE, 1], {}),
        (wants, {"a": 1}, [FIRE], {"a": 1}),
        (wants_only, {"a": 1}, [FIRE], {"a": 1}),
        (wants_in_words, [1], [1, FIRE], {}),
        (wants_in_words, {"a": 1}, [], {"a": 1, "one": FIRE}),
        (takes_all, [1], [1], {}),
        (wrapped, [1], [FIRE, 1], {}),
        (functools.partial(asks, 1), [], [], {"fire": FIRE}),
        (print, ["x"], ["x"], {}),
        (dict, {"a": 1}, [], {"a": 1}),
    ],
)
def test_the_fire_is_bound_to_its_parameter_and_other_arguments_stay(
    function: Callable[..., Any], args: Any, given: list[Any], named: dict[str, Any]
) -> None:
    assert bind(function, args, lambda: FIRE) == (given, named)


def test_the_fire_has_the_values_of_the_variables() -> None:
    assert FIRE._asdict() == {
        "key": "billing.send@2026-03-01T02:00:00Z",
        "app": "billing",
        "job": "send",
        "run_id": "019ca",
        "due_at": datetime(2026, 3, 1, 2, tzinfo=UTC),
        "attempt": 2,
        "fence": 77,
        "node": "n.1",
        "previous_success_at": datetime.fromtimestamp(1_770_000_000, UTC),
    }
    assert isinstance(FIRE, detent.Fire) and fire_of(VARIABLES, None).previous_success_at is None
    with pytest.raises(AttributeError, match="has no attribute 'Fires'"):
        detent.Fires  # noqa: B018


def test_a_function_is_found_by_its_path() -> None:
    assert find("json:dumps") is __import__("json").dumps
    assert find("datetime:datetime.now")().year > 2000


@pytest.mark.parametrize(
    ("source", "function", "said"),
    [
        ("", "no_such_module:x", "cannot import no_such_module: No module named 'no_such_module'"),
        ("1 / 0", "broken:x", "cannot import broken: ZeroDivisionError: division by zero"),
        ("import nowhere", "broken:x", "cannot import broken: No module named 'nowhere'"),
        ("def (", "broken:x", "cannot import broken: SyntaxError: "),
        ("", "json:nothing", 'json has no function "nothing"'),
        ("", "json:__name__", "json:__name__ is not a function: it is of type str"),
    ],
)
def test_the_error_says_why_a_function_cannot_be_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, function: str, said: str
) -> None:
    (tmp_path / "broken.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(CannotCall) as caught:
        find(function)
    assert reason_of(caught.value).startswith(said)
    assert ("broken" in function) == ("broken.py" in traceback_of(caught.value))


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_a_value_of_json_comes_back_as_it_was_returned(value: Any) -> None:
    import json

    text, why_not = returned(value)
    assert (json.loads(text) if text else None, why_not) == (value, "")
    assert text.isascii()


def test_a_value_is_kept_up_to_its_limit() -> None:
    most = "x" * (RESULT_MAX - 2)
    assert returned(most) == (f'"{most}"', "")
    assert returned(most + "x")[0] == "" and "65,537 characters" in returned(most + "x")[1]
    endless: list[Any] = []
    endless.append(endless)
    text, why_not = returned(endless)
    assert text == "" and why_not.startswith(
        "the result, of type list, cannot be kept as JSON: Circular reference detected; return less"
    )


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("no such\n  customer"), "ValueError: no such customer"),
        (KeyError("x"), "KeyError: 'x'"),
        (RuntimeError(), "RuntimeError"),
        (Silent(), "Silent"),
        (ValueError("x" * 1000), f"ValueError: {'x' * 1000}"[:REASON_MAX]),
        (OSError("no redis://:hunter2@h, password=hunter2"), "OSError: no redis://:***@h, password=***"),
    ],
)
def test_the_reason_of_an_exception_is_one_line(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason


@pytest.mark.parametrize(
    ("code", "status"),
    [(None, (0, "")), (0, (0, "")), (3, (3, "")), (-1, (255, "")), ("sorry", (1, "sorry"))],
)
def test_an_exit_has_the_status_that_a_program_would_have(code: Any, status: tuple[int, str]) -> None:
    assert exit_status(SystemExit(code)) == status


def test_a_module_that_another_thread_still_imports_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate: Any = ModuleType("half_way_gate")
    gate.entered, gate.leave = threading.Event(), threading.Event()
    monkeypatch.setitem(sys.modules, "half_way_gate", gate)
    monkeypatch.syspath_prepend(tmp_path)
    source = "import half_way_gate as gate\ngate.entered.set()\ngate.leave.wait()\ndef work(): ...\n"
    (tmp_path / "half_way.py").write_text(source)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(find, "half_way:work")
        assert gate.entered.wait(10)
        second = threads.submit(find, "half_way:work")
        is_waiting = not wait([second], timeout=0.2).done
        gate.leave.set()
        assert is_waiting
        assert first.result(10) is second.result(10)
