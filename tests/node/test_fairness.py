"""How much a node asks for beside others, and when."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from detent.model import Note
from detent.node.fairness import BEHIND_S, BITE, HALF_S, MANY, Share, loads_of
from detent.node.node import Node
from detent.testing.sim.fleet import Sim

ROOM = 32
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def shared(own: float = 1.0, is_worker: bool = False) -> Share:
    share = Share(is_worker)
    share.compare([1.0, 1.0, own], own)
    return share


def test_a_node_that_is_alone_takes_all_that_it_has_room_for() -> None:
    share = Share()
    share.compare([9.0], 9.0)
    assert share.bite(ROOM) == ROOM and share.delay_s == 0
    assert not share.take(ROOM, ROOM, room=0)


def test_beside_others_it_takes_bites_that_grow_while_there_is_more() -> None:
    share, bites = shared(), []
    while share.take(bite := share.bite(ROOM - sum(bites)), bite, room=ROOM - sum(bites) - bite):
        bites.append(bite)
    assert bites == [BITE, 2 * BITE, 4 * BITE, 8 * BITE]
    assert share.bite(ROOM) == BITE, "a small one again once it is full"


def test_a_worker_that_is_full_keeps_its_bite_until_there_is_no_more() -> None:
    share = shared(is_worker=True)
    assert share.take(BITE, BITE, ROOM) and not share.take(2 * BITE, 2 * BITE, room=0)
    assert share.bite(ROOM) > BITE, "there was more than it had room for"
    assert not share.take(0, 0, room=0) and share.bite(ROOM) > BITE, "it asked for nothing"
    assert not share.take(3, 2, room=1)
    assert share.bite(ROOM) == BITE, "a small one again once there is no more"


def test_a_bite_that_room_made_small_does_not_grow_for_it() -> None:
    share = shared()
    share.take(BITE, BITE, ROOM)
    for _ in range(9):
        assert share.take(1, 1, room=1)
    assert share.bite(ROOM) == 2 * BITE


def test_a_bite_that_is_not_filled_is_the_last_one() -> None:
    share = shared()
    assert not share.take(BITE, BITE - 1, ROOM), "a fire that is due alone costs one ask"
    assert share.take(BITE, BITE, ROOM) and not share.take(2 * BITE, 1, ROOM)
    assert share.bite(ROOM) == BITE


def test_one_that_had_more_than_its_share_lets_the_others_go_first_but_not_between_bites() -> None:
    share = shared(own=9.0)
    assert share.delay_s == BEHIND_S
    share.take(BITE, BITE, ROOM)
    assert share.delay_s == 0
    assert shared(own=1.0).delay_s == 0 == shared(own=0.0).delay_s
    assert shared(own=9.0, is_worker=True).delay_s == 0, "people wait for messages"


def test_its_load_is_what_it_holds_and_what_it_had_of_late() -> None:
    share = Share()
    share.take(ROOM, 8, ROOM)
    assert [share.load(1, 0.0), share.load(0, HALF_S), share.load(0, HALF_S), share.load(0, 2 * HALF_S)] == [
        9.0,
        4.0,
        4.0,
        2.0,
    ]


def test_it_is_time_to_compare_once_it_had_much_since_the_last_time() -> None:
    share = Share()
    share.take(ROOM, MANY - 1, ROOM)
    share.load(0, 0.0)
    share.take(ROOM, MANY - 1, ROOM)
    assert not share.many.event.is_set()
    share.take(ROOM, 1, ROOM)
    assert share.many.event.is_set()


def test_what_others_said_of_their_load_fades_too_and_others_of_other_queues_do_not_count() -> None:
    def note(load: object, age_s: float, queues: tuple[str, ...] = ("q",)) -> Note:
        return Note("n", json.dumps({"load": load, "queues": queues}), NOW - timedelta(seconds=age_s))

    living = [note(8, 0), note(8, HALF_S), note(8, -HALF_S), note(8, 0, ("other",)), note("much", 0)]
    assert [*loads_of(living, ("q", "more"), NOW)] == [8.0, 4.0, 8.0]


class Sharing(Node):
    """One of three nodes; every other life had more than its share."""

    def __init__(self, life: str, *given: Any) -> None:
        super().__init__(life, *given)
        self.share.compare([1.0, 1.0, 1.0], 9.0 * (int(life.rpartition(".")[2]) % 2))


def test_the_promise_is_kept_by_nodes_that_share() -> None:
    assert Sim(901, "rough", 0.5, node_type=Sharing).run().broken == []
