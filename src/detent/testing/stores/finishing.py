"""Checks of a store: verdicts, stops, hooks and history."""

from __future__ import annotations

from datetime import timedelta

from detent.model import Ask, Outcome, Policy, Query, Report, Verdict
from detent.rules.outcomes import lane_taken, node_lost
from detent.stores.base import Store
from detent.testing.stores.fixtures import (
    AGAIN,
    DONE,
    GIVEN_BACK,
    OVER,
    TTL_S,
    Asker,
    Planner,
    World,
    dispositions,
    finish,
    fire,
    found,
    keys,
    renew,
    row,
)

CANCELLED = Outcome("cancelled", "by hand", "stopped")
HOOK = fire("a.b@1/on_failure", origin="hook")
LATE = Policy(hooks=("on_late", "on_late.1"), late_after_s=30.0)


def a_repeated_finish_says_the_same_and_counts_once(store: Store, world: World) -> None:
    store.put([fire("a.b@1")])
    claim = Asker(store).claim_one()
    assert finish(store, claim, DONE, status=0) == DONE
    before = row(store, "a.b@1")
    world.pass_time(5)
    assert finish(store, claim, OVER, status=1) == DONE
    assert row(store, "a.b@1") == before
    assert (before.state, before.outcome, len(before.attempts)) == ("over", DONE.outcome, 1)


def a_finish_repeated_during_the_backoff_says_the_same(store: Store, world: World) -> None:
    store.put([fire("a.b@1")])
    claim = Asker(store).claim_one()
    assert finish(store, claim, AGAIN) == AGAIN
    before = row(store, "a.b@1")
    world.pass_time(5)
    assert finish(store, claim, DONE) == AGAIN
    assert row(store, "a.b@1") == before
    assert before.outcome == AGAIN.outcome


def a_finish_repeated_after_another_claim_is_refused(store: Store, world: World) -> None:
    store.put([fire("a.b@1")])
    node = Asker(store)
    first = node.claim_one()
    finish(store, first, AGAIN)
    world.pass_time(TTL_S * 0.6)
    second = node.claim_one()
    assert finish(store, first, AGAIN, follow=(HOOK,)) is None
    assert renew(store, second) is None
    assert finish(store, second, DONE) == DONE
    assert finish(store, first, AGAIN) is None
    assert found(store) == ["a.b@1"]


def a_finish_after_its_fire_was_forgotten_is_refused(store: Store, world: World) -> None:
    store.put([fire("a.b@1")])
    claim = Asker(store).claim_one()
    finish(store, claim)
    world.pass_time(10)
    assert store.prune("a", 5, keep=1000) == 1
    assert finish(store, claim, AGAIN, follow=(HOOK,)) is None
    assert found(store) == []


def an_expired_claim_that_was_not_claimed_again_may_be_finished(store: Store, world: World) -> None:
    store.put([fire("a.b@1")])
    claim = Asker(store).claim_one()
    world.pass_time(TTL_S + 1)
    assert finish(store, claim, DONE) == DONE
    assert Asker(store, "n2").claim() == []


def the_answers_of_a_batch_are_in_its_order(store: Store, world: World) -> None:
    store.put([fire("a.b@1"), fire("a.c@1"), fire("a.d@1")])
    first, second, third = Asker(store).claim()
    stale = second._replace(fence=second.fence - 99)
    reports = [Report(third, AGAIN), Report(stale, DONE), Report(first, OVER), Report(second, DONE)]
    assert store.finish(reports) == [AGAIN, None, OVER, DONE]
    assert store.finish([]) == []
    assert store.renew([]) == []
    assert store.put([]) == []


