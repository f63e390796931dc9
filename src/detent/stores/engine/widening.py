"""Reads what decisions about due fires depend on: their lanes, jobs, charges and breakers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from detent.model import Fire
from detent.rules import lanes as lane_rules
from detent.rules.breakers import circuit_of
from detent.rules.decide import JobFacts, Lane, View
from detent.rules.rates import charges_of, without_priority
from detent.stores.base import BREAKER, CHARGE_PREFIX, LANE_PREFIX, NOTE_PREFIX
from detent.stores.encoding import instant_of, live_graces
from detent.stores.engine.driver import NO_JOB, Cells, Fires, Jobs, LaneMembers
from detent.stores.engine.record import open_fire
from detent.stores.engine.unit import Unit

RIVALS_MAX = 100  # fires of a lane that one decision about replacing others considers


def widen(unit: Unit, view: View, fires: Sequence[Fire], queues: Iterable[str]) -> None:
    """Add to the view what these fires and queues need, and is not in it yet."""
    lanes = _new((fire.lane for fire in fires), view.lanes)
    jobs = _new((fire.job for fire in fires), view.jobs)
    breakers = _new((fire.policy.breaker for fire in fires), view.circuits)
    names = [view.rate_of(fire)[1] for fire in fires] if view.rates else []
    names += [name for name in map(without_priority, queues) if name in view.rates]
    charges = _new(names, view.charges)
    if not (lanes or jobs or charges or breakers):
        return
    cells = [LANE_PREFIX + lane for lane in lanes] + [CHARGE_PREFIX + name for name in charges]
    cells += [NOTE_PREFIX + BREAKER + name for name in breakers]
    replacing = {fire.lane for fire in fires if fire.policy.concurrency == "Replace"}
    _, states, members, rivals = unit.look(
        Cells(tuple(cells)),
        Jobs(jobs, newest=True),
        LaneMembers(tuple(lane for lane in lanes if lane not in replacing), waiting=lane_rules.WAITING_MAX),
        LaneMembers(
            tuple(lane for lane in lanes if lane in replacing), RIVALS_MAX, waiting=lane_rules.WAITING_MAX
        ),
    )
    for name in jobs:
        state = states.get(name, NO_JOB)
        view.jobs[name] = JobFacts(instant_of(state.at), instant_of(state.newest_due))
    for lane in lanes:
        found = (rivals if lane in replacing else members).get(lane, ())
        ours = {one.fire.key: open_fire(one, view.now, view.steady) for one in found}
        graces = live_graces(unit.cells[LANE_PREFIX + lane].text, view.steady)
        view.lanes[lane] = Lane([*ours.values()], [end for end, _ in graces])
    for name in charges:
        _, view.charges[name] = charges_of(unit.cells[CHARGE_PREFIX + name].text)
    _add_breakers(unit, view, breakers)


def _new(names: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    """Those of these names that are not known, each once."""
    return tuple(name for name in dict.fromkeys(names) if name and name not in known)


def _add_breakers(unit: Unit, view: View, names: Sequence[str]) -> None:
    view.circuits |= {name: circuit_of(unit.note(BREAKER + name)) for name in names}
    probes = {name: view.circuits[name].probe for name in names if view.circuits[name].probe}
    if probes:
        unit.look(Fires(tuple(probes.values())))
    for name, key in probes.items():
        probe = unit.records.get(key)
        view.probing[name] = bool(probe and probe.is_live(view.steady) and probe.disposition is None)
