"""Batches with a fake warden: their size, and the end of each message if the child ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

from detent.clock import boottime
from detent.model import Call, Claim, End, Fire, Outcome, Policy
from detent.rules.outcomes import WARDEN_DIED
from detent.runners.call.child_batch import ANSWERED
from detent.runners.call.spec import CallSpec, PoolSpec
from detent.warden.client import TaskHandle
from detent.worker.batch_message import BATCH_CHARS_MAX, BatchMessage
from detent.worker.batch_size import BATCH_MAX, TARGET_BATCH_S, BatchSize
from detent.worker.batches import BLOCKED, Batches

NOW = datetime(2026, 3, 1, tzinfo=UTC)
HOME = PoolSpec("home", ("python",), {})
LATER = 1e9
PLAIN = Policy()


class Warden:
    """Records requests.  The test decides their results."""

    def __init__(self) -> None:
        self.works: list[TaskHandle] = []
        self.begun: list[Callable[[], None]] = []
        self.said: list[dict[str, Any]] = []
        self.protocol = self

    def begin(self, spec: CallSpec, trusted_by: float, begun: Callable[[], None]) -> TaskHandle:
        self.works.append(TaskHandle(self, spec, trusted_by, begun))  # type: ignore[arg-type]
        self.begun.append(begun)
        return self.works[-1]

    def extend(self, work: TaskHandle) -> None: ...

    def recall(self, id: str) -> None:
        self.said.append({"do": "recall", "id": id})

    def add_messages(self, id: str, request: str, messages: int) -> None:
        self.said.append({"do": "more", "request": request, "messages": messages})

    def stop(self, id: str, kill_after_s: float | None) -> None:
        self.said.append({"do": "stop", "kill_after_s": kill_after_s})

    def sizes(self) -> list[int]:
        return [len(json.loads(work.spec.request)["calls"]) for work in self.works]  # type: ignore[union-attr]


class World:
    def __init__(self, at_once: int = 2, processes: int = 1) -> None:
        self.warden = Warden()
        self.batches = Batches(self.warden, at_once, processes)  # type: ignore[arg-type]
        self._fences = iter(range(1, 10_000))

    def add(self, call: Call, policy: Policy = PLAIN, trusted_by: float = LATER) -> BatchMessage:
        fence = next(self._fences)
        fire = Fire(f"a.b#{fence}", "a.b", NOW, run_id=f"r{fence}", policy=policy, origin="push")
        return self.batches.add(call, Claim(fire, "n.1", fence, 1, policy.claim_s, NOW), HOME, trusted_by)

    async def add_many(self, count: int, call: Call, **fields: Any) -> list[BatchMessage]:
        members = [self.add(call, **fields) for _ in range(count)]
        await turns()
        return members

    def learn_quick(self, call: Call) -> None:
        for _ in range(200):
            self.batches.batch_size.learn(call.function, 1e-5)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def part(place: int, error: str = "") -> str:
    return json.dumps([[place, 1, error, "", "", 0.001] if error else [place, 0.001]])


def kinds(members: list[BatchMessage]) -> list[str]:
    """Return the kind of each outcome; `-` for returned, `?` for still open."""
    went = [member.gone.result() if member.gone.done() else "?" for member in members]
    return [one.outcome.kind if isinstance(one, End) else one or "-" for one in went]  # type: ignore[union-attr]


QUICK, ASYNC = Call("m:quick"), Call("m:nap", is_async=True)
Scene = Callable[[World], Coroutine[Any, Any, None]]


def play(scene: Scene, **fields: int) -> None:
    async def main() -> None:
        await scene(World(**fields))

    asyncio.run(main())


# How many.


def test_unknown_functions_run_alone_and_short_ones_in_large_batches() -> None:
    batch_size = BatchSize(at_once=7)
    assert (batch_size.size(QUICK), batch_size.prefetch_factor()) == (1, 1)
    for _ in range(100):
        batch_size.learn(QUICK.function, 1e-5)
    assert (batch_size.size(QUICK), batch_size.prefetch_factor()) == (BATCH_MAX, 2 * BATCH_MAX)
    assert batch_size.size(Call("m:other")) == 1, "of each function by itself"


@pytest.mark.parametrize(
    ("took_s", "size"), [(TARGET_BATCH_S, 1), (0.011, 1), (0.009, 2), (0.0019, 10), (1.0, 1)]
)
def test_the_batch_size_follows_the_duration_of_the_function(took_s: float, size: int) -> None:
    batch_size = BatchSize(at_once=1)
    for _ in range(100):
        batch_size.learn(QUICK.function, took_s)
    assert batch_size.size(QUICK) == size


def test_after_a_slow_message_the_next_one_runs_alone() -> None:
    batch_size = BatchSize(at_once=1)
    for _ in range(100):
        batch_size.learn(QUICK.function, 1e-4)
    batch_size.learn(QUICK.function, 1.0)
    assert (batch_size.size(QUICK), batch_size.prefetch_factor()) == (1, 1)


def test_a_batch_has_one_kind_of_messages_and_a_limited_length() -> None:
    async def scene(world: World) -> None:
        world.learn_quick(QUICK)
        await world.add_many(5, QUICK)
        world.add(QUICK)
        world.add(QUICK, Policy(timeout_s=3))
        world.add(QUICK, Policy(claim_s=3))
        await turns()
        assert world.warden.sizes() == [5, 1, 1, 1]
        long = QUICK._replace(args=json.dumps(["x" * (BATCH_CHARS_MAX // 2)]))
        await world.add_many(3, long)
        assert world.warden.sizes()[4:] == [1, 1, 1]

    play(scene)


# Who is blamed.


async def five(world: World) -> tuple[list[BatchMessage], TaskHandle]:
    world.learn_quick(QUICK)
    members = await world.add_many(5, QUICK)
    (work,) = world.warden.works
    world.warden.begun[0]()
    work.on_part(part(0))
    work.on_part(part(1, "ValueError: no"))
    return members, work


def test_a_success_counts_at_once_and_a_failure_when_all_processes_are_gone() -> None:
    async def scene(world: World) -> None:
        members, work = await five(world)
        assert kinds(members) == ["succeeded", "?", "?", "?", "?"]
        for place in (2, 3, 4):
            work.on_part(part(place))
        work.resolve(End(Outcome("succeeded")))
        await turns()
        assert kinds(members) == ["succeeded", "failed", "succeeded", "succeeded", "succeeded"]

    play(scene)


@pytest.mark.parametrize("end", ["failed", "timed-out", "lost"])
def test_a_dead_child_fails_the_last_message_that_it_started(end: Any) -> None:
    async def scene(world: World) -> None:
        members, work = await five(world)
        work.on_part(1)
        work.resolve(End(Outcome(end)))
        await turns()
        assert kinds(members) == ["succeeded", "failed", "succeeded", end, "-"]

    play(scene)


def test_if_the_started_messages_are_unknown_all_are_lost() -> None:
    async def scene(world: World) -> None:
        members, work = await five(world)
        work.lose(WARDEN_DIED)
        await turns()
        assert kinds(members) == ["succeeded", "failed", "lost", "lost", "lost"]

    play(scene)


def test_if_no_child_starts_the_first_message_fails() -> None:
    async def scene(world: World) -> None:
        world.learn_quick(QUICK)
        members = await world.add_many(3, QUICK)
        world.warden.works[0].resolve(End(Outcome("failed", "the Python process for it did not come up")))
        await turns()
        assert kinds(members) == ["failed", "-", "-"]

    play(scene)


def test_a_message_that_exits_its_child_with_success_is_lost() -> None:
    async def scene(world: World) -> None:
        members, work = await five(world)
        work.on_part(2)
        work.resolve(End(Outcome("succeeded"), status=0))
        await turns()
        assert kinds(members) == ["succeeded", "failed", "lost", "-", "-"]

    play(scene)


def test_recalled_messages_are_returned() -> None:
    async def scene(world: World) -> None:
        members, work = await five(world)
        world.batches.recall_all()
        assert world.warden.said[-1] == {"do": "recall", "id": work.id}
        work.on_part(2)
        assert kinds(members) == ["succeeded", "?", "?", "-", "-"]
        work.on_part(part(2))
        work.resolve(End(Outcome("succeeded")))
        await turns()
        assert kinds(members) == ["succeeded", "failed", "succeeded", "-", "-"]

    play(scene)


def test_only_the_stalled_message_is_learnt_as_slow() -> None:
    async def scene(world: World) -> None:
        slow = QUICK._replace(function="m:slow")
        for call in (QUICK, slow):
            world.learn_quick(call)
        for call in (QUICK, slow, QUICK):
            world.add(call)
        await turns()
        world.warden.begun[0]()
        while not world.warden.said:
            await asyncio.sleep(0.05)
        assert world.warden.said == [{"do": "recall", "id": world.warden.works[0].id}]
        world.warden.works[0].on_part(1)
        batch_size = world.batches.batch_size
        assert (batch_size.size(slow), batch_size.size(QUICK)) == (1, BATCH_MAX)

    play(scene)


def test_messages_before_a_stalled_one_succeed_at_the_recall() -> None:
    async def scene(world: World) -> None:
        members, work = await five(world)
        work.on_part(0)
        assert kinds(members) == ["succeeded", "?", "succeeded", "succeeded", "?"]
        work.on_part(json.dumps([[2, 0.1], [3, 0.1], [4, 0.1]]))
        assert kinds(members) == ["succeeded", "?", "succeeded", "succeeded", "succeeded"]

    play(scene)


def test_answers_for_unknown_messages_are_ignored() -> None:
    async def scene(world: World) -> None:
        members, work = await five(world)
        work.on_part(part(0, "again"))
        work.on_part(part(77))
        assert kinds(members) == ["succeeded", "?", "?", "?", "?"]

    play(scene)


@pytest.mark.parametrize(
    "said", ["[", "[7]", "[[]]", "[[2]]", '[[2, "x"]]', "[[2, 1, 2, 3]]", "[{}]", "[" * 9999]
)
def test_a_child_with_unreadable_answers_is_stopped(said: str) -> None:
    async def scene(world: World) -> None:
        members, work = await five(world)
        work._processes = world.warden  # type: ignore[assignment]
        work.on_part(said)
        assert [one["do"] for one in world.warden.said] == ["stop"]
        assert kinds(members) == ["succeeded", "?", "?", "?", "?"]

    play(scene)


def test_a_message_that_is_stopped_before_it_starts_does_not_stop_the_others() -> None:
    async def scene(world: World) -> None:
        members, work = await five(world)
        members[3].stop(Outcome("cancelled"))
        assert world.warden.said == []
        work._processes = world.warden  # type: ignore[assignment]
        work.on_part(part(2))
        assert [one["do"] for one in world.warden.said] == ["stop"], "when it would begin"
        work.on_part(1)
        work.resolve(End(Outcome("cancelled")))
        await turns()
        assert kinds(members) == ["succeeded", "failed", "succeeded", "cancelled", "-"]

    play(scene)


# Async ones.


def test_later_messages_join_while_there_is_room() -> None:
    async def scene(world: World) -> None:
        first = await world.add_many(1, ASYNC)
        then = await world.add_many(3, ASYNC)
        assert (world.warden.sizes(), world.warden.said) == ([1], []), "it has no child yet"
        world.warden.begun[0]()
        await turns()
        (said,) = world.warden.said
        assert (said["do"], said["messages"]) == ("more", 2) and len(json.loads(said["request"])["more"]) == 2
        work = world.warden.works[0]
        work.on_part(part(0, "ValueError: no"))
        await turns()
        assert kinds([*first, *then]) == ["failed", "?", "?", "?"], "it does not wait for the others"
        assert [one["messages"] for one in world.warden.said] == [2, 1]

    play(scene, at_once=3)


def test_a_message_that_joined_too_late_starts_in_another_batch() -> None:
    async def scene(world: World) -> None:
        await world.add_many(1, ASYNC)
        world.warden.begun[0]()
        (late,) = await world.add_many(1, ASYNC)
        work = world.warden.works[0]
        work.on_part(part(0))
        work.resolve(End(Outcome("succeeded"), result=ANSWERED))  # and did not hear of it
        await turns()
        assert world.warden.sizes() == [1, 1] and kinds([late]) == ["?"]

    play(scene)


def test_no_message_joins_while_another_batch_waits_for_a_child() -> None:
    async def scene(world: World) -> None:
        await world.add_many(1, ASYNC)
        world.warden.begun[0]()
        world.add(QUICK)
        await turns()
        await world.add_many(1, ASYNC)
        assert world.warden.said == []
        world.warden.begun[1]()
        await turns()
        assert [one["do"] for one in world.warden.said] == ["more"]

    play(scene)


def test_a_message_with_an_untrusted_claim_does_not_join() -> None:
    async def scene(world: World) -> None:
        await world.add_many(1, ASYNC)
        world.warden.begun[0]()
        (late,) = await world.add_many(1, ASYNC, trusted_by=boottime() - 1)
        assert kinds([late]) == ["-"] and world.warden.said == []

    play(scene)


def test_a_batch_is_trusted_no_longer_than_its_oldest_message() -> None:
    async def scene(world: World) -> None:
        world.learn_quick(QUICK)
        older, newer = world.add(QUICK, trusted_by=LATER), world.add(QUICK, trusted_by=LATER + 5)
        await turns()
        (work,) = world.warden.works
        assert work.trusted_by == LATER
        newer.extend(LATER + 50)
        await turns()
        assert work.trusted_by == LATER, "only the newer message was renewed"
        older.extend(LATER + 40)
        await turns()
        assert work.trusted_by == LATER + 40
        work.on_part(part(0))
        newer.extend(LATER + 60)
        await turns()
        assert work.trusted_by == LATER + 60, "the older message has ended"

    play(scene)


def test_a_message_that_joins_a_batch_with_an_older_claim_shortens_the_trust_in_all_of_it() -> None:
    async def scene(world: World) -> None:
        world.add(ASYNC, trusted_by=LATER + 5)
        await turns()
        world.warden.begun[0]()
        world.add(ASYNC, trusted_by=LATER)
        await turns()
        (work,) = world.warden.works
        assert [one["do"] for one in world.warden.said] == ["more"]
        assert work.trusted_by == LATER

    play(scene)


def test_a_message_that_blocks_its_child_times_out_and_its_neighbours_are_lost() -> None:
    async def scene(world: World) -> None:
        policy = Policy(timeout_s=0.01)
        members = [world.add(ASYNC._replace(kill_after_s=0.01), policy if n else Policy()) for n in range(2)]
        await turns()
        world.warden.begun[0]()
        work = world.warden.works[0]
        work._processes = world.warden  # type: ignore[assignment]
        while not world.warden.said:
            await asyncio.sleep(0.01)
        assert world.warden.said[0]["do"] == "stop"
        work.resolve(End(BLOCKED))
        await turns()
        assert kinds(members) == ["lost", "timed-out"]

    play(scene)


def test_a_cancelled_async_message_leaves_the_others_alone() -> None:
    async def scene(world: World) -> None:
        members = await world.add_many(2, ASYNC)
        world.warden.begun[0]()
        members[1].stop(Outcome("cancelled", "by hand", "stopped"))
        assert json.loads(world.warden.said[-1]["request"])["more"] == [1]
        work = world.warden.works[0]
        work.on_part(part(1, "CancelledError"))
        work.on_part(part(0))
        assert kinds(members) == ["succeeded", "cancelled"]

    play(scene)
