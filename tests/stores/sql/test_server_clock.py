"""A step of a server's clock is distinguished from a pause, and from a client whose clock stood still."""

from __future__ import annotations

import json

import pytest

from detent.stores.sql.server_clock import Memory, Recollection, World, ahead_s, judge, moved_charges

NOW = 1_000.0
INFINITY = float("inf")


def world(**changes: float | str) -> World:
    usual = World(
        epoch="e2",
        previous="e1",
        system="s1",
        steps=0.0,
        seen=NOW,
        born=0.0,
        doubted=0.0,
        quarantined_until=0.0,
        longest_ttl_s=30.0,
    )
    return usual._replace(**changes)


def remembered(passed: float, epoch: str = "e2", slow_s: float = 0.1) -> Memory:
    """The memory of a client that called at NOW, and for which so much time has passed."""
    return Memory(epoch, NOW, passed, passed + slow_s)


@pytest.mark.parametrize(
    ("name", "memory", "steady", "seen", "ahead"),
    [
        ("time passes", remembered(60), NOW + 60, NOW, 0),
        ("it drifts", remembered(3600), NOW + 3603, NOW, 0),
        ("a small step", remembered(60), NOW + 60.5, NOW, 0),
        ("set forward", remembered(60), NOW + 3660, NOW, 3600),
        ("set forward, others called since", remembered(60), NOW + 3660, NOW + 50, 3600),
        ("set back", remembered(60), NOW - 3540, NOW, -3600),
        ("this call was slow", remembered(0, slow_s=20), NOW + 20, NOW, 0),
        ("this client stood still, others called", remembered(1), NOW + 61, NOW + 60.9, 0),
        ("all clients stood still", remembered(1), NOW + 61, NOW, 60),
        ("a memory of the epoch before counts", remembered(60, "e1"), NOW + 3660, NOW, 3600),
        ("a memory of another store does not", remembered(60, "e0"), NOW + 3660, NOW, 0),
        ("a new client cannot tell", None, NOW + 3600, NOW, 0),
        ("a new client, set back", None, NOW - 3600, NOW, -3600),
    ],
)
def test_how_far_the_clock_is_ahead(
    name: str, memory: Memory | None, steady: float, seen: float, ahead: float
) -> None:
    assert ahead_s(world(seen=seen), memory, steady) == pytest.approx(ahead), name


def test_nothing_is_corrected_while_time_passes() -> None:
    assert judge(world(), remembered(60), NOW + 60, "s1") is None
    assert judge(world(), None, NOW + 14, "s1") is None


def test_a_step_keeps_the_steady_clock_and_bounds_a_quarantine() -> None:
    found = judge(world(quarantined_until=NOW + 9e9), remembered(60), NOW + 3660, "s1")
    assert found and (found.step, found.now, found.stretch) == (3600, NOW + 60, "")
    assert found.world == world(steps=3600.0, seen=NOW + 60, quarantined_until=NOW + 90)


@pytest.mark.parametrize(
    ("name", "steady", "seen", "since"),
    [
        ("the clock was set back", NOW - 100, NOW, NOW),
        ("clients that stood still set it back", NOW, NOW - 50, -INFINITY),
    ],
)
def test_claims_of_a_clock_that_was_behind_are_not_cut_short(
    name: str, steady: float, seen: float, since: float
) -> None:
    found = judge(world(seen=seen), remembered(60), steady, "s1")
    assert found and found.step < 0 and found.since == since, name


def test_a_new_client_after_a_long_time_gives_claims_time_once() -> None:
    found = judge(world(), None, NOW + 20, "s1")
    assert found and (found.stretch, found.stretch_after, found.step) == ("undoubted", 0.0, 0)
    again = judge(found.world, None, NOW + 40, "s1")
    assert again and again.stretch_after == NOW + 20


def test_another_server_begins_a_new_epoch_in_quarantine() -> None:
    found = judge(world(longest_ttl_s=0.0), None, NOW + 1, "s2")
    assert found and found.is_new_epoch and found.stretch == "all"
    assert (found.world.previous, found.world.system) == ("e2", "s2")
    assert found.world.quarantined_until == NOW + 31


def test_a_client_of_an_older_store_puts_a_young_store_in_quarantine() -> None:
    young, memory = world(born=NOW - 5), remembered(60, "e0")
    found = judge(young, memory, NOW, "s1")
    assert found and found.world.quarantined_until == NOW + 25
    assert judge(found.world, memory, NOW + 1, "s1") is None
    assert judge(world(born=NOW - 31), memory, NOW, "s1") is None


def test_charges_move_with_a_clock_that_was_behind_and_count_longer_in_doubt() -> None:
    def moved(correction: object, *at: float) -> list[float]:
        text = moved_charges(json.dumps([60.0, [[one, 1] for one in at]]), correction)  # type: ignore[arg-type]
        return [one for one, _ in json.loads(text)[1]]

    back = judge(world(), remembered(60), NOW - 40, "s1")
    assert back and back.step == -100
    assert moved(back, NOW - 5, NOW + 5) == [NOW - 5, NOW + 60]
    doubt = judge(world(doubted=NOW - 30), None, NOW + 20, "s1")
    assert moved(doubt, NOW - 70, NOW - 40, NOW - 10) == [NOW - 70, NOW - 40, NOW + 10]


def test_a_process_remembers_the_newest_reply() -> None:
    mine = Recollection()
    assert mine.recall(1, 2) is None
    mine.learn("e2", 500.0, 10, 11)
    mine.learn("e2", 400.0, 12, 13)
    assert mine.recall(21, 22) == Memory("e2", 500.0, 10, 12)
    mine.learn("e3", 1.0, 30, 31)
    assert mine.recall(31, 32) == Memory("e3", 1.0, 0, 2)
