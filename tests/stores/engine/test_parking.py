"""A lane with room and parked fires always has a fire in sight, whatever happens between look and commit."""

from __future__ import annotations

import pytest
from tests.stores.engine.between import BACKEND, NoLaneVersion, World

from detent.model import Claim, Fire, Outcome, Policy, Verdict
from detent.stores.base import PAUSE
from detent.stores.engine.driver import Wake
from detent.stores.engine.finishing import WAKE
from detent.stores.memory.driver import MemoryDriver
from detent.testing.sim.invariants import forgotten_lanes
from detent.testing.sim.mutants import MUTANTS
from detent.testing.stores.fixtures import (
    BEAT_S,
    TTL_S,
    Asker,
    Planner,
    dispositions,
    finish,
    fire,
    keys,
    later,
    only,
)

QUEUED = Policy("Queue", claim_s=TTL_S)
BREAKER = QUEUED._replace(breaker="mail", breaker_threshold=1, breaker_cooldown_s=600.0)


def message(key: str, policy: Policy = QUEUED, **fields: object) -> Fire:
    """A message in lane `a.b`."""
    return fire(key, "Queue", policy=policy, origin="push", lane="a.b", **fields)


def held(world: World, waiting: list[Fire], policy: Policy = QUEUED, queue: str = "default") -> Claim:
    """A lane with a holder, and these fires parked."""
    world.other.put([message("a.b@0", policy, queue=queue)])
    holder = Asker(world.other, "n1").claim_one(queues=(queue,))
    world.other.put(waiting)
    assert Asker(world.other, "n2").claim() == []
    parked = [one.fire.key for one in world.driver.state.records.values() if one.is_parked]
    assert parked == [one.key for one in waiting]
    return holder


def assert_in_sight(world: World) -> None:
    clocks = world.clock.wall(), world.clock.monotonic()
    assert list(forgotten_lanes(world.driver.state.records.values(), {}, clocks)) == []


def the_holder_finishes_while_a_fire_is_parked(world: World) -> None:
    world.other.put([message("a.b@0")])
    holder = Asker(world.other, "n1").claim_one()
    world.other.put([message("a.b@1")])
    world.between(lambda: finish(world.other, holder))
    asker = Asker(world.me, "n2")
    got = asker.claim()
    assert_in_sight(world)
    assert keys(got or asker.claim()) == ["a.b@1"]


def test_a_fire_is_not_parked_if_the_holder_finishes_before_the_commit() -> None:
    the_holder_finishes_while_a_fire_is_parked(World(MemoryDriver))


def test_the_case_finds_a_driver_that_parks_without_checking_the_lane() -> None:
    with pytest.raises(AssertionError):
        the_holder_finishes_while_a_fire_is_parked(World(NoLaneVersion))


@pytest.mark.parametrize("bug", ["parking_does_not_touch_the_lane", "finish_does_not_change_the_lane"])
def test_the_case_finds_an_engine_with_a_planted_bug(bug: str) -> None:
    """The simulator does not find these: there, hardly anything happens between a look and its commit."""
    with MUTANTS[bug].planted(), pytest.raises(AssertionError):
        the_holder_finishes_while_a_fire_is_parked(World(MemoryDriver))


class WakesNone(MemoryDriver):
    def _unpark(self, wake: Wake) -> bool:
        return False


def a_finish_wakes_the_first(world: World) -> None:
    holder = held(world, [message(f"a.b@{number}") for number in range(1, 8)])
    finish(world.other, holder)
    asker = Asker(world.other, "n3")
    for number in range(1, 8):
        assert_in_sight(world)
        claim = only(asker.claim())
        assert claim.fire.key == f"a.b@{number}", "in order"
        finish(world.other, claim)


def test_a_finish_wakes_the_next_fires_in_order() -> None:
    a_finish_wakes_the_first(World(MemoryDriver))


def test_the_case_finds_a_driver_that_wakes_none() -> None:
    with pytest.raises(AssertionError):
        a_finish_wakes_the_first(World(WakesNone))


@pytest.mark.parametrize("count", [WAKE - 1, WAKE, WAKE + 1, 3 * WAKE])
def test_fires_behind_woken_ones_that_are_delayed_are_woken_too(count: int) -> None:
    world = World(MemoryDriver)
    holder = held(world, [message(f"a.b@1{n:02}", BREAKER) for n in range(count)] + [message("a.b@2")])
    world.other.put([fire("a.x@1", policy=BREAKER)])
    finish(world.other, Asker(world.other, "n3").claim_one(), BACKEND)  # the breaker opens
    finish(world.other, holder)
    assert keys(_until_one_runs(world)) == ["a.b@2"]


@pytest.mark.parametrize("count", [WAKE - 1, WAKE, WAKE + 1, 3 * WAKE])
def test_fires_behind_woken_ones_that_are_settled_are_woken_too(count: int) -> None:
    world = World(MemoryDriver)
    doomed = [message(f"a.b@1{n:02}", start_by=later(20)) for n in range(count)]
    holder = held(world, [*doomed, message("a.b@2")])
    world.clock.pass_time(19)
    finish(world.other, holder)
    world.clock.pass_time(5)
    assert keys(_until_one_runs(world)) == ["a.b@2"]


