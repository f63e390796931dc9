"""Checks of a store: many due fires that cannot run do not block the others.

A store may need several asks to get past them, but not more than `ASKS`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from detent.model import Claim, Fire, Policy, Rate
from detent.rules.outcomes import JOB_REMOVED, paused
from detent.rules.rates import rate_text
from detent.stores.base import PAUSE, RATE, Store
from detent.testing.stores.fixtures import DONE, TTL_S, Asker, Planner, World, finish, fire, keys, row

MANY, ASKS = 150, 8
WAITS = Policy("Queue", claim_s=TTL_S)
HELD = Policy("Forbid", claim_s=TTL_S, catch_up="all")
OUTAGE_S = 60.0


def _messages(count: int, **fields: Any) -> list[Fire]:
    """Messages that wait for one lane, in order."""
    one: dict[str, Any] = {"policy": WAITS, "origin": "push", "lane": "a.single", **fields}
    return [fire(f"a.single@{n:03}", **one) for n in range(count)]


def _claim_all(node: Asker, world: World, **fields: Any) -> list[Claim]:
    """Claim several times, and return all claims."""
    claims: list[Claim] = []
    for _ in range(ASKS):
        claims += node.claim(**fields)
        world.pass_time(0.125)
    return claims


def _fill_the_lane(store: Store, world: World, **fields: Any) -> Claim:
    """Put many messages in one lane; the first of them holds it."""
    store.put(_messages(MANY, **fields))
    (holder,) = _claim_all(Asker(store, "holder"), world)
    assert holder.fire.key == "a.single@000"
    return holder


def a_fire_behind_many_that_wait_for_their_lane_runs(store: Store, world: World) -> None:
    _fill_the_lane(store, world)
    others = [fire(f"a.other@{n}", origin="push") for n in range(3)]
    store.put([*others, fire("a.lane@1", "Forbid"), fire("a.queue@1", "Queue", origin="push")])
    ran = _claim_all(Asker(store), world)
    assert {claim.fire.key: claim.disposition for claim in ran} == dict.fromkeys(
        ["a.lane@1", "a.other@0", "a.other@1", "a.other@2", "a.queue@1"]
    )


def many_waiting_fires_take_their_lane_in_order(store: Store, world: World) -> None:
    holder, node = _fill_the_lane(store, world), Asker(store)
    for number in range(1, 6):
        finish(store, holder)
        (holder,) = _claim_all(node, world)
        assert holder.fire.key == f"a.single@{number:03}"
    store.cancel("a.single@006")
    finish(store, holder)
    assert keys(_claim_all(node, world)) == ["a.single@007"]


def many_waiting_fires_take_their_lane_when_its_claim_expires(store: Store, world: World) -> None:
    _fill_the_lane(store, world)
    world.pass_time(TTL_S)
    claims = _claim_all(Asker(store), world)
    assert [(claim.fire.key, claim.disposition and claim.disposition.kind) for claim in claims] == [
        ("a.single@000", "lost"),
        ("a.single@001", None),
    ]


def many_waiting_fires_take_their_lane_after_its_grace(store: Store, world: World) -> None:
    holder, node = _fill_the_lane(store, world, policy=WAITS._replace(grace_s=20.0)), Asker(store)
    finish(store, holder)
    assert _claim_all(node, world) == []
    world.pass_time(20.0)
    assert keys(_claim_all(node, world)) == ["a.single@001"]


def many_waiting_fires_are_missed_after_their_deadline(store: Store, world: World) -> None:
    now = store.look("a").now
    _fill_the_lane(store, world, start_by=now + timedelta(seconds=TTL_S / 2))
    world.pass_time(TTL_S / 2)
    claims = _claim_all(Asker(store), world)
    assert len(claims) == MANY - 1
    assert {claim.disposition and claim.disposition.kind for claim in claims} == {"missed"}


def fires_that_a_node_cannot_run_leave_their_lane_to_others(store: Store, world: World) -> None:
    """In one lane, the first messages are of a task that the node does not have; the last is on another
    queue."""
    holder = _fill_the_lane(store, world)
    last = fire("a.known@1", policy=WAITS, origin="push", lane="a.single", queue="other")
    store.put([last])
    node = Asker(store)
    assert _claim_all(node, world, queues=("other",)) == []
    finish(store, holder)
    claims = _claim_all(node, world, queues=("default", "other"), without=("a.single",))
    assert keys(claims) == ["a.known@1"]
    finish(store, claims[0])
    assert keys(_claim_all(node, world)) == ["a.single@001"]


def a_fire_behind_many_that_the_node_cannot_run_is_granted(store: Store, world: World) -> None:
    """During a deploy, messages of a new task pile up in front of those that older workers can run."""
    store.put([fire(f"a.new@{n:04}", origin="push") for n in range(MANY)])
    store.put([fire("a.old@1", origin="push")])
    node = Asker(store)
    assert keys(_claim_all(node, world, without=("a.new",))) == ["a.old@1"]
    assert node.ask(without=("a.new",)).next_in_s > 1, "there is nothing to ask for at once"


def _hold_instants(store: Store, world: World, policy: Policy = HELD) -> tuple[Planner, Claim]:
    """Plan many instants of an outage; they are held while the first of them runs."""
    planner = Planner(store, policy, beat_s=1.0)
    store.advance("a", [planner.covering(1, MANY)])
    world.pass_time(MANY + OUTAGE_S + 1)
    (holder,) = _claim_all(Asker(store, "holder"), world)
    assert holder.fire.key == planner.key(1)
    return planner, holder


def a_fire_behind_many_held_instants_runs(store: Store, world: World) -> None:
    planner, holder = _hold_instants(store, world)
    store.put([fire("a.other@1", origin="push"), fire("a.lane@1", "Forbid")])
    node = Asker(store)
    assert {claim.fire.key for claim in _claim_all(node, world)} == {"a.lane@1", "a.other@1"}
    for number in (2, 3, 4):
        finish(store, holder)
        (holder,) = _claim_all(node, world)
        assert holder.fire.key == planner.key(number)


def only_the_newest_instant_of_a_short_outage_runs_under_skip(store: Store, world: World) -> None:
    planner = Planner(store, Policy("Forbid", claim_s=TTL_S, catch_up="skip"))
    planner.advance(ahead_s=60.0)
    world.pass_time(3.5 * planner.beat_s)
    claims = {claim.fire.key: claim.disposition for claim in _claim_all(Asker(store), world)}
    assert claims.pop(planner.key(3)) is None
    assert {key: disposition and disposition.kind for key, disposition in claims.items()} == {
        planner.key(1): "missed",
        planner.key(2): "missed",
    }


def held_instants_are_skipped_when_their_job_is_paused(store: Store, world: World) -> None:
    planner, holder = _hold_instants(store, world)
    store.note("a", f"{PAUSE}a.b", "by hand")
    claims = _claim_all(Asker(store), world)
    assert len(claims) == MANY - 1
    assert {claim.disposition for claim in claims} == {paused("by hand")}
    finish(store, holder)
    assert row(store, planner.key(1)).outcome == DONE.outcome


def held_instants_are_cancelled_with_their_job(store: Store, world: World) -> None:
    _hold_instants(store, world)
    store.set_jobs("a", 1, {"a.c": "r1"})
    claims = _claim_all(Asker(store), world)
    assert len(claims) == MANY - 1
    assert {claim.disposition for claim in claims} == {JOB_REMOVED}


def many_held_instants_are_settled_after_their_job_is_planned(store: Store, world: World) -> None:
    planner = Planner(store, HELD._replace(catch_up="latest"), beat_s=1.0)
    store.advance("a", [planner.covering(1, MANY)])
    world.pass_time(MANY + OUTAGE_S + 1)
    store.put([fire("a.other@1", origin="push")])
    node, last = Asker(store), MANY + int(OUTAGE_S) + 5
    assert keys(_claim_all(node, world)) == ["a.other@1"]
    plan = planner.covering(last, last)._replace(since=planner.at(MANY))
    store.advance("a", [plan._replace(until=plan.until + timedelta(seconds=60))])
    claims = _claim_all(node, world)
    assert [claim.fire.key for claim in claims if claim.disposition is None] == [planner.key(MANY)]
    assert len(claims) == MANY


def delayed_messages_give_their_place_in_the_lane_to_the_next(store: Store, world: World) -> None:
    store.note("a", RATE + "default", rate_text(Rate(1, 600.0, by_key=True)))
    first = _messages(9, policy=WAITS._replace(rate_key="closed"))
    last = fire("a.single@z", policy=WAITS._replace(rate_key="open"), origin="push", lane="a.single")
    store.put([*first, last])
    node = Asker(store)
    (holder,) = _claim_all(node, world)
    assert holder.fire.key == "a.single@000"
    finish(store, holder, DONE)
    assert keys(_claim_all(node, world)) == ["a.single@z"]
