"""Checks of a store: asks, fences, claims and their expiry."""

from __future__ import annotations

from detent.model import Ask, Outcome, Policy
from detent.rules.decide import SETTLED_MAX
from detent.rules.outcomes import lane_taken, node_lost
from detent.rules.trust import CLAIM_MIN_S, margin_s
from detent.stores.base import ORPHANS_TTL_S, Store
from detent.testing.stores.fixtures import (
    AGAIN,
    DONE,
    GIVEN_BACK,
    SMALL_STEPS_S,
    TTL_S,
    Asker,
    Planner,
    World,
    dispositions,
    finish,
    fire,
    keys,
    later,
    renew,
    row,
)

FENCE_MAX = 2**53
GONE = "lost"
OVER_SKIPPED = DONE._replace(outcome=lane_taken("a.b@1"))


def a_fire_is_granted_to_one_node(store: Store, world: World) -> None:
    store.put([fire("a.b@1")])
    claim = Asker(store).claim_one()
    assert (claim.attempt, claim.node, claim.ttl_s, claim.disposition) == (1, "n1", TTL_S, None)
    assert Asker(store, "n2").claim() == []
    stored = row(store, "a.b@1")
    assert (stored.state, stored.node, stored.fence) == ("claimed", "n1", claim.fence)


def a_repeated_ask_gets_the_same_grants_renewed(store: Store, world: World) -> None:
    store.put([fire("a.b@1"), fire("a.c@1")])
    node = Asker(store)
    first = node.claim()
    world.pass_time(TTL_S / 2)
    store.put([fire("a.d@1")])
    again = node.claim(repeat=True)
    assert [(c.fire, c.fence, c.attempt) for c in again] == [(c.fire, c.fence, c.attempt) for c in first]
    assert again[0].expires_at > first[0].expires_at
    world.pass_time(TTL_S * 0.7)
    assert store.renew(again) == [None, None]


def a_repeated_ask_gets_the_same_dispositions(store: Store, world: World) -> None:
    store.put([fire("a.b@1", "Forbid"), fire("a.b@2", "Forbid")])
    node = Asker(store)
    first = node.claim()
    assert dispositions(node.claim(repeat=True)) == dispositions(first)
    assert len(first) == 2


def a_repeated_ask_does_not_get_back_what_is_finished(store: Store, world: World) -> None:
    store.put([fire("a.b@1"), fire("a.c@1")])
    node = Asker(store)
    first, second = node.claim()
    finish(store, first)
    finish(store, second, GIVEN_BACK)
    assert node.claim(repeat=True) == []


def an_ask_that_arrives_late_is_granted_nothing(store: Store, world: World) -> None:
    node = Asker(store)
    node.claim()
    node.claim()
    store.put([fire("a.b@1")])
    assert store.claim(Ask("a", "n1", 1, ttl_s=TTL_S)).claims == ()
    assert keys(node.claim()) == ["a.b@1"]


def a_repeated_ask_after_its_claims_expired_is_granted_nothing(store: Store, world: World) -> None:
    store.put([fire("a.b@1")])
    node = Asker(store)
    node.claim_one()
    world.pass_time(TTL_S + 1)
    assert node.claim(repeat=True) == []


def ask_numbers_count_within_one_instance(store: Store, world: World) -> None:
    node = Asker(store)
    for _ in range(5):
        node.claim()
    store.put([fire("a.b@1")])
    assert keys(Asker(store, "n1-restarted").claim()) == ["a.b@1"]


def an_ask_is_granted_no_more_than_its_limit(store: Store, world: World) -> None:
    store.put([fire(f"a.b@{n}") for n in range(5)])
    node = Asker(store)
    assert [len(node.claim(limit=limit)) for limit in (2, 0, 9)] == [2, 0, 3]


def fires_are_granted_in_the_order_of_their_due_times(store: Store, world: World) -> None:
    store.put([fire("a.b@x")], delay_s=2)
    store.put([fire("a.b@z"), fire("a.b@y")], delay_s=1)
    world.pass_time(3)
    node = Asker(store)
    assert [node.claim_one(limit=1).fire.key for _ in range(3)] == ["a.b@y", "a.b@z", "a.b@x"]


def a_limit_of_zero_still_gets_dispositions(store: Store, world: World) -> None:
    store.put([fire("a.b@1", "Forbid"), fire("a.b@2", "Forbid"), fire("a.c@1")])
    node = Asker(store)
    node.claim(limit=1)
    store.put([fire("a.b@3", "Forbid")])
    assert dispositions(Asker(store, "n2").claim(limit=0)) == {"a.b@3": lane_taken("a.b@1")}


