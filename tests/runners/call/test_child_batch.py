"""What a child makes of several messages: each is answered in turn, with its own output."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

from detent.clock import instant
from detent.model import Call, Claim, Fire, Policy
from detent.runners.call.child_batch import TAIL_MAX, TIMED_OUT, Batch
from detent.worker.batch_message import BatchMessage, encode_requests

DONE: list[Any] = []


def note(*args: Any) -> None:
    DONE.append(args)


def give(value: Any) -> Any:
    return value


def write(what: str) -> None:
    print("printed", what)
    logging.getLogger("batch").warning("logged %s", what)


def write_much() -> None:
    print("x" * 3 * TAIL_MAX + "the end", end="")


def fail() -> None:
    raise ValueError("no such\n customer")


def leave(code: Any) -> None:
    sys.exit(code)


def interrupt() -> None:
    raise KeyboardInterrupt


def about(fire: Any) -> list[Any]:
    return [fire.key, fire.app, fire.job, fire.attempt, fire.fence, fire.node]


async def nap(seconds: float, what: str = "") -> str:
    print("before", what)
    await asyncio.sleep(seconds)
    print("after", what)
    return what


def awaitable() -> Any:
    return asyncio.sleep(0.001, "awaited")


class Host:
    """In a child's place: `turns` messages may be begun; `more` come once the loop runs."""

    def __init__(self, turns: int = 1000, more: list[Any] | None = None) -> None:
        self._turns, self._more = turns, more or []
        self.wire, self.far = os.pipe()
        if more:
            os.write(self.far, b"x")

    def take_permit(self) -> bool:
        self._turns -= 1
        return self._turns >= 0

    def interrupted_by(self, interrupt: Callable[[], object]) -> contextlib.nullcontext[None]:
        return contextlib.nullcontext()

    def receive_more(self, *, is_readable: bool) -> list[Any] | None:
        if not is_readable:
            return []
        os.read(self.wire, 1)
        more, self._more = self._more, []
        return more

    def close(self) -> None:
        os.close(self.wire)
        os.close(self.far)


def call(function: str, *args: Any, keeps: bool = True, timeout_s: float = 0.0, trace: str = "") -> list[Any]:
    name = f"{__name__}:{function}"
    return [name, keeps, timeout_s, "a.b", "a.b#1", "r1", 0.0, 2, 9, "n.1", None, trace, list(args)]


def carry_out(*calls: list[Any], turns: int = 1000, more: list[Any] | None = None) -> list[Any]:
    """By place: status, error, result and tail of each that was answered, in the order of the answers."""
    streams, carrier = (sys.stdout, sys.stderr), Host(turns, more)
    try:
        return [(part[0], *part[1:4], part[5]) for part in Batch(carrier, [*calls]).run()]
    finally:
        sys.stdout, sys.stderr = streams
        carrier.close()


@pytest.fixture(autouse=True)
def fresh() -> None:
    DONE.clear()


def test_each_message_is_answered_with_its_result() -> None:
    parts = carry_out(call("give", 1), call("note"), call("give", {"a": []}), call("give", 2, keeps=False))
    assert [part[:4] for part in parts] == [
        (0, 0, "", "1"),
        (1, 0, "", ""),
        (2, 0, "", '{"a": []}'),
        (3, 0, "", ""),
    ]


def test_a_message_is_answered_before_the_next_one_starts() -> None:
    streams, carrier = (sys.stdout, sys.stderr), Host()
    try:
        parts = Batch(carrier, [call("note", 1), call("note", 2)]).run()
        next(parts)
        assert DONE == [(1,)]
        next(parts)
        assert DONE == [(1,), (2,)]
        with contextlib.suppress(StopIteration):
            next(parts)
    finally:
        sys.stdout, sys.stderr = streams
        carrier.close()


def test_without_a_permit_no_further_message_starts() -> None:
    assert [part[0] for part in carry_out(*[call("note", n) for n in range(5)], turns=2)] == [0, 1]
    assert DONE == [(0,), (1,)]


