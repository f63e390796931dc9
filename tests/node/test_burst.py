"""How much is asked for while more and more is due, and what waits for it."""

from detent.node.burst import BITE, GROWTH, Burst


def test_full_asks_grow_and_the_first_that_is_not_full_ends_it() -> None:
    burst = Burst(1.0, ask_max=2000)
    assert burst.bite == BITE
    assert burst.goes_on(is_full=True, asked=BITE, now=0.0)
    assert burst.bite == min(BITE * GROWTH, 2000)
    assert not burst.goes_on(is_full=False, asked=burst.bite, now=0.1)
    assert burst.bite == BITE


def test_an_ask_that_had_no_room_for_more_begins_none() -> None:
    burst = Burst(1.0, ask_max=2000)
    assert not burst.goes_on(is_full=True, asked=BITE - 1, now=0.0)
    assert not burst.comes_first(0.0, begins=True)


def test_ends_wait_for_beginnings_to_the_last_but_not_for_long() -> None:
    burst = Burst(1.0, ask_max=2000)
    burst.goes_on(is_full=True, asked=BITE, now=0.0)
    assert burst.comes_first(0.5, begins=False)
    burst.goes_on(is_full=False, asked=burst.bite, now=0.6)
    assert burst.comes_first(0.7, begins=True)
    assert not burst.comes_first(1.1, begins=True)
    assert not burst.comes_first(0.8, begins=False)
    assert not burst.comes_first(0.8, begins=True)