def the_dispositions_of_one_ask_are_bounded(store: Store, world: World) -> None:
    store.put([fire(f"a.b@{n:03}", "Forbid") for n in range(SETTLED_MAX + 6)])
    node = Asker(store)
    first = node.claim()
    assert len(first) == SETTLED_MAX + 1
    assert len([claim for claim in first if claim.disposition]) == SETTLED_MAX
    assert len(node.claim()) == 5


def a_node_is_not_granted_jobs_that_it_cannot_run(store: Store, world: World) -> None:
    store.put([fire("a.b@1", "Forbid"), fire("a.c@1")])
    assert keys(Asker(store).claim(without=("a.b",))) == ["a.c@1"]
    assert keys(Asker(store, "n2").claim()) == ["a.b@1"]


def a_node_settles_dispositions_of_jobs_that_it_cannot_run(store: Store, world: World) -> None:
    store.put([fire("a.b@1", "Forbid")])
    Asker(store).claim_one()
    store.put([fire("a.b@2", "Forbid")])
    assert keys(Asker(store, "n2").claim(without=("a.b",))) == ["a.b@2"]


def a_node_gets_only_fires_of_its_queues(store: Store, world: World) -> None:
    store.put([fire("a.b@1", queue="db"), fire("a.c@1"), fire("a.d@1", queue="web")])
    node = Asker(store)
    assert keys(node.claim()) == ["a.c@1"]
    assert keys(node.claim(queues=("db", "web"))) == ["a.b@1", "a.d@1"]


def a_node_gets_only_fires_of_its_app(store: Store, world: World) -> None:
    store.put([fire("a.b@1"), fire("ab.b@1"), fire("z.b@1")])
    assert keys(Asker(store).claim()) == ["a.b@1"]
    assert keys(Asker(store, "n2", app="z").claim()) == ["z.b@1"]


def fences_grow_by_one_within_an_app(store: Store, world: World) -> None:
    store.put([fire(f"a.b@{n}") for n in range(3)])
    store.put([fire(f"z.b@{n}") for n in range(3)])
    node, other = Asker(store), Asker(store, "n2", app="z")
    ours = [node.claim_one(limit=1).fence]
    theirs = [claim.fence for claim in other.claim()]
    ours += [claim.fence for claim in node.claim()]
    for fences in (ours, theirs):
        assert fences == list(range(fences[0], fences[0] + 3))
        assert 0 < fences[0] < FENCE_MAX


def a_claim_lives_as_long_as_its_fire_says_unless_the_ask_says_otherwise(store: Store, world: World) -> None:
    whole = fire("a.b@1")
    store.put([whole._replace(policy=whole.policy._replace(claim_s=7.0)), fire("a.c@1")])
    node = Asker(store)
    assert [node.claim_one(limit=1, ttl_s=ttl_s).ttl_s for ttl_s in (0.0, 11.0)] == [7.0, 11.0]
    world.pass_time(8)
    assert keys(Asker(store, "n2").claim()) == ["a.b@1"]


def an_answer_says_when_to_ask_again(store: Store, world: World) -> None:
    node = Asker(store)
    store.put([fire("a.b@1")], delay_s=10)
    assert 0 < node.ask().next_in_s <= 10
    world.pass_time(10)
    assert len(node.claim()) == 1
    assert 0 < node.ask().next_in_s <= TTL_S


def a_renewed_claim_stays_alive(store: Store, world: World) -> None:
    store.put([fire("a.b@1")])
    claim, other = Asker(store).claim_one(), Asker(store, "n2")
    for _ in range(3):
        world.pass_time(TTL_S * 0.7)
        assert renew(store, claim) is None
        assert other.claim() == []


def an_expired_claim_is_granted_to_be_settled_as_lost(store: Store, world: World) -> None:
    store.put([fire("a.b@1")])
    old = Asker(store).claim_one()
    world.pass_time(TTL_S + 1)
    new = Asker(store, "n2").claim_one()
    assert new.disposition == node_lost("n1")
    assert new.fence > old.fence
    assert new.attempt == 1
    assert finish(store, old, DONE) is None
    assert finish(store, new, AGAIN) == AGAIN
    assert finish(store, old, DONE) is None


def an_expired_claim_renews_nothing(store: Store, world: World) -> None:
    store.put([fire("a.b@1")])
    old = Asker(store).claim_one()
    world.pass_time(TTL_S + 1)
    for _ in range(2):
        answer = renew(store, old)
        assert answer is not None
        assert answer.kind == GONE
    assert len(Asker(store, "n2").claim()) == 1