def one_call_may_finish_and_claim(store: Store, world: World) -> None:
    """A fire that the report unblocks is granted in the same call.  A repeated call gets the same answers."""
    store.put([fire("a.b@1", "Forbid"), fire("c.b@1")])
    node, foreign = Asker(store), Asker(store, "n2", app="c")
    first, other = node.claim_one(), foreign.claim_one()
    store.put([fire("a.b@2", "Forbid")])
    stale = first._replace(fence=first.fence - 99)
    reports = [Report(other, OVER), Report(stale, OVER), Report(first, DONE, follow=(HOOK,))]
    for _ in range(2):
        verdicts, grants = store.finish_and_claim(reports, Ask("a", "n1", node.number + 1, 9, ttl_s=TTL_S))
        assert verdicts == [OVER, None, DONE]
        assert {claim.fire.key for claim in grants.claims} == {"a.b@2", HOOK.key}
    verdicts, grants = store.finish_and_claim([], Ask("a", "n1", node.number + 2, 9, ttl_s=TTL_S))
    assert (verdicts, grants.claims) == ([], ())
    assert found(store, app="c", state="over") == ["c.b@1"]


def a_retry_is_due_after_its_backoff(store: Store, world: World) -> None:
    store.put([fire("a.b@1")])
    node = Asker(store)
    finish(store, node.claim_one(), AGAIN)
    world.pass_time(TTL_S / 2 - 1)
    assert node.claim() == []
    assert 0 < node.ask().next_in_s <= 1
    world.pass_time(1)
    assert node.claim_one().attempt == 2


def following_fires_are_recorded_once_with_the_end(store: Store, world: World) -> None:
    store.put([fire("a.b@1"), fire("a.c@1")])
    first, second = Asker(store).claim()
    assert finish(store, second, AGAIN, follow=(HOOK,)) == AGAIN
    assert found(store, origins=("hook",)) == []
    for _ in range(2):
        assert finish(store, first, OVER, follow=(HOOK, HOOK)) == OVER
        assert found(store, origins=("hook",)) == [HOOK.key]
    hook = Asker(store, "n2").claim_one()
    assert (hook.fire, hook.disposition) == (HOOK, None)


def a_refused_finish_records_no_following_fires(store: Store, world: World) -> None:
    store.put([fire("a.b@1")])
    old = Asker(store).claim_one()
    world.pass_time(TTL_S + 1)
    new = Asker(store, "n2").claim_one()
    assert finish(store, old, OVER, follow=(HOOK,)) is None
    assert found(store) == ["a.b@1"]
    lost = Verdict(node_lost("n1"))
    assert finish(store, new, lost, follow=(HOOK,)) == lost
    assert HOOK.key in found(store)


def the_cause_of_an_outcome_is_kept_whatever_its_reason_looks_like(store: Store, world: World) -> None:
    outcomes = (
        Outcome("failed", "contended by a.b@1", "no-secret"),
        Outcome("failed", "backend: paused", "work"),
        Outcome("lost", "with n1", "shutdown"),
        Outcome("skipped", "by a.b@1", "paused"),
        Outcome("skipped", "lane: a.b@1 \x1f waits already", "lane", "a.b@1"),
        Outcome("rejected", "", "refused"),
    )
    for number, outcome in enumerate(outcomes):
        store.put([fire(f"a.b@{number}")])
        claim = Asker(store, f"n{number}").claim_one()
        assert finish(store, claim, Verdict(outcome)) == Verdict(outcome)
        kept = row(store, claim.fire.key)
        assert (kept.outcome, [one.outcome for one in kept.attempts]) == (outcome, [outcome])


def the_cause_of_a_cancelled_fire_is_kept(store: Store, world: World) -> None:
    store.put([fire("a.b@1"), fire("a.c@1")])
    (claim,) = Asker(store).claim(limit=1)
    expected = Outcome("cancelled", "paused: by hand", "shutdown")
    for key in ("a.b@1", "a.c@1"):
        assert store.cancel(key, expected.reason, expected.cause)
    assert store.renew([claim]) == [expected]
    assert (row(store, "a.b@1").stop, row(store, "a.c@1").outcome) == (expected, expected)


def a_pending_fire_that_is_cancelled_is_over(store: Store, world: World) -> None:
    store.put([fire("a.b@1")], delay_s=5)
    assert store.cancel("a.b@1", "by hand")
    assert (row(store, "a.b@1").state, row(store, "a.b@1").outcome) == ("over", CANCELLED)
    world.pass_time(6)
    assert Asker(store).claim() == []


