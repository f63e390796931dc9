"""With hundreds of jobs that are due every second, store calls stay small."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from detent.model import Claim, Command, End, Job, Outcome, Plan, Policy, Work
from detent.node.node import Node
from detent.node.ports import Ports, Tuning
from detent.node.timeline import FIRES_MAX
from detent.rules.decide import SETTLED_MAX
from detent.runners.running import AttemptEnd
from detent.stores.memory.store import MemoryStore
from detent.testing.sim.fleet import START
from detent.testing.sim.schedule import Every
from detent.testing.sim.virtual_time import Process, VirtualLoop

APP, JOBS, WORK_S, RUN_S = "a", 300, 8.0, 12.0
JOB = Job("", Every(1), Command(("true",)), Policy("Allow"), revision="r")
PACE = Tuning(max_running=100_000)


class _Running:
    """Work that takes a while."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.gone: asyncio.Future[AttemptEnd] = loop.create_future()
        loop.call_later(WORK_S, self.gone.set_result, End(Outcome("succeeded")))

    def extend(self, trusted_by: float) -> None: ...

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None: ...


class _World:
    """One node in virtual time, and the size of each of its calls."""

    def __init__(self) -> None:
        self.loop, self.calls = VirtualLoop(), list[tuple[str, int]]()
        self.store = MemoryStore(lambda: START.timestamp() + self.loop.time(), self.loop.time)
        self.process = Process()

    def start(self, work: Work, claim: Claim, trusted_by: float) -> _Running:
        return _Running(self.loop)

    async def offload(self, line: str, call: Callable[..., Any], *args: Any) -> Any:
        await asyncio.sleep(0.01)
        answer, verb = call(*args), call.__name__
        planned: list[Plan] = args[1] if verb == "advance" else []
        sizes = {
            "advance": sum(len(plan.fires) for plan in planned),
            "claim": len(answer.claims) if verb == "claim" else 0,
        }
        self.calls.append((verb, sizes.get(verb, len(args[0]))))
        return answer

    def run(self) -> None:
        names = [f"{APP}.job-{number}" for number in range(JOBS)]
        jobs = {name: JOB._replace(name=name) for name in names}
        spawn, emit = self.process.spawn, lambda *_, **__: None
        ports = Ports(self.store, self, self.offload, spawn, self.loop.time, Random(1), emit)
        self.loop.run_until_complete(self._live(Node("n1", APP, jobs, ports, PACE)))

    async def _live(self, node: Node) -> None:
        self.process.spawn(node.run())
        await asyncio.sleep(RUN_S)
        tasks = list(self.process.tasks)
        self.process.kill()
        await asyncio.wait(tasks)

    def largest(self, verb: str) -> int:
        return max(size for called, size in self.calls if called == verb)


@pytest.fixture(scope="module")
def world() -> _World:
    world = _World()
    world.run()
    return world


def test_one_call_plans_a_few_hundred_fires_at_most(world: _World) -> None:
    assert world.largest("advance") <= 2 * FIRES_MAX
    assert world.largest("claim") <= PACE.ask_max + SETTLED_MAX
    assert world.largest("finish") <= PACE.report_max
    assert world.largest("renew") <= PACE.renew_max


def test_the_first_fires_are_claimed_while_the_others_are_planned(world: _World) -> None:
    first_claim = next(place for place, call in enumerate(world.calls) if call[0] == "claim" and call[1])
    planned_before = sum(size for verb, size in world.calls[:first_claim] if verb == "advance")
    assert planned_before < JOBS * PACE.ahead_s / 4
    assert "advance" in [verb for verb, _ in world.calls[first_claim:]]
