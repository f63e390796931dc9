"""The estimate of the store's clock between two answers."""

import math

from detent.clock import StoreClock, instant


class Ticks:
    def __init__(self) -> None:
        self.seconds = 500.0

    def __call__(self) -> float:
        return self.seconds


def test_the_estimate_advances_between_answers() -> None:
    ticks = Ticks()
    clock = StoreClock(ticks)
    clock.learn(instant(1_000_000.0))
    ticks.seconds += 7.5
    assert clock.now() == instant(1_000_007.5)
    assert clock.age_s == 7.5


def test_a_step_of_the_stores_clock_shows_in_the_next_answer() -> None:
    ticks = Ticks()
    clock = StoreClock(ticks)
    for learned in (1_000_000.0, 1_003_600.0, 999_000.0):
        ticks.seconds += 1.0
        clock.learn(instant(learned))
        assert (clock.now(), clock.age_s) == (instant(learned), 0.0)


def test_after_a_slow_answer_the_estimate_is_behind_and_never_ahead() -> None:
    ticks = Ticks()
    clock, stores_now = StoreClock(ticks), 1_000_000.0
    ticks.seconds += 3.0  # the answer is on its way
    clock.learn(instant(stores_now))
    assert clock.now() == instant(stores_now) < instant(stores_now + 3.0)


def test_before_the_first_answer_the_age_is_infinite() -> None:
    assert StoreClock(Ticks()).age_s == math.inf