def a_claimed_fire_that_is_cancelled_is_told_to_stop(store: Store, world: World) -> None:
    store.put([fire("a.b@1"), fire("a.c@1")])
    first, second = Asker(store).claim()
    assert store.cancel("a.b@1", "by hand")
    assert store.renew([first, second]) == [CANCELLED, None]
    assert (row(store, "a.b@1").state, row(store, "a.b@1").stop) == ("claimed", CANCELLED)


def a_fire_that_was_told_to_stop_is_never_due_again(store: Store, world: World) -> None:
    store.put([fire("a.b@1"), fire("a.c@1")])
    first, second = Asker(store).claim()
    for claim, verdict in ((first, AGAIN), (second, GIVEN_BACK)):
        store.cancel(claim.fire.key, "by hand")
        assert finish(store, claim, verdict) == Verdict(CANCELLED)
        assert finish(store, claim, verdict) == Verdict(CANCELLED)
    world.pass_time(TTL_S)
    assert Asker(store, "n2").claim() == []
    assert {one.state for one in store.find(Query())} == {"over"}


def a_fire_that_ends_before_its_stop_arrives_keeps_its_outcome(store: Store, world: World) -> None:
    store.put([fire("a.b@1")])
    claim = Asker(store).claim_one()
    store.cancel("a.b@1", "by hand")
    assert finish(store, claim, DONE, follow=(HOOK,)) == DONE
    assert row(store, "a.b@1").outcome == DONE.outcome
    assert HOOK.key in found(store)


def a_cancelled_fire_whose_node_dies_is_settled_as_cancelled(store: Store, world: World) -> None:
    store.put([fire("a.b@1")])
    Asker(store).claim_one()
    store.cancel("a.b@1", "by hand")
    world.pass_time(TTL_S + 1)
    assert dispositions(Asker(store, "n2").claim()) == {"a.b@1": CANCELLED}


def a_repeated_or_late_cancel_changes_nothing(store: Store, world: World) -> None:
    store.put([fire("a.b@1"), fire("a.c@1")])
    first, _ = Asker(store).claim()
    assert store.cancel("a.b@1", "by hand")
    assert store.cancel("a.b@1", "by hand")
    finish(store, first, Verdict(CANCELLED))
    before = row(store, "a.b@1")
    assert not store.cancel("a.b@1", "late")
    assert not store.cancel("a.x@1")
    assert row(store, "a.b@1") == before
    assert row(store, "a.c@1").stop is None


def a_late_hook_is_due_when_its_fire_has_not_started_and_then_left_alone(store: Store, world: World) -> None:
    store.put([fire("a.b@by-hand", "Queue")])
    holder = Asker(store).claim_one(ttl_s=100.0)
    planner = Planner(store, LATE._replace(concurrency="Queue"))
    planner.advance(ahead_s=10)
    world.pass_time(40)
    node = Asker(store, "n2")
    hooks = node.claim()
    assert dispositions(hooks) == {planner.key(1) + "/on_late": None, planner.key(1) + "/on_late.1": None}
    finish(store, holder)
    assert keys(node.claim()) == [planner.key(1)]
    assert [finish(store, hook) for hook in hooks] == [DONE, DONE]


def a_late_hook_is_dropped_when_its_fire_starts(store: Store, world: World) -> None:
    planner = Planner(store, LATE)
    planner.advance(ahead_s=20)
    world.pass_time(10)
    assert keys(Asker(store).claim()) == [planner.key(1)]
    hooks = found(store, origins=("hook",))
    assert sorted(hooks) == [planner.key(2) + "/on_late", planner.key(2) + "/on_late.1"]


def a_late_hook_that_is_due_with_its_fire_is_dropped_and_takes_no_slot(store: Store, world: World) -> None:
    planner = Planner(store, LATE)
    planner.advance(ahead_s=10)
    world.pass_time(41)
    store.put([fire("a.c@1")])
    first, second = Asker(store).claim(limit=2)
    assert keys([first, second]) == [planner.key(1), "a.c@1"]
    assert second.fence == first.fence + 1
    assert found(store, origins=("hook",)) == []


