"""Properties of `decide`, for any view: V1 to V4, and no more runs than lane, ask and rate allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.clock import instant
from detent.model import Ask, Fire, Policy, Rate
from detent.rules.breakers import Circuit
from detent.rules.decide import NEVER, Decision, JobFacts, Lane, Room, View, decide
from detent.rules.lanes import OpenFire
from detent.rules.rates import Charge
from detent.stores.base import PAUSE
from detent.stores.engine.driver import Cells, Fires
from detent.stores.engine.engine import Engine
from detent.stores.engine.unit import Conflict, Unit
from detent.stores.memory.driver import MemoryDriver
from detent.testing.stores.fixtures import FakeClock, fire

NOW, STEADY = 1_772_330_400.0, 5_000.0
LANES = {"": 1, "a.x": 1, "a.y": 2, "a.z": 3}  # and their widths
RATE, RATE_BY_KEY = Rate(3, 60.0), Rate(2, 60.0, by_key=True)
QUEUES = ("default", "rated", "keyed")


class Case(NamedTuple):
    """A state of the store, and what an ask finds due."""

    ask: Ask
    members: tuple[OpenFire, ...]
    graces: dict[str, int]
    charges: int
    circuit: Circuit
    hidden: frozenset[str]  # fires that are due and were not read with their lane
    pages: tuple[tuple[int, ...], ...]  # places of due fires; a fire may be on two pages

    @property
    def due(self) -> list[OpenFire]:
        return [one for one in self.members if one.due or (one.state == "claimed" and not one.live)]

    def view(self) -> View:
        view = View(NOW, STEADY)
        for lane in filter(None, LANES):
            ours = [one for one in self.members if one.fire.lane == lane]
            read = [one for one in ours if one.live or one.fire.key not in self.hidden]
            view.lanes[lane] = Lane(read, [STEADY + 5.0] * self.graces.get(lane, 0))
        view.jobs = {"a.gone": JobFacts(None, None)}
        view.jobs |= {name: JobFacts(instant(NOW + 60), None) for name in ("a.b", "a.c")}
        view.pauses = {"a.c": "maintenance"}
        view.rates = {"rated": RATE, "keyed": RATE_BY_KEY}
        view.charges = {"rated": [Charge(STEADY - 1, self.charges)] if self.charges else []}
        view.circuits = {"mail": self.circuit}
        return view


@st.composite
def fires(draw: Callable[..., Any], number: int) -> Fire:
    lane, ago_s = draw(st.sampled_from(list(LANES))), draw(st.integers(0, 200))
    concurrency = draw(st.sampled_from(["Forbid", "Queue", "Replace"])) if lane else "Allow"
    policy = Policy(
        concurrency,
        LANES[lane],
        catch_up=draw(st.sampled_from(["latest", "all"])),
        breaker=draw(st.sampled_from(["", "", "mail"])),
        breaker_cooldown_s=60.0,
        rate_key=draw(st.sampled_from(["k1", "k2"])),
    )
    due_at = instant(NOW) - timedelta(seconds=ago_s)
    return Fire(
        key=f"a.b@{number:02}",
        job=draw(st.sampled_from(["a.b", "a.b", "a.b", "a.c", "a.gone", "a.foreign"])),
        due_at=due_at,
        lane=lane,
        queue=draw(st.sampled_from(QUEUES)),
        policy=policy,
        origin=draw(st.sampled_from(["schedule", "manual", "push", "hook"])),
        start_by=draw(st.sampled_from([None, None, due_at + timedelta(seconds=100)])),
    )


@st.composite
def cases(draw: Callable[..., Any]) -> Case:
    left, members = Counter(LANES), []
    graces = {lane: draw(st.integers(0, 1)) for lane in LANES if lane}
    left.subtract(graces)
    for number in range(draw(st.integers(1, 14))):
        one = draw(fires(number))
        holds = draw(st.booleans()) and (not one.lane or left[one.lane] > 0)
        left[one.lane] -= holds
        is_claimed = holds or draw(st.integers(0, 4)) == 0
        members.append(_open(one, number, is_claimed, holds, draw(st.booleans())))
    ask = Ask("a", "n1", 1, draw(st.integers(0, 5)), QUEUES, without=("a.foreign",), hooks=2)
    circuit = draw(st.sampled_from([Circuit(), Circuit(5, NOW - 10), Circuit(5, NOW - 100)]))
    places = st.lists(st.integers(0, 13), max_size=8).map(tuple)
    return Case(
        ask=ask,
        members=tuple(members),
        graces=graces,
        charges=draw(st.integers(0, 3)),
        circuit=circuit,
        hidden=frozenset(draw(st.sets(st.sampled_from([one.fire.key for one in members])))),
        pages=tuple(draw(st.lists(places, min_size=1, max_size=4))),
    )


def _open(one: Fire, number: int, is_claimed: bool, is_live: bool, is_retry: bool) -> OpenFire:
    return OpenFire(
        fire=one,
        state="claimed" if is_claimed else "pending",
        attempt=1 if is_claimed or is_retry else 0,
        due=not is_claimed,
        live=is_live,
        waits=False,
        node="n2" if is_claimed else "",
        disposition=None,
        stop=None,
        outcome=None,
        number=number,
    )


def decided(case: Case) -> tuple[View, list[Decision]]:
    """The decisions about all pages, and then about all that is due, as an ask makes them."""
    view, room, due = case.view(), Room(case.ask), case.due
    made: list[Decision] = []
    for page in case.pages:
        made += decide(case.ask, view, [due[place] for place in page if place < len(due)], room)
    return view, made + decide(case.ask, view, due, room)


def started(case: Case, made: Sequence[Decision]) -> list[Fire]:
    by_key = {one.fire.key: one.fire for one in case.members}
    return [by_key[one.key] for one in made if one.step == "run"]


@given(cases())
def test_v1_every_fire_that_is_decided_is_in_the_list_of_its_lane(case: Case) -> None:
    view, made = decided(case)
    by_key = {one.fire.key: one.fire for one in case.members}
    for one in made:
        if lane := by_key[one.key].lane:
            assert one.key in {member.fire.key for member in view.lanes[lane].members}


@given(cases())
def test_v2_no_fire_is_decided_twice_in_an_ask(case: Case) -> None:
    _, made = decided(case)
    times = Counter(one.key for one in made if one.step != "stop")
    assert max(times.values(), default=1) == 1
    stops = Counter(one.key for one in made if one.step == "stop")
    assert max(stops.values(), default=1) == 1, "a holder is stopped once"


@given(cases())
def test_v4_a_decision_depends_on_the_view_alone(case: Case) -> None:
    assert decided(case)[1] == decided(case)[1]
    for one in decided(case)[1]:
        assert one.until in (0.0, NEVER) or one.until > NOW


@given(cases())
def test_no_more_fires_run_than_their_lane_has_places(case: Case) -> None:
    _, made = decided(case)
    runs = Counter(one.lane for one in started(case, made))
    for lane in filter(None, LANES):
        held = sum(one.holds_lane for one in case.members if one.fire.lane == lane)
        assert runs[lane] + held + case.graces[lane] <= LANES[lane] or not runs[lane]


@given(cases())
def test_no_more_fires_run_than_the_ask_has_room_for(case: Case) -> None:
    runs = started(case, decided(case)[1])
    hooks = sum(one.origin == "hook" for one in runs)
    assert hooks <= case.ask.hooks
    assert len(runs) - hooks <= case.ask.limit
    assert not any(one.job in case.ask.without for one in runs)


@given(cases())
def test_no_more_fires_run_than_the_rate_allows(case: Case) -> None:
    runs = [one for one in started(case, decided(case)[1]) if one.origin != "hook"]
    rated = sum(one.queue == "rated" for one in runs)
    assert not rated or case.charges + rated <= RATE.most
    by_key = Counter(one.policy.rate_key for one in runs if one.queue == "keyed")
    assert max(by_key.values(), default=0) <= RATE_BY_KEY.most


@given(cases())
def test_one_fire_probes_an_open_breaker(case: Case) -> None:
    runs = [one for one in started(case, decided(case)[1]) if one.origin != "hook" and one.policy.breaker]
    if case.circuit.opened:
        assert len(runs) <= (case.circuit.opened <= NOW - 60)


@given(cases())
def test_only_fires_that_may_run_are_started(case: Case) -> None:
    _, made = decided(case)
    members = {one.fire.key: one for one in case.members}
    for one in made:
        me = members[one.key]
        if one.step == "run":
            assert me.state == "pending" and me.due
            assert me.fire.origin != "schedule" or me.fire.job != "a.gone"
            assert me.fire.origin != "schedule" or me.attempt or me.fire.job != "a.c", "it is paused"
        if one.step == "settle":
            assert one.outcome
        if one.step == "stop":
            assert me.holds_lane or me.fire in started(case, made)


@given(cases())
def test_a_decision_touches_the_lane_that_it_depends_on(case: Case) -> None:
    _, made = decided(case)
    members = {one.fire.key: one for one in case.members}
    for one in made:
        lane = members[one.key].fire.lane
        if lane and one.step != "delay":
            assert f"lane/{lane}" in one.touches


@given(cases())
def test_a_fire_gives_way_only_to_one_that_holds_its_lane_or_wants_it(case: Case) -> None:
    _, made = decided(case)
    members = {one.fire.key: one for one in case.members}
    settled = {one.key for one in made if one.step == "settle"}
    for one in made:
        if one.step == "settle" and one.outcome and one.outcome.cause == "lane":
            other = members[one.outcome.by]
            assert other.fire.lane == members[one.key].fire.lane
            assert other.fire.key not in settled or one.outcome.kind == "replaced"


# V3, of the engine.


def _unit() -> tuple[Unit, Engine, MemoryDriver]:
    clock = FakeClock()
    driver = MemoryDriver(clock.wall, clock.monotonic)
    other = Engine(driver)
    other.put([fire("a.b@1")])
    return Unit(driver, "a"), other, driver


@pytest.mark.parametrize(
    "change",
    [
        lambda other, driver: other.cancel("a.b@1"),
        lambda other, driver: other.note("a", PAUSE + "a.b", "maintenance"),
        lambda other, driver: other.note("a", "x", "2"),
        lambda other, driver: other.set_jobs("a", 0, {"a.b": "r1"}),
        lambda other, driver: driver.new_epoch(),
    ],
    ids=["record", "control", "cell", "generation", "epoch"],
)
def test_v3_a_torn_view_is_read_again(change: Callable[[Engine, MemoryDriver], object]) -> None:
    unit, other, driver = _unit()
    reads = Fires(("a.b@1",)), Cells(("note/x",))
    unit.look(*reads)
    unit.look(*reads)
    change(other, driver)
    with pytest.raises(Conflict):
        unit.look(*reads)


def test_v4_the_clock_of_the_first_look_holds_for_the_whole_unit() -> None:
    clock = FakeClock()
    unit = Unit(MemoryDriver(clock.wall, clock.monotonic), "a")
    unit.look()
    before = unit.now, unit.steady
    clock.pass_time(0.5)
    unit.look()
    assert (unit.now, unit.steady) == before
