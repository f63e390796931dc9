"""Calls in threads and on a loop of this process: what they give, what they log, and how they end."""

import asyncio
import json
import logging
import queue
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from tests.runners.call.test_function import VARIABLES

from detent.model import Call, Isolation
from detent.runners.call.fire import fire_of
from detent.runners.call.in_process import Ended, InProcessCall, start_all

GO = threading.Event()


@pytest.fixture(autouse=True)
def as_in_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a new process logging is not set up yet; here, another test may have done so."""
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging.root, "level", logging.WARNING)


def add(a: int, b: int = 0) -> int:
    logging.getLogger("billing").info("adding %s", a)
    logging.getLogger("billing").debug("not shown")
    return a + b


async def double(n: int, fire: Any) -> list[Any]:
    logging.getLogger("billing").warning("doubling %s", n)
    await asyncio.sleep(0.01)
    logging.getLogger("billing").warning("doubled %s", n)
    return [n * 2, fire.key]


async def forever(started: bool = True) -> None:
    try:
        GO.set()
        await asyncio.sleep(1000)
    finally:
        logging.getLogger("billing").info("cleared up")


def fail() -> None:
    raise ValueError("no such customer")


def leave() -> None:
    sys.exit(7)


async def leave_async() -> None:
    await asyncio.sleep(0)
    sys.exit(8)


async def thread_name() -> str:
    return threading.current_thread().name


@pytest.fixture(autouse=True)
def module() -> Iterator[None]:
    """These functions under a name that a manifest could have."""
    made = ModuleType("inside_work")
    made.__dict__.update(
        {f.__name__: f for f in (add, double, forever, fail, leave, leave_async, thread_name)}
    )
    sys.modules["inside_work"] = made
    GO.clear()
    yield
    del sys.modules["inside_work"]


def begin(
    function: str, isolation: Isolation, *args: Any
) -> tuple[InProcessCall, "queue.SimpleQueue[Ended]"]:
    call = Call(f"inside_work:{function}", json.dumps(args), isolation)
    inside, ends = InProcessCall(call, lambda: fire_of(VARIABLES, None)), queue.SimpleQueue[Ended]()
    start_all([(inside, ends.put)])
    return inside, ends


def run(function: str, isolation: Isolation, *args: Any) -> Ended:
    return begin(function, isolation, *args)[1].get(timeout=60)


@pytest.mark.parametrize(
    ("function", "isolation", "args", "status", "error", "result", "tail"),
    [
        ("add", "thread", (1, 2), 0, "", 3, "INFO billing: adding 1\n"),
        ("double", "thread", (4,), 0, "", [8, VARIABLES["DETENT_FIRE"]], "WARNING billing: doubled 4\n"),
        ("double", "loop", (4,), 0, "", [8, VARIABLES["DETENT_FIRE"]], "WARNING billing: doubled 4\n"),
        ("fail", "thread", (), 1, "ValueError: no such customer", None, "ValueError: no such customer\n"),
        ("leave", "thread", (), 7, "", None, ""),
        ("leave_async", "thread", (), 8, "", None, ""),
        ("leave_async", "loop", (), 8, "", None, ""),
        ("nothing", "loop", (), 1, 'inside_work has no function "nothing"', None, 'no function "nothing"\n'),
        (
            "add",
            "loop",
            (1,),
            1,
            "inside_work:add is not async: with `isolation: loop` it has to be",
            None,
            "",
        ),
    ],
)
def test_how_a_call_in_this_process_ends(
    function: str, isolation: Isolation, args: Any, status: int, error: str, result: Any, tail: str
) -> None:
    ended = run(function, isolation, *args)
    assert (ended.status, ended.error) == (status, error)
    assert (json.loads(ended.result) if ended.result else None) == result
    assert ended.tail.decode().endswith(tail)
    assert b"not shown" not in ended.tail


def test_concurrent_calls_have_separate_logs() -> None:
    under_way = [begin("double", "loop" if n % 2 else "thread", n) for n in range(20)]
    for n, (_, ends) in enumerate(under_way):
        lines = ends.get(timeout=60).tail.decode().splitlines()
        assert [line.partition("billing: ")[2] for line in lines] == [f"doubling {n}", f"doubled {n}"]


@pytest.mark.parametrize("isolation", ["thread", "loop"])
def test_an_async_call_can_be_cancelled_and_cleans_up(isolation: Isolation) -> None:
    inside, ends = begin("forever", isolation)
    assert GO.wait(20)
    inside.cancel()
    ended = ends.get(timeout=60)
    assert (ended.status, ended.error) == (1, "CancelledError")
    assert "INFO billing: cleared up\n" in ended.tail.decode()
    inside.cancel()  # too late, and harmless


def test_all_calls_of_the_loop_share_one_thread_that_is_not_the_callers() -> None:
    names = {run("thread_name", "loop").result for _ in range(3)}
    assert names == {'"detent-calls"'}
    assert run("thread_name", "thread").result == '"detent-call-inside_work:thread_name"'
