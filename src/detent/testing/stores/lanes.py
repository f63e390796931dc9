"""Checks of a store: lanes, late instants, pauses and deadlines.

If a check uses several lane widths in one store, the name of each job includes its width.
"""

from __future__ import annotations

from datetime import timedelta

from detent.model import Claim, Concurrency, Outcome, Policy
from detent.rules.outcomes import NEWER_INSTANT, lane_awaited, lane_taken, paused, replaced_by
from detent.stores.base import PAUSE, Store
from detent.testing.stores.fixtures import (
    AGAIN,
    DONE,
    TTL_S,
    WIDTHS,
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

GRACE = Policy(concurrency="Forbid", claim_s=TTL_S, grace_s=20.0)


def _fill(store: Store, concurrency: Concurrency, width: int) -> list[Claim]:
    """Fill the lane of job a.w<width> with the fires 0, 1, …"""
    store.put([fire(f"a.w{width}@{n}", concurrency, width, due_at=later(n)) for n in range(width)])
    claims = Asker(store, f"filler-{width}").claim()
    assert [claim.disposition for claim in claims] == [None] * width
    return claims


def _add(store: Store, concurrency: Concurrency, width: int, *numbers: int) -> None:
    store.put([fire(f"a.w{width}@{n}", concurrency, width, due_at=later(n)) for n in numbers])


def forbid_skips_a_fire_whose_lane_is_full_and_names_the_holder(store: Store, world: World) -> None:
    for width in WIDTHS:
        holders = _fill(store, "Forbid", width)
        _add(store, "Forbid", width, 8, 9)
        claims = Asker(store, f"n{width}").claim()
        assert keys(claims) == [f"a.w{width}@8", f"a.w{width}@9"]
        expected = [lane_taken(key) for key in keys(holders)]
        assert all(claim.disposition in expected and claim.attempt == 0 for claim in claims)
        assert Asker(store, f"other-{width}").claim() == []


def forbid_runs_again_when_the_lane_is_free(store: Store, world: World) -> None:
    for width in WIDTHS:
        holders = _fill(store, "Forbid", width)
        finish(store, holders[-1])
        _add(store, "Forbid", width, 8, 9)
        first, second = Asker(store, f"n{width}").claim()
        assert first.disposition is None
        assert second.disposition is not None
        assert renew(store, first) is None


def queue_lets_one_fire_wait_and_skips_the_others(store: Store, world: World) -> None:
    for width in WIDTHS:
        holders = _fill(store, "Queue", width)
        _add(store, "Queue", width, 7, 8, 9)
        node, waiter = Asker(store, f"n{width}"), f"a.w{width}@7"
        why = lane_awaited(waiter)
        assert dispositions(node.claim()) == {f"a.w{width}@8": why, f"a.w{width}@9": why}
        assert node.claim() == []
        finish(store, holders[0])
        assert dispositions(node.claim()) == {waiter: None}


def a_waiting_fire_is_never_skipped_for_being_late(store: Store, world: World) -> None:
    planner = Planner(store, Policy(concurrency="Queue", claim_s=400.0), beat_s=100)
    planner.advance(ahead_s=200)
    world.pass_time(100)
    holder = Asker(store).claim_one(ttl_s=0.0)
    world.pass_time(100)
    node = Asker(store, "n2")
    assert node.claim() == []
    world.pass_time(150)
    planner.advance(ahead_s=5)
    assert dispositions(node.claim()) == {planner.key(3): lane_awaited(planner.key(2))}
    finish(store, holder)
    assert dispositions(node.claim()) == {planner.key(2): None}


def a_replacement_waits_until_the_holder_has_ended(store: Store, world: World) -> None:
    for width in WIDTHS:
        oldest, *others = _fill(store, "Replace", width)
        _add(store, "Replace", width, 9)
        node, why = Asker(store, f"n{width}"), replaced_by(f"a.w{width}@9")
        assert node.claim() == []
        assert store.renew([oldest, *others]) == [why] + [None] * (width - 1)
        assert node.claim() == []
        assert row(store, oldest.fire.key).stop == why
        assert finish(store, oldest, AGAIN) == AGAIN._replace(outcome=why, again_in_s=None)
        assert dispositions(node.claim()) == {f"a.w{width}@9": None}


def a_holder_that_is_to_be_replaced_and_dies_is_settled_as_replaced(store: Store, world: World) -> None:
    _fill(store, "Replace", 1)
    _add(store, "Replace", 1, 9)
    node = Asker(store)
    assert node.claim() == []
    world.pass_time(TTL_S + 1)
    assert dispositions(node.claim()) == {"a.w1@0": replaced_by("a.w1@9"), "a.w1@9": None}


def a_newer_replacement_takes_the_place_of_one_that_waits(store: Store, world: World) -> None:
    for width in WIDTHS:
        _fill(store, "Replace", width)
        node, newest = Asker(store, f"n{width}"), [f"a.w{width}@{n}" for n in range(9, 9 - width, -1)]
        _add(store, "Replace", width, 5)
        assert node.claim() == []
        _add(store, "Replace", width, *range(10 - width, 10))
        assert dispositions(node.claim()) == {f"a.w{width}@5": replaced_by(newest[0])}


def an_older_fire_never_replaces_a_newer(store: Store, world: World) -> None:
    for width in WIDTHS:
        store.put([fire(f"a.w{width}@old", "Replace", width)])
        node = Asker(store, f"n{width}")
        finish(store, node.claim_one(), AGAIN)
        _add(store, "Replace", width, *range(1, width + 1))
        newer = node.claim()
        world.pass_time(TTL_S * 0.6)
        assert dispositions(node.claim()) == {f"a.w{width}@old": replaced_by(f"a.w{width}@{width}")}
        assert store.renew(newer) == [None] * width
        for claim in newer:
            finish(store, claim)


def allow_has_no_lane(store: Store, world: World) -> None:
    store.put([fire(f"a.b@{n}", "Allow") for n in range(5)])
    claims = Asker(store).claim()
    assert [claim.disposition for claim in claims] == [None] * 5


def a_lane_belongs_to_the_fire_and_not_to_the_job(store: Store, world: World) -> None:
    store.put([fire("a.b@1", "Forbid", lane="a.x"), fire("a.c@1", "Forbid", lane="a.x")])
    store.put([fire("a.b@2", "Forbid", lane="a.y")])
    claims = dispositions(Asker(store).claim())
    assert claims == {"a.b@1": None, "a.b@2": None, "a.c@1": lane_taken("a.b@1")}


def a_retry_that_finds_its_lane_full_under_forbid_is_contended(store: Store, world: World) -> None:
    for width in WIDTHS:
        first, *others = _fill(store, "Forbid", width)
        finish(store, first, AGAIN)
        _add(store, "Forbid", width, 9)
        node = Asker(store, f"n{width}")
        others.append(node.claim_one())
        world.pass_time(TTL_S * 0.6)
        retry = node.claim_one()
        assert retry.disposition is not None
        assert retry.disposition.kind == "failed"
        assert retry.disposition.cause == "lane" and retry.disposition.by.startswith("a.w")
        assert retry.attempt == 1
        over = DONE._replace(outcome=retry.disposition)
        assert finish(store, retry, over) == over
        assert [one.number for one in row(store, retry.fire.key).attempts] == [1]
        assert [finish(store, claim) for claim in others] == [DONE] * width


def a_retry_frees_its_lane_during_the_backoff_and_takes_it_again(store: Store, world: World) -> None:
    (first,) = _fill(store, "Forbid", 1)
    finish(store, first, AGAIN)
    _add(store, "Forbid", 1, 9)
    finish(store, Asker(store).claim_one())
    world.pass_time(TTL_S * 0.6)
    again = Asker(store, "n2").claim_one()
    assert (again.fire.key, again.attempt, again.disposition) == ("a.w1@0", 2, None)


def a_retry_waits_for_its_lane_under_queue(store: Store, world: World) -> None:
    (first,) = _fill(store, "Queue", 1)
    finish(store, first, AGAIN)
    _add(store, "Queue", 1, 8)
    second = Asker(store).claim_one()
    world.pass_time(TTL_S * 0.6)
    node = Asker(store, "n2")
    assert node.claim() == []
    finish(store, second)
    assert dispositions(node.claim()) == {"a.w1@0": None}


def caught_up_fires_run_in_order_one_after_the_other(store: Store, world: World) -> None:
    for concurrency in ("Forbid", "Queue", "Replace"):
        name = concurrency.lower()
        again = world.opener()
        planner = Planner(again, Policy(concurrency=concurrency, catch_up="all", claim_s=TTL_S), beat_s=100)
        world.pass_time(380)
        planner.advance(ahead_s=5)
        node = Asker(again, name)
        for number in (1, 2, 3):
            claim = node.claim_one()
            assert (claim.fire.key, claim.disposition) == (planner.key(number), None), concurrency
            assert node.claim() == [], f"{concurrency}: the fires behind it wait"
            finish(again, claim)
        again.close()


def only_the_newest_of_late_instants_runs_under_latest(store: Store, world: World) -> None:
    planner = Planner(store, Policy(catch_up="latest"), beat_s=100)
    store.advance("a", [planner.covering(1, 2)])
    world.pass_time(490)
    planner.advance(ahead_s=5)
    why = NEWER_INSTANT
    claims = dispositions(Asker(store).claim())
    assert (claims[planner.key(1)], claims[planner.key(2)], claims[planner.key(4)]) == (why, why, None)
    assert claims[planner.key(3)] is not None
    assert len(claims) == 4


def a_late_instant_is_held_under_latest_until_its_job_is_planned(store: Store, world: World) -> None:
    planner = Planner(store, Policy(catch_up="latest"), beat_s=100)
    store.advance("a", [planner.covering(1, 1)])
    world.pass_time(190)
    node = Asker(store)
    assert node.claim() == []
    planner.advance(ahead_s=5)
    assert dispositions(node.claim()) == {planner.key(1): None}


def a_late_instant_needs_no_plan_under_all(store: Store, world: World) -> None:
    planner = Planner(store, Policy(catch_up="all"), beat_s=100)
    store.advance("a", [planner.covering(1, 1)])
    world.pass_time(190)
    assert dispositions(Asker(store).claim()) == {planner.key(1): None}


def a_first_attempt_after_its_deadline_is_missed(store: Store, world: World) -> None:
    planner = Planner(store, Policy(start_deadline_s=5.0, catch_up="all"))
    planner.advance(ahead_s=10)
    world.pass_time(16)
    claim = Asker(store).claim_one()
    assert claim.disposition is not None
    assert claim.disposition.kind == "missed"
    assert claim.attempt == 0


def a_deadline_does_not_end_a_retry(store: Store, world: World) -> None:
    planner = Planner(store, Policy(start_deadline_s=5.0))
    planner.advance(ahead_s=10)
    world.pass_time(11)
    node = Asker(store)
    finish(store, node.claim_one(), AGAIN)
    world.pass_time(TTL_S)
    again = node.claim_one()
    assert (again.attempt, again.disposition) == (2, None)


def a_deadline_does_not_end_a_retry_that_waits_or_has_a_late_hook(store: Store, world: World) -> None:
    """Stores treat both differently from a fire that can simply run."""
    start_by = store.set_jobs("a", -1, {}).now + timedelta(seconds=5)
    hooked = Policy(claim_s=TTL_S, hooks=("on_late",), late_after_s=3600.0)
    store.put(
        [fire("a.queued@1", "Queue", start_by=start_by), fire("a.late@1", policy=hooked, start_by=start_by)]
    )
    node = Asker(store)
    for claim in node.claim():
        finish(store, claim, AGAIN)
    store.put([fire("a.queued@2", "Queue")])
    holder = node.claim_one()
    world.pass_time(TTL_S / 2 + 1)
    assert dispositions(node.claim()) == {"a.late@1": None}
    finish(store, holder)
    again = node.claim_one()
    assert (again.fire.key, again.attempt, again.disposition) == ("a.queued@1", 2, None)


def a_paused_job_skips_its_instants_until_it_is_resumed(store: Store, world: World) -> None:
    planner = Planner(store)
    planner.advance(ahead_s=30)
    store.note("a", PAUSE + "a.b", "holidays")
    store.put([fire("a.b@by-hand", origin="manual")])
    world.pass_time(10)
    node = Asker(store)
    assert dispositions(node.claim()) == {
        "a.b@by-hand": None,
        planner.key(1): paused("holidays"),
    }
    store.note("a", PAUSE + "a.b", "")
    world.pass_time(10)
    assert dispositions(node.claim()) == {planner.key(2): None}


def a_pause_ends_with_its_time(store: Store, world: World) -> None:
    planner = Planner(store)
    planner.advance(ahead_s=30)
    store.note("a", PAUSE + "a.b", "a while", ttl_s=15.0)
    store.note("a", PAUSE + "a.c", "another job")
    node = Asker(store)
    for expected in (paused("a while"), None):
        world.pass_time(10)
        assert node.claim_one().disposition == expected


def a_fire_that_is_due_during_the_grace_waits_for_its_lane(store: Store, world: World) -> None:
    store.put([fire("a.b@1", lane="a.b", policy=GRACE)])
    node = Asker(store)
    finish(store, node.claim_one())
    store.put([fire("a.b@2", lane="a.b", policy=GRACE)])
    assert node.claim() == []
    assert 0 < node.ask().next_in_s <= GRACE.grace_s
    world.pass_time(GRACE.grace_s + 1)
    assert dispositions(node.claim()) == {"a.b@2": None}


def grace_takes_one_slot_of_a_wider_lane(store: Store, world: World) -> None:
    policy = GRACE._replace(max_running=3)
    store.put([fire(f"a.b@{n}", lane="a.b", policy=policy) for n in range(3)])
    node = Asker(store)
    finish(store, node.claim()[0])
    store.put([fire("a.b@8", lane="a.b", policy=policy)])
    assert node.claim() == []
    world.pass_time(GRACE.grace_s + 1)
    assert dispositions(node.claim()) == {"a.b@8": None}


def a_disposition_leaves_no_grace(store: Store, world: World) -> None:
    store.put([fire("a.b@1", lane="a.b", policy=GRACE), fire("a.b@2", lane="a.b", policy=GRACE)])
    run, skip = Asker(store).claim()
    assert skip.disposition is not None
    finish(store, skip, DONE._replace(outcome=skip.disposition))
    world.pass_time(TTL_S + 1)
    node = Asker(store, "n2")
    lost = node.claim_one()
    assert lost.fire == run.fire
    finish(store, lost, DONE._replace(outcome=Outcome("lost")))
    store.put([fire("a.b@3", lane="a.b", policy=GRACE)])
    assert dispositions(node.claim()) == {"a.b@3": None}


def a_nominal_instant_does_not_move_with_a_step_of_the_wall_clock(store: Store, world: World) -> None:
    planner = Planner(store, Policy(catch_up="all"), beat_s=100)
    planner.advance(ahead_s=110)
    node = Asker(store)
    world.step_wall(-3600)
    assert node.claim() == []
    world.pass_time(200)
    assert node.claim() == []
    world.step_wall(3600)
    assert keys(node.claim()) == [planner.key(1)]
    assert row(store, planner.key(1)).run_at == planner.start + timedelta(seconds=100)