def a_renewal_that_arrives_late_extends_no_newer_claim(store: Store, world: World) -> None:
    store.put([fire("a.b@1")])
    old = Asker(store).claim_one()
    world.pass_time(TTL_S + 1)
    Asker(store, "n2").claim_one()
    world.pass_time(TTL_S * 0.7)
    answer = renew(store, old)
    assert answer is not None
    assert answer.kind == GONE
    world.pass_time(TTL_S * 0.7)
    assert len(Asker(store, "n3").claim()) == 1


def a_renewal_after_the_end_changes_nothing(store: Store, world: World) -> None:
    store.put([fire("a.b@1"), fire("a.c@1")])
    over, given_back = Asker(store).claim()
    finish(store, over)
    finish(store, given_back, GIVEN_BACK)
    answers = store.renew([over, given_back])
    assert [answer and answer.kind for answer in answers] == [GONE, GONE]
    assert row(store, "a.b@1").state == "over"
    assert row(store, "a.c@1").state == "pending"


def a_disposition_outlives_the_node_that_should_settle_it(store: Store, world: World) -> None:
    store.put([fire("a.b@1", "Forbid"), fire("a.b@2", "Forbid")])
    run, skip = Asker(store).claim()
    finish(store, run)
    world.pass_time(TTL_S + 1)
    other = Asker(store, "n2").claim_one()
    assert other.disposition == skip.disposition == lane_taken("a.b@1")
    assert other.attempt == 0
    assert other.fence > skip.fence
    assert finish(store, skip, OVER_SKIPPED) is None
    assert finish(store, other, OVER_SKIPPED) == OVER_SKIPPED


def the_claims_of_a_dead_instance_end_at_once(store: Store, world: World) -> None:
    store.put([fire("a.b@1", "Forbid"), fire("a.c@1")])
    Asker(store, "dead").claim(limit=1)
    Asker(store, "alive").claim(limit=1)
    store.put([fire("a.b@2", "Forbid")])
    claims = Asker(store, "n2").claim(dead=("dead", "unknown"))
    assert dispositions(claims) == {"a.b@1": node_lost("dead"), "a.b@2": None}


def a_late_ask_declares_no_instance_dead(store: Store, world: World) -> None:
    node = Asker(store, "n2")
    node.claim()
    store.put([fire("a.b@1")])
    claim = Asker(store, "n1").claim_one()
    assert node.claim(repeat=True, dead=("n1",)) == []
    assert renew(store, claim) is None


def a_returned_claim_counts_no_attempt(store: Store, world: World) -> None:
    store.put([fire("a.b@1")])
    node = Asker(store)
    first = node.claim_one()
    assert finish(store, first, GIVEN_BACK) == GIVEN_BACK
    assert finish(store, first, GIVEN_BACK) == GIVEN_BACK
    assert (row(store, "a.b@1").attempt, row(store, "a.b@1").attempts) == (0, ())
    second = node.claim_one()
    assert (second.attempt, second.disposition) == (1, None)


def a_claim_says_when_its_job_last_succeeded(store: Store, world: World) -> None:
    node = Asker(store)
    for number, verdict in enumerate((DONE._replace(outcome=Outcome("failed")), DONE, DONE)):
        store.put([fire(f"a.b@{number}")])
        claim = node.claim_one()
        assert (claim.previous_success_at is not None) == (number == 2)
        world.pass_time(5)
        finish(store, claim, verdict)
    store.put([fire("a.b@1/on_success", origin="hook")])
    world.pass_time(5)
    finish(store, node.claim_one())
    store.put([fire("a.b@9"), fire("a.c@9")])
    claims = {claim.fire.key: claim.previous_success_at for claim in node.claim()}
    assert claims == {"a.b@9": row(store, "a.b@2").over_at, "a.c@9": None}


def a_step_of_the_wall_clock_expires_no_claim(store: Store, world: World) -> None:
    store.put([fire("a.b@1")])
    claim = Asker(store).claim_one()
    for step_s in (86_400, -3 * 86_400):
        world.step_wall(step_s)
        assert Asker(store, f"n{step_s}").claim() == []
        assert renew(store, claim) is None
    world.pass_time(TTL_S + 1)
    assert Asker(store, "n2").claim_one().disposition == node_lost("n1")


def a_small_step_of_the_wall_clock_expires_no_claim_that_its_node_trusts(store: Store, world: World) -> None:
    for number, step_s in enumerate(SMALL_STEPS_S):
        store.put([fire(f"a.b@{number}")])
        claim = Asker(store, f"n{number}").claim_one(ttl_s=CLAIM_MIN_S)
        world.step_wall(step_s)
        world.pass_time(CLAIM_MIN_S - margin_s(CLAIM_MIN_S))
        assert Asker(store, f"other{number}").claim() == [], f"a step of {step_s:g} s"
        finish(store, claim)


