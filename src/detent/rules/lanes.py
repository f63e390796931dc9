"""Decides whether a due fire may run now, given its lane.  Every store follows these rules.

They are checked in this order:

1. A fire that must never run is settled without running: its claim expired, its job was removed or is
   paused, or its deadline has passed.
2. A fire that is more than `LATE_S` late and was never attempted is left over from an outage.  It is held
   until its lane has room, whatever the policy.  Under `catch_up: latest` only the newest such fire of a job
   runs.  The newest is known only when the job is planned up to now; until then these fires are held.
3. If the lane has room, the fire runs.  If only the grace period of a finished fire fills it, the fire waits.
4. If the lane is full, the policy decides:
   `Forbid`   The fire is skipped.  A retry ends with its last outcome; a message fails.
   `Queue`    `WAITING_MAX` fires wait, the others are skipped.  All messages wait.
   `Replace`  The lane goes to the newest `max_running` fires that hold it or are due.  Older fires that are
              due are settled.  A first attempt also stops older holders; a retry stops nothing.  The newer
              fire starts when a place is free.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from detent.model import Fire, Outcome, State
from detent.rules.outcomes import (
    JOB_REMOVED,
    NEWER_INSTANT,
    contended,
    lane_awaited,
    lane_taken,
    missed,
    node_lost,
    paused,
    replaced_by,
)

LATE_S = 60.0  # a fire that starts later than this was delayed by an outage
WAITING_MAX = 1  # fires that wait for a full lane under `Queue`
HOST_EARLY_S = 60.0  # a host's clock may be ahead by less than this: the trigger waits for the instant
_LATE = timedelta(seconds=LATE_S)


class OpenFire(NamedTuple):
    """A fire that is not over."""

    fire: Fire
    state: State  # pending or claimed
    attempt: int  # attempts made, including a running one
    due: bool  # pending, and its instant or backoff has come
    live: bool  # claimed, and the claim has not expired
    waits: bool  # a decision was to wait for the lane
    node: str
    disposition: Outcome | None
    stop: Outcome | None
    outcome: Outcome | None  # of the last attempt
    number: int = 0  # in the order of recording

    @property
    def holds_lane(self) -> bool:
        return self.live and self.disposition is None


class Facts(NamedTuple):
    """What a decision depends on besides the fires of the lane."""

    now: datetime
    planned_until: datetime | None  # watermark of the job; None: the job was removed
    paused: str | None  # why the job is paused; None: it is not paused
    newer_due: bool  # a newer instant of the same job is open and due
    graces: int = 0  # places of the lane taken by the grace periods of finished fires


class Judgement(NamedTuple):
    step: Literal["run", "wait", "hold", "settle"]
    disposition: Outcome | None = None  # for "settle"
    stop: tuple[str, ...] = ()  # for "wait": keys of holders to stop


RUN, WAIT, HOLD = Judgement("run"), Judgement("wait"), Judgement("hold")


def judge(me: OpenFire, lane: Sequence[OpenFire], facts: Facts) -> Judgement:
    """Decide about a due fire.  `lane` lists all open fires of its lane, `me` included."""
    if disposition := disposition_of(me, facts):
        return Judgement("settle", disposition)
    if is_late(me, facts.now):
        return _catch_up(me, lane, facts)
    if not me.fire.lane:
        return RUN
    if me.fire.policy.concurrency == "Replace":
        return _replace(me, lane, facts)
    room = _room(me, lane, facts)
    if room > 0:
        return RUN
    if room + facts.graces > 0:
        return WAIT
    return _WHEN_FULL[me.fire.policy.concurrency](me, lane)


def disposition_of(me: OpenFire, facts: Facts) -> Outcome | None:
    """Return the outcome of a due fire that must never run, whatever the state of its lane."""
    fire = me.fire
    if me.disposition:
        return me.disposition
    if me.state == "claimed":
        return me.stop or node_lost(me.node)
    if fire.origin == "schedule" and facts.planned_until is None:
        return JOB_REMOVED
    if me.attempt:
        return None
    if fire.origin == "schedule" and facts.paused is not None:
        return paused(facts.paused)
    if fire.start_by is not None and fire.start_by < facts.now:
        return missed(fire.start_by)
    return None


def is_late(me: OpenFire, now: datetime) -> bool:
    """Was the fire delayed by an outage?  A fire that waits for its lane was not."""
    return me.fire.origin == "schedule" and not me.attempt and not me.waits and me.fire.due_at + _LATE < now


def _catch_up(me: OpenFire, lane: Sequence[OpenFire], facts: Facts) -> Judgement:
    latest = me.fire.policy.catch_up == "latest"
    if latest and facts.planned_until is not None and facts.planned_until < facts.now:
        return HOLD
    if me.fire.lane and _room(me, lane, facts) <= 0:
        return HOLD
    if latest and facts.newer_due:
        return Judgement("settle", NEWER_INSTANT)
    return RUN


def _room(me: OpenFire, lane: Sequence[OpenFire], facts: Facts) -> int:
    return me.fire.policy.max_running - sum(one.holds_lane for one in lane) - facts.graces


def _forbid(me: OpenFire, lane: Sequence[OpenFire]) -> Judgement:
    holder = next(one.fire.key for one in lane if one.holds_lane)
    if me.attempt or me.fire.origin == "push":
        return Judgement("settle", contended(me.outcome.kind if me.outcome else "failed", holder))
    return Judgement("settle", lane_taken(holder))


def _queue(me: OpenFire, lane: Sequence[OpenFire]) -> Judgement:
    waiting = [one.fire.key for one in lane if one.state == "pending" and one.waits]
    if me.waits or me.attempt or len(waiting) < WAITING_MAX or me.fire.origin == "push":
        return WAIT
    return Judgement("settle", lane_awaited(waiting[0]))


def _replace(me: OpenFire, lane: Sequence[OpenFire], facts: Facts) -> Judgement:
    rivals = [one for one in lane if one.holds_lane or _may_replace(one, facts.now)]
    rivals.sort(key=lambda one: (one.fire.due_at, one.fire.key), reverse=True)
    newest = [one.fire.key for one in rivals[: me.fire.policy.max_running]]
    if me.fire.key not in newest:
        return Judgement("settle", replaced_by(newest[0]))
    if _room(me, lane, facts) > 0:
        return RUN
    if me.attempt:
        return WAIT
    older = [one for one in lane if one.holds_lane and one.fire.key not in newest]
    return Judgement("wait", stop=tuple(one.fire.key for one in older if not one.stop))


def _may_replace(one: OpenFire, now: datetime) -> bool:
    if one.state != "pending" or not one.due or one.disposition or is_late(one, now):
        return False
    start_by = one.fire.start_by
    return bool(one.attempt) or start_by is None or start_by >= now


_WHEN_FULL: dict[str, Callable[[OpenFire, Sequence[OpenFire]], Judgement]] = {
    "Forbid": _forbid,
    "Queue": _queue,
}
