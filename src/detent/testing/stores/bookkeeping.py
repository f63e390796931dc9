"""Checks of a store: finding, pruning, notes and wake-ups."""

from __future__ import annotations

import threading
from collections.abc import Callable

from detent.model import Query
from detent.stores.base import PAUSE, Store
from detent.testing.stores.fixtures import (
    AGAIN,
    TTL_S,
    Asker,
    Planner,
    World,
    finish,
    fire,
    found,
    keys,
    later,
    row,
)

PATIENCE_S = 5.0  # for a wake-up to arrive
SLICE_S = 0.05


def find_filters_by_every_field(store: Store, world: World) -> None:
    store.put([fire("a.b@1"), fire("a.c@1", due_at=later(1)), fire("z.b@1", due_at=later(2))])
    store.put([fire("a.b@2", origin="push", due_at=later(3), queue="db")])
    finish(store, Asker(store).claim_one(limit=1))
    assert found(store, app="z") == ["z.b@1"]
    assert found(store, job="a.b") == ["a.b@2", "a.b@1"]
    assert found(store, key="a.c@1") == ["a.c@1"]
    assert found(store, state="over") == ["a.b@1"]
    assert found(store, state="pending", app="a") == ["a.b@2", "a.c@1"]
    assert found(store, origins=("push", "hook")) == ["a.b@2"]
    assert found(store, queues=("db", "other")) == ["a.b@2"]
    assert found(store, kinds=("succeeded", "failed")) == ["a.b@1"]
    assert found(store, kinds=("failed",)) == []
    assert found(store, since=later(1), until=later(2)) == ["z.b@1", "a.c@1"]
    assert found(store, app="a", job="z.b") == []
    assert found(store, app="nobody") == []


def find_gives_the_latest_due_first_and_no_more_than_asked(store: Store, world: World) -> None:
    store.put([fire(f"a.b@{n}", due_at=later(n % 3)) for n in range(6)])
    whole = ["a.b@5", "a.b@2", "a.b@4", "a.b@1", "a.b@3", "a.b@0"]
    assert found(store) == whole
    assert found(store, limit=2) == whole[:2]


def find_gives_output_only_by_key(store: Store, world: World) -> None:
    store.put([fire("a.b@1")])
    finish(store, Asker(store).claim_one(), tail=b"the end", result="[1]")
    assert [one.tail for one in row(store, "a.b@1").attempts] == [b"the end"]
    (listed,) = store.find(Query(job="a.b"))
    assert [(one.number, one.tail, one.result) for one in listed.attempts] == [(1, b"", "[1]")]


def a_row_says_when_it_is_due(store: Store, world: World) -> None:
    now = store.look("a").now
    store.put([fire("a.b@1")], delay_s=10)
    run_at = row(store, "a.b@1").run_at
    assert run_at is not None
    assert 9 < (run_at - now).total_seconds() < 20
    assert (row(store, "a.b@1").claimed_at, row(store, "a.b@1").over_at) == (None, None)


def _finished(store: Store, *names: str) -> None:
    store.put([fire(name, due_at=later(number)) for number, name in enumerate(names)])
    for claim in Asker(store, f"finisher-{names}", app=names[0][0]).claim(limit=99):
        finish(store, claim)


def prune_forgets_fires_that_ended_long_ago(store: Store, world: World) -> None:
    _finished(store, "a.b@1", "a.c@1")
    _finished(store, "z.b@1")
    world.pass_time(60)
    _finished(store, "a.b@2")
    assert store.prune("a", 30, keep=1000) == 2
    assert sorted(found(store)) == ["a.b@2", "z.b@1"]
    assert store.prune("a", 30, keep=1000) == 0


def prune_keeps_only_the_newest_of_each_job(store: Store, world: World) -> None:
    _finished(store, *[f"a.b@{n}" for n in range(5)], "a.c@1")
    assert store.prune("a", 1000, keep=2) == 3
    assert sorted(found(store)) == ["a.b@3", "a.b@4", "a.c@1"]


def prune_never_forgets_an_open_fire(store: Store, world: World) -> None:
    store.put([fire("a.b@1"), fire("a.c@1"), fire("a.d@1")])
    claims = Asker(store).claim(limit=2)
    finish(store, claims[0], AGAIN._replace(again_in_s=9999.0))
    world.pass_time(500)
    assert store.prune("a", 1, keep=0) == 0
    assert len(found(store)) == 3


def prune_never_forgets_a_fire_after_the_watermark_of_its_job(store: Store, world: World) -> None:
    planner = Planner(store)
    planner.advance(ahead_s=30)
    for number in (1, 2, 3):
        store.cancel(planner.key(number))
    world.pass_time(15)
    store.set_jobs("a", 1, {"a.b": "r2"})
    assert store.prune("a", 0, keep=0) == 1
    assert found(store) == [planner.key(3), planner.key(2)]


