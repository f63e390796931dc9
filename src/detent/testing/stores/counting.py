"""Checks of a store: the number of messages on a queue, and the next ones."""

from __future__ import annotations

from typing import Any

from detent.model import Fire, Outcome, Policy, Size, Verdict
from detent.rules.outcomes import paused
from detent.stores.base import Store
from detent.testing.stores.fixtures import (
    AGAIN,
    BEAT_S,
    OVER,
    TTL_S,
    Asker,
    Planner,
    World,
    finish,
    fire,
    found,
)

LANE = Policy("Queue", claim_s=TTL_S)
MANY = 1000  # more than any store reads at a time


def _message(number: int, queue: str = "mail", **fields: Any) -> Fire:
    whole = {"policy": Policy("Allow", claim_s=TTL_S), "origin": "push", "queue": queue} | fields
    return fire(f"a.b@{number:04}", **whole)


def messages_are_counted_by_their_queues(store: Store, world: World) -> None:
    store.put([_message(n) for n in range(7)])
    store.put([_message(n) for n in range(10, 12)], delay_s=5)
    store.put([_message(20, "slow"), fire("a.c@1", "Queue", policy=LANE, origin="push", queue="slow")])
    node = Asker(store)
    for verdict in (OVER, AGAIN, Verdict(Outcome("succeeded")), Verdict(Outcome("timed-out", "after 1 s"))):
        finish(store, node.claim_one(limit=1, queues=("mail",)), verdict)
    node.claim_one(limit=1, queues=("mail",))
    mail = Size(pending=2, delayed=3, running=1, dead=2)
    assert store.count("a") == {"mail": mail, "slow": Size(pending=2)}
    assert store.count("a", ["mail", "empty"]) == {"mail": mail}
    assert store.count("other") == {}
    world.pass_time(5)
    assert store.count("a", ["mail"])["mail"] == mail._replace(pending=4, delayed=1)


def only_messages_are_counted(store: Store, world: World) -> None:
    planner = Planner(store)
    planner.advance()
    store.put([fire("a.c@1", origin="manual"), fire("a.c@2", origin="hook"), _message(1, "default")])
    world.pass_time(BEAT_S)
    assert store.count("a") == {"default": Size(pending=1)}


def cancelled_and_forgotten_messages_are_not_counted(store: Store, world: World) -> None:
    store.put([_message(n) for n in range(5)])
    store.cancel("a.b@0001")
    assert store.count("a") == {"mail": Size(pending=4)}
    node = Asker(store)
    for verdict in (OVER, OVER, Verdict(paused(""))):
        finish(store, node.claim_one(limit=1, queues=("mail",)), verdict)
    assert store.count("a") == {"mail": Size(pending=1, dead=2)}
    assert store.forget(["a.b@0000"]) == 1
    store.prune("a", 1000.0, 0)  # keeps dead letters
    assert store.count("a") == {"mail": Size(pending=1, dead=1)}
    assert found(store, state="over", kinds=("cancelled", "skipped")) == ["a.b@0003", "a.b@0001"]


def a_claim_counts_as_running_until_it_is_settled(store: Store, world: World) -> None:
    store.put([_message(1)])
    node = Asker(store)
    node.claim_one(queues=("mail",))
    world.pass_time(TTL_S + 1)
    assert store.count("a") == {"mail": Size(running=1)}
    lost = node.claim_one(queues=("mail",))
    assert lost.disposition is not None
    finish(store, lost, Verdict(lost.disposition))
    assert store.count("a") == {"mail": Size(dead=1)}


def upcoming_messages_are_found_in_the_order_of_their_grants(store: Store, world: World) -> None:
    store.put([_message(n) for n in (3, 1)], delay_s=7)
    store.put([_message(n) for n in (9, 2)])
    store.put([_message(4, "slow")], delay_s=1)
    node = Asker(store)
    finish(store, node.claim_one(limit=1, queues=("mail",)), Verdict(Outcome("failed"), again_in_s=3))
    expected = ["a.b@0009", "a.b@0004", "a.b@0002", "a.b@0001", "a.b@0003"]
    assert found(store, upcoming=True) == expected
    assert found(store, upcoming=True, queues=("mail",), limit=2) == ["a.b@0009", "a.b@0002"]
    assert found(store, upcoming=True, origins=("schedule",)) == []
    assert found(store, upcoming=True, state="claimed") == []
    node.claim_one(queues=("mail",))
    assert found(store, upcoming=True) == expected[1:]
    assert found(store, upcoming=True, key="a.b@0009") == []


def upcoming_messages_are_found_among_many_of_one_instant(store: Store, world: World) -> None:
    store.put([_message(n) for n in range(MANY)])
    assert found(store, upcoming=True, queues=("mail",), limit=3) == ["a.b@0000", "a.b@0001", "a.b@0002"]
    assert found(store, upcoming=True, limit=MANY + 1) == [f"a.b@{n:04}" for n in range(MANY)]
