"""Composes the groups of a commit: decisions that share something are committed together or not at all."""

from __future__ import annotations

from collections.abc import Sequence

from detent.model import Ask, Fire
from detent.rules.breakers import circuit_text
from detent.rules.decide import Decision, View, late_hooks_of
from detent.rules.rates import charges_text, without_priority
from detent.stores.base import NOTE_PREFIX
from detent.stores.encoding import graces_text, live_graces, note_text
from detent.stores.engine.driver import Drop, Group, Progress, SetCell, Wake, Write
from detent.stores.engine.finishing import WAKE
from detent.stores.engine.record import Record
from detent.stores.engine.unit import Unit


def compose(unit: Unit, view: View, ask: Ask, decisions: Sequence[Decision]) -> list[Group]:
    """Change the records as decided, and return the groups.  A granted record has a fence below 0."""
    groups = [_group(unit, view, some) for some in components(decisions)]
    granted = [one.key for one in decisions if one.step in ("run", "settle")]
    fences = {key: -1 - place for place, key in enumerate(granted)}
    for one in decisions:
        apply_decision(one, unit.records[one.key], ask, view, fences.get(one.key, 0))
    return groups


def components(decisions: Sequence[Decision]) -> list[list[Decision]]:
    """Groups of decisions that touch the same things, in order."""
    group_of: dict[str, int] = {}
    groups: dict[int, list[Decision]] = {}
    for place, one in enumerate(decisions):
        joined = sorted({group_of[name] for name in (*one.touches, one.key) if name in group_of})
        into = joined[0] if joined else place
        group = groups.setdefault(into, [])
        for other in joined[1:]:
            group += groups.pop(other)
            group_of.update((name, into) for name, at in group_of.items() if at == other)
        group.append(one)
        group_of.update((name, into) for name in (*one.touches, one.key))
    return list(groups.values())


def _group(unit: Unit, view: View, decisions: Sequence[Decision]) -> Group:
    records = {one.key: unit.records[one.key] for one in decisions}
    touched = {name for one in decisions for name in one.touches}
    some = [(one.step, records[one.key].fire) for one in decisions]
    # A fire that does not run after all leaves a place to the next ones of its lane.
    lanes = {fire.lane for step, fire in some if step in ("settle", "delay") and _has_room(view, fire)}
    started = [fire for step, fire in some if step == "run"]
    reached = [fire for step, fire in some if step in ("run", "settle") and fire.origin == "schedule"]
    return Group(
        writes=[Write(one, one.version) for one in records.values()],
        drops=[Drop(key, None) for fire in started for key in late_hooks_of(fire)],
        cells=[_cell(unit, view, name) for name in sorted(touched)],
        progress=[Progress(fire.job, reached=fire.due_at.timestamp()) for fire in reached],
        wakes=[Wake(lane=lane, most=WAKE) for lane in sorted(lanes)],
    )


def _has_room(view: View, fire: Fire) -> bool:
    lane = view.lanes.get(fire.lane)
    return lane is not None and lane.room(fire.policy.max_running) > 0


def _cell(unit: Unit, view: View, touched: str) -> SetCell:
    kind, _, name = touched.partition("/")
    cell = NOTE_PREFIX + touched if kind == "breaker" else touched
    match kind:
        case "lane":
            text = graces_text(live_graces(unit.cells[cell].text, view.steady))
        case "charge":
            text = charges_text(view.charges[name], view.rates[without_priority(name.partition("/")[0])])
        case _:
            text = note_text(circuit_text(view.circuits[name]), view.now, view.steady, 0)
    return SetCell(cell, text, unit.cells[cell].version)


def apply_decision(decision: Decision, record: Record, ask: Ask, view: View, fence: int) -> None:
    """Change the record as decided."""
    match decision.step:
        case "run" | "settle":
            record.state, record.node, record.ask, record.fence = "claimed", ask.node, ask.number, fence
            record.ttl_s = ask.ttl_s or record.fire.policy.claim_s
            record.expires, record.look_at = view.steady + record.ttl_s, record.run_at
            record.is_parked = False
            if decision.step == "run":
                record.attempt += 1
                record.ran_node, record.ran_fence, record.ran_at = ask.node, fence, view.now
            else:
                record.disposition = decision.outcome
        case "stop":
            record.stop = decision.outcome
        case "wait" | "park":
            record.waits |= decision.step == "wait"
            record.is_parked = decision.until > 0
            record.look_at = max(decision.until, record.run_at)
        case "delay":
            record.run_at = record.look_at = decision.until
            record.is_parked = False
