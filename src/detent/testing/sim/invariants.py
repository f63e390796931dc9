"""What must hold in the store after every commit, whoever made it and whatever others did meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from detent.rules.trust import STEP_S
from detent.stores.engine.driver import VIEW_S
from detent.stores.engine.record import Record

Graces = Mapping[str, Sequence[float]]  # lane -> when the graces of its finished fires end


def wrong_lane(members: Iterable[Record], graces: Sequence[float], steady: float) -> str:
    """Whether more fires hold a lane, or keep it free for a grace, than it has places."""
    held = [one for one in members if _holds(one, steady)]
    rests = sum(end > steady + VIEW_S for end in graces)  # a grace begins with the look of its finish
    if held and len(held) + rests > max(one.fire.policy.max_running for one in held):
        return f"a lane is claimed by {[one.fire.key for one in held]} and {rests} graces"
    return ""


def wrong_settling(settled: Record, records: Mapping[str, Record], steady: float) -> str:
    """Whether a fire gave way to a fire that does not hold or want the lane."""
    outcome = settled.disposition
    if outcome is None or outcome.cause != "lane":
        return ""
    other = records.get(outcome.by)
    is_there = other is not None and (other.waits or other.expires > steady - VIEW_S)
    if outcome.kind == "replaced":
        is_there = other is not None and other.state != "over"
    if other and other.outcome and other.outcome.cause == "stopped":
        return ""  # it was cancelled between look and commit, as it could have been after the commit
    return "" if is_there else f"{settled.fire.key} was {outcome.kind} by {outcome.by}, which is not there"


def wrong_late_hook(hook: Record, records: Mapping[str, Record]) -> str:
    """Whether the hook of a late start was granted although its fire had started or ended."""
    key, _, name = hook.fire.key.rpartition("/")
    parent = records.get(key)
    if name.startswith("on_late") and parent and (parent.state == "over" or parent.attempt):
        return f"{hook.fire.key} was granted, although its fire is {parent.state}"
    return ""


def forgotten_lanes(records: Iterable[Record], graces: Graces, clocks: tuple[float, float]) -> Iterator[str]:
    """The lanes with room and parked fires of which no ask will find one soon.

    The end of a grace is on the steady clock, and `look_at` on the wall clock.  So a step back that is too
    small to be noticed delays a look by its length."""
    wall, steady = clocks
    lanes: dict[str, list[Record]] = {}
    for record in records:
        if record.fire.lane and record.state != "over":
            lanes.setdefault(record.fire.lane, []).append(record)
    for lane, members in lanes.items():
        parked = [one for one in members if one.is_parked and one.look_at > wall and one.run_at <= wall]
        rests = sum(end > steady for end in graces.get(lane, ()))
        used = rests + sum(_holds(one, steady) for one in members)
        width = min((one.fire.policy.max_running for one in parked), default=0)
        if used < width and not any(_is_in_sight(one, wall, steady) for one in members):
            yield f"lane {lane} has room, and nothing wakes {[one.fire.key for one in parked]}"


def _holds(record: Record, steady: float) -> bool:
    return record.is_live(steady) and record.disposition is None


def _is_in_sight(record: Record, wall: float, steady: float) -> bool:
    if record.state == "claimed":
        return not record.is_live(steady)
    return record.run_at <= wall and record.look_at <= wall + STEP_S
