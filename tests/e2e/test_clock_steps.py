"""The wall clock is set, or the machine sleeps: nothing runs twice, and missed fires follow `catch_up`."""

import signal
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from tests.equipment.fleet import Fleet, NodeProcess, wait_for
from tests.equipment.wall_clock import WallClock

from detent.clock import instant
from detent.model import Row

HOUR_S = 3600.0
NIGHT_S = 12 * HOUR_S
TEN_MINUTES = "*/10 * * * *"
EVENING = datetime(2030, 5, 1, 20, 1, 5, tzinfo=UTC).timestamp()  # 65 s after the last even minute
PLANNED_UNTIL = instant(EVENING + 300)  # no node plans further ahead


def test_three_hours_forward_are_caught_up_by_policy_and_three_back_repeat_nothing(
    fleet: Fleet, wall_clock: WallClock
) -> None:
    jobs = (
        fleet.job("tick", "sleep", "0"),
        fleet.job("long", "sleep", "100"),
        fleet.job("all", "sleep", "0", schedule=TEN_MINUTES, policy={"catch_up": "all"}),
        fleet.job("skip", "sleep", "0", schedule=TEN_MINUTES, policy={"catch_up": "skip"}),
    )
    fleet.write(*jobs, node={"drain_seconds": 0})
    ahead = EVENING + 300 - time.time()  # 20:06:05, far from any tenth minute
    wall_clock.set(ahead)
    node = fleet.start(**wall_clock.env)
    fleet.witness.wait_start("long")
    fleet.witness.wait_start("tick", after=2)

    ahead += 3 * HOUR_S
    wall_clock.set(ahead)
    node.wait("clock-stepped", by_s=3 * HOUR_S)
    fleet.witness.wait_start("all", after=17)
    _wait_tick_due_after(fleet, time.time() + ahead)

    wall_clock.set(ahead - 3 * HOUR_S)
    node.wait("clock-stepped", by_s=-3 * HOUR_S)
    before = len(fleet.witness.starts("tick"))
    fleet.write(*jobs, fleet.job("fresh", "sleep", "0"), node={"drain_seconds": 0})
    fleet.witness.wait_start("fresh", after=2)
    assert len(fleet.witness.starts("tick")) <= before + 1, "what was done is not done again"

    wall_clock.set(ahead)
    _wait_tick_due_after(fleet, time.time() + ahead + 1)
    assert len(fleet.witness.starts("long")) == 1, "a step of the clock expires no claim"
    assert node.end() == 0
    fleet.witness.assert_no_overlap()
    fleet.witness.assert_launched_once()
    _assert_unbroken(fleet.due("tick", instant(time.time() + ahead - 2)), timedelta(seconds=1))
    _assert_caught_up(fleet, instant(time.time() + ahead))


def _assert_caught_up(fleet: Fleet, until: datetime) -> None:
    every = fleet.due("all", until)
    assert [row.outcome and row.outcome.kind for row in every] == ["succeeded"] * 18
    keys = [one.key for one in fleet.witness.starts("all")]
    assert keys == [row.fire.key for row in every], "in order"
    (span,) = fleet.due("skip", until)
    assert span.outcome is not None and (span.outcome.kind, span.fire.instants) == ("missed", 18)
    assert fleet.witness.starts("skip") == []


@pytest.mark.parametrize("how", ["stopped", "ended"])
def test_a_night_asleep_is_one_late_fire_under_latest_and_one_span_under_skip(
    fleet: Fleet, wall_clock: WallClock, how: str
) -> None:
    fleet.write(
        fleet.job("often", "sleep", "0", schedule="* * * * *"),
        fleet.job("latest", "sleep", "0", schedule="*/2 * * * *"),
        fleet.job("skip", "sleep", "0", schedule="*/2 * * * *", policy={"catch_up": "skip"}),
        fleet.job("tick", "sleep", "0"),
    )
    ahead = EVENING - time.time()
    wall_clock.set(ahead)
    node = fleet.start(**wall_clock.env)
    fleet.witness.wait_start("tick")

    node = _sleep_till_morning(fleet, wall_clock, node, how)
    late = node.wait("caught-up", job="latest")
    fleet.wait_over(late["fire"])
    _wait_tick_due_after(fleet, EVENING + NIGHT_S)
    _wait_settled(fleet, ("often", "latest", "skip"), morning := instant(time.time() + ahead + NIGHT_S))

    assert node.end() == 0
    fleet.witness.assert_no_overlap()
    assert [len(fleet.witness.starts(lane)) for lane in ("often", "latest", "skip")] == [1, 1, 0]
    for name, minutes in (("often", 1), ("latest", 2), ("skip", 2)):
        rows = fleet.due(name, morning)
        _assert_unbroken(rows, timedelta(minutes=minutes))
        (span,) = [row for row in rows if _is_missed(row) and row.fire.due_at > PLANNED_UNTIL]
        assert span.fire.instants > 1, "what was not planned before is missed as one"
        assert sum(row.fire.instants for row in rows) == NIGHT_S / 60 / minutes


def _sleep_till_morning(fleet: Fleet, clock: WallClock, node: NodeProcess, how: str) -> NodeProcess:
    if how == "stopped":
        node.send(signal.SIGSTOP)
        clock.set(clock.ahead_s + NIGHT_S)
        node.send(signal.SIGCONT)
        return node
    assert node.end() == 0
    clock.set(clock.ahead_s + NIGHT_S)
    return fleet.start(**clock.env)


def _wait_tick_due_after(fleet: Fleet, wall: float) -> None:
    least = f"t.tick@{instant(wall):%Y-%m-%dT%H:%M:%SZ}"
    wait_for(lambda: [one for one in fleet.witness.starts("tick") if one.key > least], what="a tick")


def _wait_settled(fleet: Fleet, names: tuple[str, ...], until: datetime) -> None:
    wait_for(
        lambda: all(row.state == "over" for name in names for row in fleet.due(name, until)),
        what=f"all of {names}",
    )


def _is_missed(row: Row) -> bool:
    return row.outcome is not None and row.outcome.kind == "missed"


def _assert_unbroken(rows: list[Row], every: timedelta) -> None:
    """Each instant is accounted for once: a row follows where the one before it ends."""
    for row, following in pairwise(rows):
        assert (following.fire.first_at or following.fire.due_at) == row.fire.due_at + every