def a_late_hook_is_dropped_when_its_fire_is_over(store: Store, world: World) -> None:
    planner = Planner(store, LATE)
    planner.advance(ahead_s=20)
    assert store.cancel(planner.key(1))
    hooks = found(store, origins=("hook",))
    assert sorted(hooks) == [planner.key(2) + "/on_late", planner.key(2) + "/on_late.1"]


def history_keeps_every_attempt(store: Store, world: World) -> None:
    store.put([fire("a.b@1")])
    first = Asker(store).claim_one()
    world.pass_time(3)
    finish(store, first, AGAIN, status=1, took_s=2.5, tail=b"\x00oops\xff")
    world.pass_time(TTL_S)
    second = Asker(store, "n2").claim_one()
    world.pass_time(4)
    finish(store, second, DONE, status=0, took_s=3.5, tail=b"fine", result='{"kept": 3}')
    stored = row(store, "a.b@1")
    attempts = [(a.number, a.node, a.fence, a.outcome, a.status, a.took_s, a.tail) for a in stored.attempts]
    assert attempts == [
        (1, "n1", first.fence, AGAIN.outcome, 1, 2.5, b"\x00oops\xff"),
        (2, "n2", second.fence, DONE.outcome, 0, 3.5, b"fine"),
    ]
    assert [one.result for one in stored.attempts] == ["", '{"kept": 3}']
    lasted = [one.ended_at - one.started_at for one in stored.attempts]
    assert all(timedelta(seconds=2.9) < one < timedelta(seconds=20) for one in lasted)
    assert (stored.over_at, stored.claimed_at) == (stored.attempts[1].ended_at, stored.attempts[1].started_at)


def a_lost_attempt_is_kept_under_the_node_that_lost_it(store: Store, world: World) -> None:
    store.put([fire("a.b@1")])
    old = Asker(store).claim_one()
    world.pass_time(TTL_S + 1)
    new = Asker(store, "n2").claim_one()
    lost = Verdict(node_lost("n1"), again_in_s=0.0)
    finish(store, new, lost)
    attempts = [(one.number, one.node, one.fence, one.outcome) for one in row(store, "a.b@1").attempts]
    assert attempts == [(1, "n1", old.fence, lost.outcome)]
    assert Asker(store, "n3").claim_one().attempt == 2


def a_disposition_is_settled_without_an_attempt(store: Store, world: World) -> None:
    store.put([fire("a.b@1", "Forbid"), fire("a.b@2", "Forbid")])
    _, skip = Asker(store).claim()
    over = Verdict(lane_taken("a.b@1"))
    assert finish(store, skip, over) == over
    stored = row(store, "a.b@2")
    assert (stored.state, stored.outcome, stored.attempt, stored.attempts) == ("over", over.outcome, 0, ())
    assert Asker(store, "n2").claim() == []


def a_returned_disposition_stays_and_counts_no_attempt(store: Store, world: World) -> None:
    store.put([fire("a.b@1", "Forbid"), fire("a.b@2", "Forbid")])
    _, skip = Asker(store).claim()
    finish(store, skip, GIVEN_BACK)
    assert row(store, "a.b@2").attempt == 0
    assert dispositions(Asker(store, "n2").claim()) == {"a.b@2": skip.disposition}


def a_fire_that_ends_before_it_started_has_no_attempt(store: Store, world: World) -> None:
    store.put([fire("a.b@1", "Forbid"), fire("a.b@2", "Forbid")])
    claim = next(one for one in Asker(store).claim() if one.disposition is None)
    over = Verdict(Outcome("skipped", "its lane is held on this host"), counts=False)
    assert finish(store, claim, over) == over
    stored = row(store, claim.fire.key)
    assert (stored.state, stored.outcome, stored.attempt, stored.attempts) == ("over", over.outcome, 0, ())