def test_a_function_gets_the_fire_that_the_node_encodes() -> None:
    async def encoded() -> str:
        messages = []
        for number, policy in enumerate([Policy(), Policy(timeout_s=5), Policy(), Policy(drop_result=True)]):
            fire = Fire(f'a.b#"{number}', "a.b", instant(0), f"r{number}", policy=policy, origin="push")
            claim = Claim(fire, "n.1", 7 + number, number + 1, 30.0, instant(60))
            messages.append(BatchMessage(Call(f"{__name__}:about", "[]"), claim, 0.0))
        return encode_requests(messages)

    calls = json.loads(f"[{asyncio.run(encoded())}]")
    fires = [part[3] and json.loads(part[3]) for part in carry_out(*calls)]
    assert fires == [[f'a.b#"{n}', "a", "b", n + 1, 7 + n, "n.1"] if n != 3 else "" for n in range(4)]


FAILURES = [
    (call("fail"), 1, "ValueError: no such customer"),
    (call("leave", 3), 3, ""),
    (call("leave", None), 0, ""),
    (call("leave", "why"), 1, ""),
    (call("interrupt"), 1, "KeyboardInterrupt"),
    (call("nothing_of_that_name"), 1, f'{__name__} has no function "nothing_of_that_name"'),
    (call("give"), 1, "TypeError: give() missing 1 required positional argument: 'value'"),
]


@pytest.mark.parametrize(("bad", "status", "error"), FAILURES)
def test_a_message_that_fails_is_answered_and_the_next_one_runs(
    bad: list[Any], status: int, error: str
) -> None:
    parts = carry_out(bad, call("give", "next"))
    assert [part[:3] for part in parts] == [(0, status, error), (1, 0, "")]
    assert parts[1][3:] == ('"next"', "")


def test_each_message_has_its_own_output() -> None:
    parts = carry_out(
        call("write", "one"), call("give", 1), call("write", "two"), call("fail"), call("write_much")
    )
    tails = [part[4] for part in parts]
    assert tails[0] == "printed one\n"
    assert tails[1] == "" and "printed two" in tails[2]
    assert "ValueError" in tails[3] and "Traceback" in tails[3]
    assert len(tails[4]) == TAIL_MAX and tails[4].endswith("the end")


def test_logging_that_was_set_up_before_goes_to_the_right_message(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = logging.StreamHandler(sys.stderr)
    monkeypatch.setattr(logging.root, "handlers", [handler])
    parts = carry_out(call("write", "one"), call("write", "two"))
    assert [part[4] for part in parts] == ["printed one\nlogged one\n", "printed two\nlogged two\n"]


def test_a_function_with_a_fire_parameter_gets_its_fire() -> None:
    (part,) = carry_out(call("about"))
    assert json.loads(part[3]) == ["a.b#1", "a", "b", 2, 9, "n.1"]


# Async ones.


def test_async_messages_run_at_the_same_time_and_are_answered_as_they_end() -> None:
    parts = carry_out(call("nap", 0.2, "slow"), call("nap", 0.01, "quick"), call("give", 1))
    assert [part[0] for part in parts] == [2, 1, 0]
    assert {part[3] for part in parts} == {'"slow"', '"quick"', "1"}
    assert [part[4] for part in parts if part[0] == 0] == ["before slow\nafter slow\n"]


def test_an_async_message_that_takes_too_long_is_cancelled_and_the_others_continue() -> None:
    parts = carry_out(call("nap", 100, timeout_s=0.05), call("nap", 0.3, "on", timeout_s=30))
    assert [part[:4] for part in parts] == [(0, TIMED_OUT, "", ""), (1, 0, "", '"on"')]


def test_later_async_messages_join_and_get_the_next_positions() -> None:
    more = [call("nap", 0.01, "joined"), call("fail"), call("give", 7)]
    parts = carry_out(call("nap", 0.3, "first"), more=more)
    assert {part[0]: part[1:4] for part in parts} == {
        0: (0, "", '"first"'),
        1: (0, "", '"joined"'),
        2: (1, "ValueError: no such customer", ""),
        3: (0, "", "7"),
    }
    assert parts[-1][0] == 0


def test_a_message_is_cancelled_by_its_position() -> None:
    parts = carry_out(call("nap", 100), call("nap", 0.2, "on"), more=[0])
    assert [(part[0], part[1]) for part in parts] == [(0, 1), (1, 0)]
    assert parts[0][2] == "CancelledError"


def test_an_awaitable_of_a_plain_function_is_awaited_at_once() -> None:
    assert [part[:4] for part in carry_out(call("awaitable"), call("give", 1))] == [
        (0, 0, "", '"awaited"'),
        (1, 0, "", "1"),
    ]
