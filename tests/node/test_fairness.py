"""How much a node asks for when other nodes share the work, and when it asks."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from detent.model import Note
from detent.node.fairness import COMPARE_AFTER, DELAY_S, FIRST_LIMIT, HALF_LIFE_S, FairShare, loads_of
from detent.node.node import Node
from detent.testing.sim.fleet import Sim

ROOM = 32
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def shared(own: float = 1.0, is_worker: bool = False) -> FairShare:
    share = FairShare(is_worker)
    share.compare([1.0, 1.0, own], own)
    return share


def test_a_lone_node_asks_for_all_that_it_has_room_for() -> None:
    share = FairShare()
    share.compare([9.0], 9.0)
    assert share.batch_limit(ROOM) == ROOM and share.delay_s == 0
    assert not share.take(ROOM, ROOM, room=0)


def test_beside_other_nodes_the_batch_limit_grows_while_there_is_more() -> None:
    share, bites = shared(), []
    while share.take(
        batch_limit := share.batch_limit(ROOM - sum(bites)), batch_limit, room=ROOM - sum(bites) - batch_limit
    ):
        bites.append(batch_limit)
    assert bites == [FIRST_LIMIT, 2 * FIRST_LIMIT, 4 * FIRST_LIMIT, 8 * FIRST_LIMIT]
    assert share.batch_limit(ROOM) == FIRST_LIMIT, "a small one again once it is full"


def test_a_full_worker_keeps_its_batch_limit_until_there_is_no_more() -> None:
    share = shared(is_worker=True)
    assert share.take(FIRST_LIMIT, FIRST_LIMIT, ROOM) and not share.take(
        2 * FIRST_LIMIT, 2 * FIRST_LIMIT, room=0
    )
    assert share.batch_limit(ROOM) > FIRST_LIMIT, "there was more than it had room for"
    assert not share.take(0, 0, room=0) and share.batch_limit(ROOM) > FIRST_LIMIT, "it asked for nothing"
    assert not share.take(3, 2, room=1)
    assert share.batch_limit(ROOM) == FIRST_LIMIT, "a small one again once there is no more"


def test_an_ask_that_room_made_small_does_not_raise_the_limit() -> None:
    share = shared()
    share.take(FIRST_LIMIT, FIRST_LIMIT, ROOM)
    for _ in range(9):
        assert share.take(1, 1, room=1)
    assert share.batch_limit(ROOM) == 2 * FIRST_LIMIT


def test_an_ask_that_is_not_filled_is_the_last_one() -> None:
    share = shared()
    assert not share.take(FIRST_LIMIT, FIRST_LIMIT - 1, ROOM), "a fire that is due alone costs one ask"
    assert share.take(FIRST_LIMIT, FIRST_LIMIT, ROOM) and not share.take(2 * FIRST_LIMIT, 1, ROOM)
    assert share.batch_limit(ROOM) == FIRST_LIMIT


def test_a_node_ahead_of_the_mean_waits_before_its_first_ask_only() -> None:
    share = shared(own=9.0)
    assert share.delay_s == DELAY_S
    share.take(FIRST_LIMIT, FIRST_LIMIT, ROOM)
    assert share.delay_s == 0
    assert shared(own=1.0).delay_s == 0 == shared(own=0.0).delay_s
    assert shared(own=9.0, is_worker=True).delay_s == 0, "people wait for messages"


def test_the_load_of_a_node_is_what_it_holds_plus_recent_work() -> None:
    share = FairShare()
    share.take(ROOM, 8, ROOM)
    assert [
        share.load(1, 0.0),
        share.load(0, HALF_LIFE_S),
        share.load(0, HALF_LIFE_S),
        share.load(0, 2 * HALF_LIFE_S),
    ] == [
        9.0,
        4.0,
        4.0,
        2.0,
    ]


def test_loads_are_compared_again_after_many_claims() -> None:
    share = FairShare()
    share.take(ROOM, COMPARE_AFTER - 1, ROOM)
    share.load(0, 0.0)
    share.take(ROOM, COMPARE_AFTER - 1, ROOM)
    assert not share.compare_soon.event.is_set()
    share.take(ROOM, 1, ROOM)
    assert share.compare_soon.event.is_set()


def test_loads_of_others_fade_and_nodes_of_other_queues_do_not_count() -> None:
    def note(load: object, age_s: float, queues: tuple[str, ...] = ("q",)) -> Note:
        return Note("n", json.dumps({"load": load, "queues": queues}), NOW - timedelta(seconds=age_s))

    living = [
        note(8, 0),
        note(8, HALF_LIFE_S),
        note(8, -HALF_LIFE_S),
        note(8, 0, ("other",)),
        note("much", 0),
    ]
    assert [*loads_of(living, ("q", "more"), NOW)] == [8.0, 4.0, 8.0]


class Sharing(Node):
    """One of three nodes; every other instance had more than its share."""

    def __init__(self, instance: str, *given: Any) -> None:
        super().__init__(instance, *given)
        self.fair_share.compare([1.0, 1.0, 1.0], 9.0 * (int(instance.rpartition(".")[2]) % 2))


def test_the_guarantees_hold_while_nodes_share_the_work() -> None:
    assert Sim(901, "rough", 0.1, node_type=Sharing).run().broken == []
