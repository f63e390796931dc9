"""Checks of a store: keys, watermarks, plans and changes of jobs."""

from __future__ import annotations

from datetime import timedelta

from detent.model import Policy, Query, Verdict
from detent.rules.outcomes import JOB_REMOVED
from detent.rules.planning import hook_fire
from detent.stores.base import RETURN_S, Store
from detent.testing.stores.fixtures import (
    BEAT_S,
    DONE,
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


def a_key_is_recorded_once(store: Store, world: World) -> None:
    assert store.put([fire("a.b@1"), fire("a.c@1"), fire("a.b@1")]) == [True, True, False]
    assert store.put([fire("a.b@1")]) == [False]
    assert sorted(found(store)) == ["a.b@1", "a.c@1"]


def a_put_that_arrives_late_changes_nothing(store: Store, world: World) -> None:
    store.put([fire("a.b@1", payload="first")])
    finish(store, Asker(store).claim_one())
    before = row(store, "a.b@1")
    assert store.put([fire("a.b@1", payload="late")], delay_s=5) == [False]
    world.pass_time(6)
    assert row(store, "a.b@1") == before
    assert Asker(store, "n2").claim() == []


def a_put_with_a_delay_is_due_after_it(store: Store, world: World) -> None:
    store.put([fire("a.b@1")], delay_s=10)
    node = Asker(store)
    world.pass_time(9)
    assert node.claim() == []
    world.pass_time(1)
    assert keys(node.claim()) == ["a.b@1"]


def a_fire_keeps_every_field_it_was_put_with(store: Store, world: World) -> None:
    policy = Policy("Queue", 2, 1.5, catch_up="all", hooks=("on_failure", "on_failure.1"), claim_s=7.25)
    whole = fire("a.b@1", policy=policy, lane="a.lane", queue="db", revision="r9", payload='{"é": 1}')
    store.put([whole._replace(run_id="some-id", start_by=whole.due_at + timedelta(days=1000))])
    stored = row(store, "a.b@1").fire
    assert stored == whole._replace(run_id="some-id", start_by=whole.due_at + timedelta(days=1000))
    assert Asker(store).claim_one(queues=("db",)).fire == stored


def a_plan_must_continue_at_the_watermark(store: Store, world: World) -> None:
    planner = Planner(store)
    assert store.advance("a", [planner.covering(3, 6)]).by_job["a.b"].at == planner.at(0)
    assert store.advance("a", [planner.covering(1, 4)]).by_job["a.b"].at == planner.at(4)
    assert len(found(store)) == 4
    assert store.advance("a", [planner.covering(3, 6)]).by_job["a.b"].at == planner.at(6)
    assert found(store) == [planner.key(n) for n in (6, 5, 4, 3, 2, 1)]


def plans_of_one_call_continue_each_other(store: Store, world: World) -> None:
    planner = Planner(store)
    watermarks = store.advance("a", [planner.covering(1, 2), planner.covering(3, 4), planner.covering(6, 7)])
    assert watermarks.by_job["a.b"].at == planner.at(4)
    assert len(found(store)) == 4


def a_repeated_plan_changes_nothing(store: Store, world: World) -> None:
    planner = Planner(store)
    plan = planner.covering(1, 3)
    first = store.advance("a", [plan])
    rows = store.find(Query())
    assert store.advance("a", [plan]) == first
    assert store.find(Query()) == rows


def a_late_plan_moves_no_watermark_back(store: Store, world: World) -> None:
    planner = Planner(store)
    store.advance("a", [planner.covering(1, 6)])
    assert store.advance("a", [planner.covering(1, 3)]).by_job["a.b"].at == planner.at(6)
    assert len(found(store)) == 6


def a_plan_of_another_revision_is_refused(store: Store, world: World) -> None:
    planner = Planner(store)
    watermarks = store.advance("a", [planner.covering(1, 3)._replace(revision="r0")])
    assert watermarks.by_job["a.b"].at == planner.at(0)
    assert found(store) == []


def advance_returns_the_watermarks_of_its_jobs(store: Store, world: World) -> None:
    planner = Planner(store)
    store.set_jobs("a", 1, {"a.b": "r1", "a.c": "r1"})
    assert sorted(store.advance("a", [planner.covering(1, 1)]).by_job) == ["a.b"]
    assert sorted(store.look("a").by_job) == ["a.b", "a.c"]


def a_plan_of_a_job_that_is_not_in_force_is_refused(store: Store, world: World) -> None:
    planner = Planner(store)
    stranger = planner.covering(1, 3)._replace(job="a.x")
    assert "a.x" not in store.advance("a", [stranger]).by_job
    assert found(store) == []


def a_span_that_would_cross_the_watermark_is_refused(store: Store, world: World) -> None:
    planner = Planner(store, Policy(catch_up="skip"))
    world.pass_time(200)
    span = planner.plan(ahead_s=0)
    store.advance("a", [planner.covering(1, 3)])
    assert store.advance("a", [span]).by_job["a.b"].at == planner.at(3)
    assert len(found(store)) == 3
    planner.advance(ahead_s=0)
    spans = [one.fire for one in store.find(Query()) if one.fire.instants > 1]
    assert [(one.first_at, one.instants) for one in spans] == [(planner.at(4), 10)]


def a_span_is_one_row_that_is_settled_as_missed(store: Store, world: World) -> None:
    planner = Planner(store, Policy(catch_up="skip"))
    world.pass_time(90)
    planner.advance(ahead_s=0)
    claims = Asker(store).claim()
    span = next(claim for claim in claims if claim.fire.instants > 1)
    assert span.fire.first_at == planner.at(1)
    assert span.fire.due_at == planner.at(2)
    assert span.disposition is not None
    assert span.disposition.kind == "missed"


def an_old_key_never_comes_back(store: Store, world: World) -> None:
    planner = Planner(store)
    plan = planner.covering(1, 1)
    store.advance("a", [plan])
    world.pass_time(BEAT_S + 1)
    finish(store, Asker(store).claim_one())
    world.pass_time(TTL_S)
    assert store.prune("a", TTL_S / 2, keep=1000) == 1
    store.advance("a", [plan, plan._replace(until=plan.until + timedelta(seconds=1))])
    assert found(store) == []


def a_cancelled_instant_never_comes_back(store: Store, world: World) -> None:
    planner = _changed_after_pruning(store)
    assert planner.key(2) not in found(store, state="pending")


def an_instant_before_one_that_was_cancelled_is_not_lost(store: Store, world: World) -> None:
    planner = _changed_after_pruning(store)
    assert planner.key(1) in found(store, state="pending")
    assert planner.key(3) in found(store, state="pending")


def _changed_after_pruning(store: Store) -> Planner:
    """The second of three planned instants was cancelled and perhaps pruned; then the job changed."""
    planner = Planner(store)
    planner.advance(ahead_s=30)
    store.cancel(planner.key(2))
    store.prune("a", 0, keep=0)
    store.set_jobs("a", 1, {"a.b": "r2"})
    planner.job = planner.job._replace(revision="r2")
    planner.advance(ahead_s=30)
    return planner


def a_new_job_starts_now(store: Store, world: World) -> None:
    world.pass_time(5)
    watermarks = store.set_jobs("a", 0, {"a.b": "r1", "a.c": "r1"})
    assert {watermark.at for watermark in watermarks.by_job.values()} == {watermarks.now}
    assert sorted(watermarks.by_job) == ["a.b", "a.c"]


def look_returns_the_jobs_in_force_and_changes_nothing(store: Store, world: World) -> None:
    first = store.look("a")
    assert (dict(first.by_job), first.generation, first.quarantined_until) == ({}, 0, None)
    adopted = store.set_jobs("a", 0, {"a.b": "r1"})
    assert store.look("a") == store.look("a") == adopted
    assert store.look("z").by_job == {}


def setting_the_same_jobs_again_changes_nothing(store: Store, world: World) -> None:
    first = store.set_jobs("a", 0, {"a.b": "r1"})
    assert first.generation == 1
    assert store.set_jobs("a", 0, {"a.b": "r1"}) == first
    assert store.set_jobs("a", 1, {"a.b": "r1"}) == first


def a_late_request_to_set_jobs_is_ignored(store: Store, world: World) -> None:
    store.set_jobs("a", 0, {"a.b": "r1"})
    second = store.set_jobs("a", 1, {"a.b": "r2"})
    assert store.set_jobs("a", 0, {"a.b": "r1"}) == second
    assert store.set_jobs("a", 1, {}) == second
    assert second.generation == 2
    assert second.by_job["a.b"].revision == "r2"


def setting_jobs_leaves_unchanged_jobs_alone(store: Store, world: World) -> None:
    planner = Planner(store)
    store.advance("a", [planner.covering(1, 6)])
    before = store.find(Query())
    store.set_jobs("a", 1, {"a.b": "r1", "a.c": "r1"})
    watermarks = store.set_jobs("a", 2, {"a.b": "r1", "a.c": "r2"})
    assert watermarks.by_job["a.b"].at == planner.at(6)
    assert store.find(Query()) == before


def a_change_withdraws_fires_that_were_not_attempted(store: Store, world: World) -> None:
    planner = Planner(store)
    planner.advance(ahead_s=30)
    store.put([fire("a.b@pushed")], delay_s=99)
    world.pass_time(15)
    watermarks = store.set_jobs("a", 1, {"a.b": "r2"})
    assert watermarks.by_job["a.b"].at == planner.at(1) - timedelta(seconds=1)
    assert found(store) == ["a.b@pushed"]
    assert store.advance("a", [planner.covering(1, 9)]).by_job == watermarks.by_job


def a_change_withdraws_fires_that_are_not_yet_due(store: Store, world: World) -> None:
    planner = Planner(store)
    planner.advance(ahead_s=30)
    world.pass_time(15)
    finish(store, Asker(store).claim_one())
    watermarks = store.set_jobs("a", 1, {"a.b": "r2"})
    assert watermarks.by_job["a.b"].at == watermarks.now
    assert found(store) == [planner.key(1)]


def a_fire_that_came_due_before_a_change_runs_under_the_new_policy(store: Store, world: World) -> None:
    """The old definition planned it, and it was not attempted.  Work and policy must be of one revision."""
    planner = Planner(store, Policy("Allow", timeout_s=7.0))
    planner.advance(ahead_s=30)
    world.pass_time(25)
    store.set_jobs("a", 1, {"a.b": "r2"})
    planner.job = planner.job._replace(revision="r2", policy=Policy("Forbid", timeout_s=9.0))
    planner.advance(ahead_s=30)
    claims = Asker(store).claim()
    assert {(claim.fire.revision, claim.fire.policy.timeout_s) for claim in claims} == {("r2", 9.0)}
    assert len([claim for claim in claims if claim.disposition is None]) == 1, "one in its lane"


def a_change_withdraws_a_span_that_is_not_settled(store: Store, world: World) -> None:
    planner = Planner(store, Policy(catch_up="skip"))
    world.pass_time(90)
    planner.advance(ahead_s=0)
    watermarks = store.set_jobs("a", 1, {"a.b": "r2"})
    assert watermarks.by_job["a.b"].at == planner.at(1) - timedelta(seconds=1)
    assert found(store) == []


def a_change_withdraws_the_late_hooks_of_withdrawn_fires(store: Store, world: World) -> None:
    planner = Planner(store, Policy(hooks=("on_late",), late_after_s=5.0))
    planner.advance(ahead_s=20)
    assert len(found(store)) == 4
    world.pass_time(12)
    store.set_jobs("a", 1, {"a.b": "r2"})
    assert found(store) == []


def a_change_keeps_the_hooks_of_fires_that_have_ended(store: Store, world: World) -> None:
    planner = Planner(store)
    planner.advance(ahead_s=10)
    world.pass_time(11)
    claim = Asker(store).claim_one()
    hook = hook_fire(claim.fire, "on_failure", claim.fire.due_at, {})
    finish(store, claim, OVER, follow=(hook,))
    world.step_wall(-3600)
    store.set_jobs("a", 1, {"a.b": "r2"})
    assert hook.key in found(store)


def a_change_after_the_clock_was_set_back_loses_no_instant(store: Store, world: World) -> None:
    """Instants behind a claimed one are not withdrawn, because they would not be planned again."""
    planner, node = Planner(store, Policy(catch_up="all"), beat_s=30), Asker(store)
    planner.advance(ahead_s=120)
    world.pass_time(31)
    holder = node.claim_one()
    for _ in range(10):
        world.pass_time(9.4)
        assert renew(store, holder) is None
    assert keys(node.claim()) == [planner.key(3), planner.key(4)], "the second is held for its lane"
    world.step_wall(-100)
    store.set_jobs("a", 1, {"a.b": "r2"})
    assert planner.key(2) in found(store)


def a_change_does_not_plan_a_cancelled_instant_again(store: Store, world: World) -> None:
    """Otherwise a span of the new plan would count it a second time."""
    planner = Planner(store)
    planner.advance(ahead_s=30)
    assert store.cancel(planner.key(2), "by hand")
    watermarks = store.set_jobs("a", 1, {"a.b": "r2"})
    assert watermarks.by_job["a.b"].at == planner.at(2)
    assert sorted(found(store)) == [planner.key(1), planner.key(2)], "earlier instants are not withdrawn"


def a_changed_job_continues_where_the_old_one_was_planned(store: Store, world: World) -> None:
    planner = Planner(store)
    planner.advance(ahead_s=30)
    store.set_jobs("a", 1, {"a.b": "r2"})
    planner.job = planner.job._replace(revision="r2")
    planner.advance(ahead_s=30)
    assert {one.fire.revision for one in store.find(Query())} == {"r2"}
    assert len(found(store)) == 3


def a_job_that_changed_during_an_outage_misses_no_instant(store: Store, world: World) -> None:
    planner = Planner(store)
    world.pass_time(25)
    watermarks = store.set_jobs("a", 1, {"a.b": "r2"})
    assert watermarks.by_job["a.b"].at == planner.at(0)
    assert watermarks.by_job["a.b"].revision == "r2"


def a_change_leaves_a_fire_that_was_attempted(store: Store, world: World) -> None:
    planner = Planner(store)
    planner.advance(ahead_s=10)
    world.pass_time(10)
    claim = Asker(store).claim_one()
    store.set_jobs("a", 1, {"a.b": "r2"})
    assert finish(store, claim, DONE._replace(again_in_s=60.0)) == DONE._replace(again_in_s=60.0)
    store.set_jobs("a", 2, {"a.b": "r3"})
    assert found(store) == [planner.key(1)]


def a_removed_job_ends_its_fires(store: Store, world: World) -> None:
    planner = Planner(store)
    planner.advance(ahead_s=30)
    world.pass_time(15)
    assert store.set_jobs("a", 1, {}).by_job == {}
    removed, node = JOB_REMOVED, Asker(store)
    claims = node.claim()
    assert dispositions(claims) == {planner.key(1): removed}
    finish(store, claims[0], Verdict(removed))
    world.pass_time(15)
    assert dispositions(node.claim()) == {planner.key(2): removed, planner.key(3): removed}
    assert len(found(store)) == 3, "each planned instant keeps a row with the reason why it did not run"


def a_removed_job_that_comes_back_soon_continues_its_plan(store: Store, world: World) -> None:
    planner = Planner(store)
    store.advance("a", [planner.covering(1, 1)])
    world.pass_time(BEAT_S + 1)
    finish(store, Asker(store).claim_one())
    store.set_jobs("a", 1, {})
    world.pass_time(45)
    watermarks = store.set_jobs("a", 2, {"a.b": "r1"})
    assert watermarks.by_job["a.b"].at == planner.at(1)


def a_removed_job_that_comes_back_plans_unattempted_fires_again(store: Store, world: World) -> None:
    planner = Planner(store)
    planner.advance(ahead_s=30)
    world.pass_time(15)
    store.set_jobs("a", 1, {})
    watermarks = store.set_jobs("a", 2, {"a.b": "r2"})
    assert watermarks.by_job["a.b"].at == planner.at(1) - timedelta(seconds=1)
    assert found(store) == []


def a_removed_job_that_comes_back_late_starts_now(store: Store, world: World) -> None:
    planner = Planner(store)
    planner.advance(ahead_s=30)
    store.set_jobs("a", 1, {})
    world.pass_time(RETURN_S + 1)
    watermarks = store.set_jobs("a", 2, {"a.b": "r1"})
    assert watermarks.by_job["a.b"].at == watermarks.now
    assert found(store) == [], "the old plan does not run with the new definition"


def a_removed_job_finishes_its_manual_fires_as_usual(store: Store, world: World) -> None:
    Planner(store)
    store.set_jobs("a", 1, {})
    store.put([fire("a.b@1", origin="manual")])
    assert Asker(store).claim_one().disposition is None


def the_jobs_of_apps_are_separate(store: Store, world: World) -> None:
    planner = Planner(store)
    planner.advance()
    watermarks = store.set_jobs("z", 0, {"z.b": "r1"})
    assert sorted(watermarks.by_job) == ["z.b"]
    assert watermarks.generation == 1
    assert store.set_jobs("z", 1, {}).by_job == {}
    assert sorted(store.look("a").by_job) == ["a.b"]
    assert len(found(store, app="a")) == 6


def a_chart_has_the_time_of_the_store(store: Store, world: World) -> None:
    first = store.look("a")
    world.pass_time(10)
    second = store.advance("a", [])
    assert timedelta(seconds=9) < second.now - first.now < timedelta(seconds=30)
    assert second.epoch == first.epoch
