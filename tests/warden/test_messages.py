"""What a warden knows of messages that one of its children was given together, with real processes."""

import asyncio
import json
from typing import Any

import pytest
from tests.warden.call_world import CallWorld
from tests.warden.warden_world import PATIENCE_S, TTL_S

from detent.clock import boottime
from detent.model import End, Outcome
from detent.runners.call.child_batch import ANSWERED
from detent.runners.call.spec import CallSpec


@pytest.fixture
def world_type() -> type[CallWorld]:
    return CallWorld


def several(world: CallWorld, *functions: str) -> CallSpec:
    """As messages that are given to a child together."""
    spec = world.call("add", 1)
    calls = [
        [f"work:{one}", False, 0.0, "a.b", "a.b#1", "r1", 0.0, 1, 1, "n", None, "", []] for one in functions
    ]
    request = {"id": spec.id, "env": {}, "at_once": False, "calls": calls}
    return spec._replace(request=json.dumps(request), messages=len(functions))


@pytest.mark.parametrize(
    ("functions", "not_begun"),
    [(("count", "count", "crash", "count"), 1), (("crash", "count", "count"), 2), (("count", "crash"), 0)],
)
def test_if_a_child_dies_it_is_known_how_many_messages_it_had_not_started(
    bare_world: CallWorld, functions: tuple[str, ...], not_begun: int
) -> None:
    end, said = given(bare_world, several(bare_world, *functions))
    assert end.outcome == Outcome("failed", "killed by SIGSEGV")
    assert [part for part in said if not isinstance(part, str)] == [not_begun]


def test_a_child_that_dies_of_its_request_counts_as_having_started_the_first_message(
    bare_world: CallWorld,
) -> None:
    end, said = given(bare_world, several(bare_world, "count", "count")._replace(request="{"))
    assert end.outcome.kind == "failed" and said == [1]


def test_plain_successes_are_answered_together(bare_world: CallWorld) -> None:
    end, said = given(bare_world, several(bare_world, *["count"] * 50))
    assert end.result == ANSWERED
    places = [answer[0] for part in said for answer in json.loads(part)]
    assert places == [*range(50)] and len(said) < 50


def given(world: CallWorld, spec: CallSpec) -> tuple[End, list[Any]]:
    """How it ended, and all that was said of its messages."""
    said: list[Any] = []

    async def main() -> End:
        async with world.processes() as processes:
            work = processes.begin(spec, boottime() + TTL_S)
            work.on_part = lambda part: (
                None if isinstance(part, bool) else said.append(part)
            )  # not of imports
            end = await asyncio.wait_for(work.gone, PATIENCE_S)
            assert isinstance(end, End)
            return end

    return asyncio.run(main()), said
