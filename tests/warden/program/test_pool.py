"""How many children calls are worth: a table."""

import pytest

from detent.warden.program.pool import STALLED_S, START_COST_S, Pool
from detent.warden.program.spawn import CommandOrder
from detent.warden.program.task import CallOrder

ORDER = CommandOrder("", (), {}, "", "", 0.0, 0.0, 0.0, 0.0, "end", "", "", 0)
CALL = CallOrder("", "", b"", [], 0.0, 0.0, 0.0, 0.0, "", "", 0)
NOW = 1000.0


@pytest.mark.parametrize(
    ("waiting", "mean_s", "children", "starting", "silent_s", "wants"),
    [
        (0, 1.0, 0, 0, 0.0, False),
        (1, 1.0, 0, 0, 0.0, True),
        (1, 1.0, 1, 1, 0.0, False),  # the one that starts will take it
        (2, 1.0, 1, 1, 0.0, True),
        (100, 0.0001, 1, 0, 0.0, False),  # they will be done before another has started
        (100, 0.0001, 1, 0, STALLED_S * 2, True),  # or so we thought
        (10_000, 0.0001, 4, 0, 0.0, True),
        (10_000, 0.0001, 5, 0, 0.0, False),  # 1 s of work, and 0.05 s a start: the root of 20
        (1000, 0.1, 44, 0, 0.0, True),
        (1000, 0.1, 45, 0, 0.0, False),
    ],
)
def test_another_child_is_started_if_that_saves_time(
    waiting: int, mean_s: float, children: int, starting: int, silent_s: float, wants: bool
) -> None:
    assert START_COST_S == 0.05, "the table reckons with it"
    pool = Pool(ORDER, 1000)
    for _ in range(200):
        pool.learn(mean_s, NOW - silent_s)
    pool.waiting.extend([CALL] * waiting)
    pool.children, pool.starting = children, starting
    assert pool.wants_another(NOW) is wants


def test_no_more_children_are_started_than_size_max() -> None:
    pool = Pool(ORDER, 2)
    pool.waiting.extend([CALL] * 10)
    pool.children = 1
    assert pool.wants_another(NOW)
    pool.children = 2
    assert not pool.wants_another(NOW)