def a_pruned_fire_leaves_no_trace_of_its_key(store: Store, world: World) -> None:
    store.put([fire("a.b@1")])
    finish(store, Asker(store).claim_one(), tail=b"old", result="1")
    world.pass_time(10)
    store.prune("a", 5, keep=1000)
    assert store.put([fire("a.b@1")]) == [True]
    fresh = row(store, "a.b@1")
    assert (fresh.state, fresh.attempt, fresh.attempts, fresh.outcome) == ("pending", 0, (), None)
    finish(store, Asker(store, "n2").claim_one())
    assert [(one.tail, one.result) for one in row(store, "a.b@1").attempts] == [(b"", "")]


def the_newest_ask_number_of_an_instance_survives_pruning(store: Store, world: World) -> None:
    node = Asker(store)
    node.claim()
    world.pass_time(3600)
    store.prune("a", 1, keep=1)
    store.put([fire("a.b@1")])
    assert node.claim(repeat=True) == []


def notes_are_found_by_app_and_prefix_in_order(store: Store, world: World) -> None:
    for app, name in (("a", "node/2"), ("a", "node/1"), ("a", "pause/a.b"), ("z", "node/3")):
        store.note(app, name, f"text of {name}")
    assert [(one.name, one.text) for one in store.notes("a", "node/")] == [
        ("node/1", "text of node/1"),
        ("node/2", "text of node/2"),
    ]
    assert [one.name for one in store.notes("a")] == ["node/1", "node/2", "pause/a.b"]
    assert [one.name for one in store.notes("a", "node_")] == []
    assert [one.name for one in store.notes("a", "%")] == []
    assert store.notes("x") == []


def a_note_is_replaced_and_removed(store: Store, world: World) -> None:
    now = store.look("a").now
    store.note("a", "n", "old")
    store.note("a", "n", "new")
    store.note("z", "n", "")
    (note,) = store.notes("a")
    assert (note.text, note.expires_at) == ("new", None)
    assert abs((note.written_at - now).total_seconds()) < 10
    for _ in range(2):
        store.note("a", "n", "")
        assert store.notes("a") == []


def a_note_ends_after_its_ttl(store: Store, world: World) -> None:
    store.note("a", "n", "text", ttl_s=20.0)
    world.pass_time(15)
    (note,) = store.notes("a")
    assert note.expires_at is not None
    assert 15 < (note.expires_at - note.written_at).total_seconds() < 25
    store.note("a", "n", "text", ttl_s=20.0)
    world.pass_time(15)
    assert len(store.notes("a")) == 1
    world.pass_time(6)
    assert store.notes("a") == []


def a_note_does_not_end_with_a_step_of_the_wall_clock(store: Store, world: World) -> None:
    store.note("a", "n", "text", ttl_s=TTL_S)
    world.step_wall(86_400)
    assert len(store.notes("a")) == 1
    world.step_wall(-3 * 86_400)
    world.pass_time(TTL_S + 1)
    assert store.notes("a") == []


def _wakes(store: Store, act: Callable[[int], object]) -> bool:
    """True if `act` wakes a waiter.  It is repeated, because it may come before the wait."""
    answers: list[bool] = []
    waiter = threading.Thread(target=lambda: answers.append(store.wait("a", PATIENCE_S)), daemon=True)
    waiter.start()
    for number in range(round(PATIENCE_S / SLICE_S)):
        act(number)
        waiter.join(SLICE_S)
        if answers:
            break
    waiter.join()
    return answers == [True]


def a_put_wakes_a_waiter(store: Store, world: World) -> None:
    assert _wakes(store, lambda number: store.put([fire(f"a.b@{number}")]))


def a_cancel_wakes_a_waiter(store: Store, world: World) -> None:
    store.put([fire(f"a.b@{number}") for number in range(200)])
    Asker(store).claim(limit=100)
    assert _wakes(store, lambda number: store.cancel(f"a.b@{number}"))


def a_pause_wakes_a_waiter(store: Store, world: World) -> None:
    assert _wakes(store, lambda number: store.note("a", PAUSE + "a.b", f"pause {number}"))


def a_freed_lane_wakes_a_waiter(store: Store, world: World) -> None:
    store.put([fire(f"a.j{number}@1", "Queue") for number in range(200)])
    node = Asker(store)
    holders = node.claim(limit=200)
    store.put([fire(f"a.j{number}@2", "Queue") for number in range(200)])
    assert node.claim() == []
    assert _wakes(store, lambda number: finish(store, holders[number]))


def a_following_fire_wakes_a_waiter(store: Store, world: World) -> None:
    store.put([fire(f"a.b@{number}") for number in range(200)])
    claims = Asker(store).claim(limit=200)
    hooks = [fire(f"{key}/on_success", origin="hook") for key in keys(claims)]
    assert _wakes(store, lambda number: finish(store, claims[number], follow=(hooks[number],)))


def a_wait_without_an_event_ends_after_its_timeout(store: Store, world: World) -> None:
    store.put([fire("a.b@1")])
    assert not all(store.wait("a", SLICE_S) for _ in range(20))


def a_closed_store_may_be_used_again(store: Store, world: World) -> None:
    store.put([fire("a.b@1")])
    store.close()
    store.close()
    assert found(store) == ["a.b@1"]