def a_retry_and_a_delay_move_with_a_step_of_the_wall_clock(store: Store, world: World) -> None:
    store.put([fire("a.b@1"), fire("a.c@1")])
    first, second = Asker(store).claim()
    for claim in (first, second):
        finish(store, claim, AGAIN)
    store.put([fire("a.d@1")], delay_s=TTL_S / 2)
    node = Asker(store, "n2")
    for step_s in (86_400, -3 * 86_400):
        world.step_wall(step_s)
        assert node.claim() == []
    world.pass_time(TTL_S / 2 + 1)
    assert sorted(keys(node.claim())) == ["a.b@1", "a.c@1", "a.d@1"]


def a_returned_fire_moves_with_a_step_of_the_wall_clock(store: Store, world: World) -> None:
    planner, node = Planner(store), Asker(store)
    planner.advance()
    world.pass_time(planner.beat_s)
    finish(store, node.claim_one(), GIVEN_BACK._replace(again_in_s=1.0))
    world.step_wall(-3600)
    world.pass_time(2)
    assert keys(node.claim()) == [planner.key(1)]


def a_store_opened_again_remembers(store: Store, world: World) -> None:
    store.put([fire("a.b@1", "Forbid"), fire("a.b@2", "Forbid"), fire("a.c@1", due_at=later(5))])
    first = Asker(store).claim()
    rows = [row(store, key) for key in keys(first)]
    again = world.reopen(store)
    assert [row(again, key) for key in keys(first)] == rows
    assert again.renew(first) == [None, None, None]
    assert keys(Asker(again).claim()) == keys(first)
    again.put([fire("a.z@1")])
    assert Asker(again, "n2").claim_one().fence == first[-1].fence + 1


def a_new_epoch_raises_the_fence_and_waits_before_it_grants(store: Store, world: World) -> None:
    store.put([fire("a.b@1"), fire("a.c@1")])
    epoch = store.look("a").epoch
    old = Asker(store).claim_one(limit=1)
    again = world.new_epoch(store)
    watermarks = again.look("a")
    assert watermarks.epoch != epoch
    assert watermarks.quarantined_until is not None
    assert 0 < (watermarks.quarantined_until - watermarks.now).total_seconds() <= TTL_S
    node = Asker(again, "n2")
    assert node.claim() == []
    assert 0 < node.ask().next_in_s <= TTL_S
    world.pass_time(TTL_S + 1)
    assert again.look("a").quarantined_until is None
    claims = node.claim()
    assert dispositions(claims) == {"a.b@1": node_lost("n1"), "a.c@1": None}
    assert all(old.fence < claim.fence < FENCE_MAX for claim in claims)
    assert finish(again, old) is None


def a_new_epoch_without_known_claims_waits_before_it_grants(store: Store, world: World) -> None:
    """The store may have lost its very first claim, and with it the lifetime of claims."""
    store.put([fire("a.b@1")])
    again = world.new_epoch(store)
    again.look("a")
    node = Asker(again, "n2")
    assert node.claim() == []
    world.pass_time(ORPHANS_TTL_S + 1)
    assert keys(node.claim()) == ["a.b@1"]


def a_new_epoch_waits_for_the_longest_possible_claim(store: Store, world: World) -> None:
    """The store may have lost the first claim of a fire that it now has as pending."""
    policy = Policy(concurrency="Allow", claim_s=3 * TTL_S)
    store.put([fire("a.b@1"), fire("a.c@1", policy=policy), fire("a.d@1", origin="push", policy=policy)])
    assert finish(store, Asker(store).claim_one(limit=1), DONE) == DONE
    again = world.new_epoch(store)
    again.look("a")
    node = Asker(again, "n2")
    world.pass_time(2 * TTL_S)
    assert node.claim() == []
    world.pass_time(TTL_S + 1)
    assert keys(node.claim()) == ["a.c@1", "a.d@1"]


def a_new_epoch_keeps_the_claims_that_it_remembers(store: Store, world: World) -> None:
    store.put([fire("a.b@1"), fire("a.c@1")])
    first, second = Asker(store).claim()
    again = world.new_epoch(store)
    assert renew(again, first) is None
    assert finish(again, second, DONE) == DONE
    world.pass_time(TTL_S * 0.7)
    assert renew(again, first) is None
    assert finish(again, first, AGAIN) == AGAIN


def a_hook_runs_even_if_its_node_is_full(store: Store, world: World) -> None:
    store.put([fire("a.b@1"), fire("a.b@1/on_late", origin="hook", payload='{"hook": "on_late"}')])
    assert keys(Asker(store).claim(limit=0)) == ["a.b@1/on_late"]
    store.put([fire(f"a.c@{n}/on_failure", origin="hook") for n in range(3)])
    assert len(Asker(store, "n2").claim(limit=0, hooks=2)) == 2
