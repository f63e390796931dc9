"""Each check of a commit: another unit of work acts exactly between look and commit.

Each case must also fail on a driver without the check; otherwise the case shows nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.stores.engine.between import BACKEND, NoLaneVersion, WithoutCells, World

from detent.model import Claim, End, Outcome, Policy, Query, Rate
from detent.rules.outcomes import CLAIM_GONE, JOB_REMOVED
from detent.rules.rates import rate_text
from detent.rules.settling import report
from detent.stores.base import PAUSE, RATE
from detent.stores.engine.driver import Expect, Header, Write
from detent.stores.engine.engine import Engine
from detent.stores.memory.driver import MemoryDriver
from detent.testing.sim.checked_store import copy_of
from detent.testing.stores.fixtures import (
    BEAT_S,
    DONE,
    OVER,
    TTL_S,
    Asker,
    Planner,
    dispositions,
    finish,
    fire,
    keys,
    only,
    renew,
    row,
)

# 1. The epoch.


def a_finish_of_an_old_epoch_settles_nothing(world: World) -> None:
    world.other.put([fire("a.b@1")])
    saved = copy_of(world.driver.state)
    claim = Asker(world.me).claim_one()

    def fail_over() -> None:
        world.driver.state = saved
        world.driver.new_epoch()
        assert world.other.cancel("a.b@1")  # its version is that of the claim before

    world.between(fail_over)
    assert finish(world.me, claim) is None
    assert row(world.other, "a.b@1").outcome == Outcome("cancelled", "", "stopped")


# 2. The number of the ask.


def a_repeated_ask_gets_what_the_first_one_got(world: World) -> None:
    world.other.put([fire("a.c@1")])
    first, again = Asker(world.other), Asker(world.me)

    def ask_first() -> None:
        world.other.put([fire("a.b@1")])
        assert keys(first.claim(limit=1)) == ["a.b@1"]

    world.between(ask_first)
    assert keys(again.claim(limit=1)) == ["a.b@1"]
    assert world.grants() == ["a.b@1"], "one ask gets no more than its limit"


# 3. The age of the view.


def a_view_that_is_too_old_is_read_again(world: World) -> None:
    world.other.put([fire("a.b@1")])
    world.between(lambda: world.clock.pass_time(TTL_S + 1))
    claim = Asker(world.me).claim_one()
    assert renew(world.other, claim) is None, "the claim lives for its whole time"


# 4. Controls and generation.


def a_pause_that_comes_first_counts(world: World) -> None:
    planner = _due(world)
    world.between(lambda: world.other.note("a", PAUSE + "a.b", "maintenance"))
    (disposition,) = dispositions(Asker(world.me).claim()).values()
    assert disposition and disposition.cause == "paused", planner.key(1)


def a_rate_that_comes_first_counts(world: World) -> None:
    world.other.put([fire("a.b@1"), fire("a.c@1")])
    world.between(lambda: world.other.note("a", RATE + "default", rate_text(Rate(1, 60.0))))
    assert len(Asker(world.me).claim()) == 1


def a_job_that_was_removed_first_does_not_run(world: World) -> None:
    planner = _due(world)
    world.between(lambda: world.other.set_jobs("a", 1, {}))
    assert dispositions(Asker(world.me).claim()) == {planner.key(1): JOB_REMOVED}


# 5. The version of a record.


def a_fire_that_was_cancelled_first_is_not_granted(world: World) -> None:
    world.other.put([fire("a.b@1")])
    world.between(lambda: world.other.cancel("a.b@1"))
    assert Asker(world.me).claim() == []
    assert row(world.other, "a.b@1").state == "over"


# 6. The version of a lane.


def a_lane_that_was_taken_first_is_full(world: World) -> None:
    world.other.put([fire("a.b@2", "Forbid")])

    def take() -> None:
        world.other.put([fire("a.b@1", "Forbid", queue="other")])
        assert keys(Asker(world.other, "n2").claim(queues=("other",))) == ["a.b@1"]

    world.between(take)
    asker = Asker(world.me)
    assert asker.claim() == []
    (disposition,) = dispositions(asker.claim()).values()
    assert disposition and disposition.by == "a.b@1"


# 7. Charges and breakers.


def a_rate_that_was_used_first_is_used_up(world: World) -> None:
    world.other.note("a", RATE + "default", rate_text(Rate(1, 60.0)))
    world.other.put([fire("a.c@1")])

    def use() -> None:
        world.other.put([fire("a.b@1")])
        assert keys(Asker(world.other, "n2").claim(limit=1)) == ["a.b@1"]

    world.between(use)
    assert Asker(world.me).claim() == []


def a_breaker_is_probed_by_one_fire(world: World) -> None:
    policy = Policy("Allow", breaker="mail", breaker_threshold=1, breaker_cooldown_s=5.0, claim_s=TTL_S)
    world.other.put([fire("a.a@1", policy=policy)])
    finish(world.other, Asker(world.other, "n0").claim_one(), BACKEND)
    world.clock.pass_time(6)
    world.other.put([fire("a.c@1", policy=policy)])

    def probe() -> None:
        world.other.put([fire("a.b@1", policy=policy)])
        assert keys(Asker(world.other, "n2").claim(limit=1)) == ["a.b@1"]

    world.between(probe)
    assert Asker(world.me).claim() == []


def an_alert_is_sent_by_one_node(world: World) -> None:
    policy = Policy("Allow", hooks=("on_failure.slack-1",), remind_s=3600.0)
    world.other.put([fire("a.b@1", policy=policy), fire("a.b@2", policy=policy)])
    mine, theirs = Asker(world.other).claim()

    def fail(store: Engine, claim: Claim) -> None:
        store.finish([report(claim, OVER, End(OVER.outcome), claim.expires_at)])

    world.between(lambda: fail(world.other, theirs))
    fail(world.me, mine)
    assert len(world.other.find(Query("a", origins=("hook",)))) == 1


# 8. A renewal is live when it is committed.


def a_claim_that_expired_first_is_not_renewed(world: World) -> None:
    world.other.put([fire("a.b@1", "Forbid")])
    claim = Asker(world.me).claim_one()
    world.clock.pass_time(TTL_S - 0.5)
    world.between(lambda: world.clock.pass_time(0.8))
    assert renew(world.me, claim) == CLAIM_GONE


# The driver without one of the checks.


class NoEpoch(MemoryDriver):
    def _holds(self, expect: Expect, header: Header) -> bool:
        return super()._holds(expect._replace(epoch=""), header)


class NoAsk(MemoryDriver):
    def _holds(self, expect: Expect, header: Header) -> bool:
        return super()._holds(expect._replace(ask=None), header)


class NoAge(MemoryDriver):
    def _holds(self, expect: Expect, header: Header) -> bool:
        return super()._holds(expect._replace(seen=None), header)


class NoControls(MemoryDriver):
    def _holds(self, expect: Expect, header: Header) -> bool:
        return super()._holds(expect._replace(controls=None), header)


class NoGeneration(MemoryDriver):
    def _holds(self, expect: Expect, header: Header) -> bool:
        return super()._holds(expect._replace(generation=None), header)


class NoRecordVersion(MemoryDriver):
    def _is_same(self, write: Write, steady: float) -> bool:
        return True


class NoChargeVersion(WithoutCells):
    prefix = "charge/"


class NoNoteVersion(WithoutCells):
    prefix = "note/"


class NoLiveRenewal(MemoryDriver):
    def _is_same(self, write: Write, steady: float) -> bool:
        return super()._is_same(write._replace(must_live=False), steady)


CASES: list[tuple[Callable[[World], None], type[MemoryDriver]]] = [
    (a_finish_of_an_old_epoch_settles_nothing, NoEpoch),
    (a_repeated_ask_gets_what_the_first_one_got, NoAsk),
    (a_view_that_is_too_old_is_read_again, NoAge),
    (a_pause_that_comes_first_counts, NoControls),
    (a_rate_that_comes_first_counts, NoControls),
    (a_job_that_was_removed_first_does_not_run, NoGeneration),
    (a_fire_that_was_cancelled_first_is_not_granted, NoRecordVersion),
    (a_lane_that_was_taken_first_is_full, NoLaneVersion),
    (a_rate_that_was_used_first_is_used_up, NoChargeVersion),
    (a_breaker_is_probed_by_one_fire, NoNoteVersion),
    (an_alert_is_sent_by_one_node, NoNoteVersion),
    (a_claim_that_expired_first_is_not_renewed, NoLiveRenewal),
]
NAMES = [case.__name__ for case, _ in CASES]


@pytest.mark.parametrize(("case", "mutant"), CASES, ids=NAMES)
def test_another_unit_acts_between_look_and_commit(
    case: Callable[[World], None], mutant: type[MemoryDriver]
) -> None:
    case(World(MemoryDriver))


@pytest.mark.parametrize(("case", "mutant"), CASES, ids=NAMES)
def test_the_case_finds_a_driver_without_the_check(
    case: Callable[[World], None], mutant: type[MemoryDriver]
) -> None:
    with pytest.raises(AssertionError):
        case(World(mutant))


def test_a_claim_of_an_old_epoch_that_the_process_remembers_settles_nothing() -> None:
    world = World(MemoryDriver)
    world.other.put([fire("a.b@1")])
    saved = copy_of(world.driver.state)
    claim = Asker(world.me).claim_one()
    world.driver.state = saved
    world.driver.new_epoch()
    assert world.other.cancel("a.b@1")  # the record has the version that the process remembers
    assert finish(world.me, claim, DONE) is None
    assert row(world.other, "a.b@1").outcome == Outcome("cancelled", "", "stopped")


def test_refused_fires_do_not_refuse_those_with_which_they_share_nothing() -> None:
    world = World(MemoryDriver)
    world.other.put([fire("a.b@1"), fire("a.c@1", "Forbid"), fire("a.c@2", "Forbid")])
    world.between(lambda: world.other.cancel("a.c@1"))
    asker = Asker(world.me)
    assert keys(asker.claim()) == ["a.b@1"], "a.c@2 is not skipped by a.c@1, which does not run"
    assert only(asker.claim()).fire.key == "a.c@2"


def _due(world: World) -> Planner:
    planner = Planner(world.other)
    planner.advance()
    world.clock.pass_time(BEAT_S + 1)
    return planner