@pytest.mark.parametrize("count", [WAKE - 1, WAKE, WAKE + 1, 3 * WAKE])
def test_fires_behind_woken_ones_that_are_cancelled_are_woken_too(count: int) -> None:
    world = World(MemoryDriver)
    doomed = [message(f"a.b@1{n:02}") for n in range(count)]
    holder = held(world, [*doomed, message("a.b@2")])
    finish(world.other, holder)
    for one in doomed:
        assert world.other.cancel(one.key)
        assert_in_sight(world)
    assert keys(_until_one_runs(world)) == ["a.b@2"]


@pytest.mark.parametrize("count", [1, WAKE, 3 * WAKE])
def test_fires_that_the_node_cannot_run_do_not_hide_those_behind_them(count: int) -> None:
    world = World(MemoryDriver)
    foreign = [fire(f"a.c@1{n:02}", "Queue", policy=QUEUED, origin="push", lane="a.b") for n in range(count)]
    world.other.put([message("a.b@0")])
    holder = Asker(world.other, "n1").claim_one()
    world.other.put(foreign)
    world.clock.pass_time(1)
    world.other.put([message("a.b@9")])
    Asker(world.other, "n2").claim()
    finish(world.other, holder)
    assert keys(_until_one_runs(world, without=("a.c",))) == ["a.b@9"]


def test_the_holder_dies_on_a_queue_that_no_node_serves() -> None:
    world = World(MemoryDriver)
    held(world, [message("a.b@1")], queue="other")
    world.clock.pass_time(TTL_S + 1)
    assert_in_sight(world)
    assert keys(_until_one_runs(world)) == ["a.b@1"]


def test_a_parked_fire_runs_when_the_grace_of_the_holder_ends() -> None:
    world = World(MemoryDriver)
    policy = QUEUED._replace(grace_s=5.0)
    holder = held(world, [message("a.b@1", policy), message("a.b@2", policy)], policy)
    finish(world.other, holder)
    asker = Asker(world.other, "n3")
    grants = asker.ask()
    assert grants.claims == () and grants.next_in_s <= 5.0
    world.clock.pass_time(4.9)
    assert asker.claim() == []
    world.clock.pass_time(0.2)
    assert keys(asker.claim()) == ["a.b@1"]


def test_a_grace_that_begins_while_a_fire_is_parked_is_waited_for() -> None:
    world = World(MemoryDriver)
    policy = QUEUED._replace(grace_s=5.0)
    world.other.put([message("a.b@0", policy)])
    holder = Asker(world.other, "n1").claim_one()
    world.other.put([message("a.b@1", policy)])
    world.between(lambda: finish(world.other, holder))
    asker = Asker(world.me, "n2")
    assert asker.claim() == []
    assert asker.claim() == []
    world.clock.pass_time(5.1)
    assert keys(asker.claim()) == ["a.b@1"]


def _paused_while_parked() -> tuple[World, Planner, Claim]:
    """A job in a lane of its own: its first fire runs, the second is parked, and the job is paused."""
    world = World(MemoryDriver)
    planner = Planner(world.other, Policy("Queue", claim_s=600.0))
    planner.advance()
    world.clock.pass_time(BEAT_S + 1)
    holder = Asker(world.other, "n1").claim_one(ttl_s=600.0)
    world.clock.pass_time(BEAT_S)
    assert Asker(world.other, "n2").claim() == []
    assert world.driver.state.records[planner.key(2)].is_parked
    world.other.note("a", PAUSE + "a.b", "maintenance")
    return world, planner, holder


def test_a_parked_fire_is_settled_when_its_job_is_paused() -> None:
    world, planner, _ = _paused_while_parked()
    found = dispositions(Asker(world.other, "n3").claim())
    assert found == {planner.key(2): Outcome("skipped", "paused: maintenance", "paused")}


def test_a_parked_fire_runs_after_pause_and_resume() -> None:
    world, planner, holder = _paused_while_parked()
    world.other.note("a", PAUSE + "a.b", "")
    asker = Asker(world.other, "n3")
    assert asker.claim() == []
    assert world.driver.state.records[planner.key(2)].is_parked
    finish(world.other, holder)
    assert keys(asker.claim()) == [planner.key(2)]


def test_a_fire_is_not_parked_if_its_job_is_paused_before_the_commit() -> None:
    world = World(MemoryDriver)
    planner = Planner(world.other, Policy("Queue", claim_s=600.0))
    planner.advance()
    world.clock.pass_time(BEAT_S + 1)
    Asker(world.other, "n1").claim_one(ttl_s=600.0)
    world.clock.pass_time(BEAT_S)
    world.between(lambda: world.other.note("a", PAUSE + "a.b", "maintenance"))
    (disposition,) = dispositions(Asker(world.me, "n2").claim()).values()
    assert disposition and disposition.cause == "paused", planner.key(2)


def _until_one_runs(world: World, **ask: object) -> list[Claim]:
    """The claims of the first ask that gets a fire to run, as a node asks."""
    asker = Asker(world.other, "n9")
    for _ in range(8):
        assert_in_sight(world)
        grants = asker.ask(**ask)
        for claim in grants.claims:
            if claim.disposition:
                finish(world.other, claim, Verdict(claim.disposition))
        if runs := [claim for claim in grants.claims if not claim.disposition]:
            return runs
        world.clock.pass_time(min(grants.next_in_s, 1.0))
    return []
