"""May a fire that is due run now?  Pure, and the same for every store.

A fire that is due is judged against its lane.  In this order:

1. It has a sentence already, its claim has expired, its job is gone, it is paused or too late: it is
   sentenced, that is, granted to be settled and not to be run.
2. Instants of an outage (more than `LATE_S` late, never attempted) are held until their lane has
   room, under every policy; under `catch_up: latest` only the newest of a job runs, and nobody can
   tell which that is before the job is planned up to now, so until then the fire is held too.
3. There is room: it runs.  Only the grace of a fire that is over fills the lane: it waits.
4. The lane is full.  `Forbid`: sentenced, naming the holder; a retry ends with its last outcome, a
   message as failed.  `Queue`: one waits, the others are sentenced; of messages all wait.  `Replace`: the
   lane belongs to the newest `width` of those who hold it or are due for it; an older holder is told to
   stop (by a first attempt: a retry replaces nobody), an older waiter is sentenced, and the heir starts
   when a place is really free.
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

LATE_S = 60.0  # later than this, a fire that was never attempted is an instant of an outage
HOST_EARLY_S = 60.0  # a host's clock may be early by less than this: the trigger waits for the instant
_LATE = timedelta(seconds=LATE_S)


class OpenFire(NamedTuple):
    """One open fire, as the rules see it."""

    fire: Fire
    state: State  # pending | claimed
    attempt: int  # attempts made, or under way
    due: bool  # pending, and its instant or backoff has come
    live: bool  # claimed, and the claim has not expired
    waits: bool  # it was told to wait for its lane
    node: str
    disposition: Outcome | None
    stop: Outcome | None
    outcome: Outcome | None  # of the last attempt


class Facts(NamedTuple):
    """What else a judgement depends on."""

    now: datetime
    planned_until: datetime | None  # the job's mark; None: there is no such job any more
    paused: str | None  # why its job is paused; None: it is not
    newer_due: bool  # a newer instant of the same job is open and due
    graces: int = 0  # places of the lane that are kept by the grace of fires that are over


class Decision(NamedTuple):
    step: Literal["run", "wait", "hold", "settle"]
    disposition: Outcome | None = None
    stop: tuple[str, ...] = ()  # keys of holders that must go, for the sake of the fire judged


RUN, WAIT, HOLD = Decision("run"), Decision("wait"), Decision("hold")


def decide(me: OpenFire, lane: Sequence[OpenFire], facts: Facts) -> Decision:
    """`lane` holds every open fire of the lane, the one judged among them; empty if it has none."""
    if disposition := disposition_of(me, facts):
        return Decision("settle", disposition)
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
    """Why a fire that is due may never run, whatever its lane looks like."""
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
    """Is it an instant of an outage?  One that waits for its lane is not: it was there in time."""
    return me.fire.origin == "schedule" and not me.attempt and not me.waits and me.fire.due_at + _LATE < now


def _catch_up(me: OpenFire, lane: Sequence[OpenFire], facts: Facts) -> Decision:
    latest = me.fire.policy.catch_up == "latest"
    if latest and facts.planned_until is not None and facts.planned_until < facts.now:
        return HOLD
    if me.fire.lane and _room(me, lane, facts) <= 0:
        return HOLD
    if latest and facts.newer_due:
        return Decision("settle", NEWER_INSTANT)
    return RUN


def _holders(lane: Sequence[OpenFire]) -> list[OpenFire]:
    return [one for one in lane if one.live and one.disposition is None]


def _room(me: OpenFire, lane: Sequence[OpenFire], facts: Facts) -> int:
    return me.fire.policy.max_running - len(_holders(lane)) - facts.graces


def _forbid(me: OpenFire, lane: Sequence[OpenFire]) -> Decision:
    holder = _holders(lane)[0].fire.key
    if me.attempt or me.fire.origin == "push":
        return Decision("settle", contended(me.outcome.kind if me.outcome else "failed", holder))
    return Decision("settle", lane_taken(holder))


def _queue(me: OpenFire, lane: Sequence[OpenFire]) -> Decision:
    waiting = [one.fire.key for one in lane if one.state == "pending" and one.waits]
    if me.waits or me.attempt or not waiting or me.fire.origin == "push":
        return WAIT
    return Decision("settle", lane_awaited(waiting[0]))


def _replace(me: OpenFire, lane: Sequence[OpenFire], facts: Facts) -> Decision:
    heirs = _heirs(me, lane, facts.now)
    if me.fire.key not in heirs:
        return Decision("settle", replaced_by(heirs[0]))
    if _room(me, lane, facts) > 0:
        return RUN
    if me.attempt:
        return WAIT
    gone = [one.fire.key for one in _holders(lane) if one.fire.key not in heirs and not one.stop]
    return Decision("wait", stop=tuple(gone))


def _heirs(me: OpenFire, lane: Sequence[OpenFire], now: datetime) -> list[str]:
    """The newest of those who hold the lane or are due for it, newest first."""
    rivals = [one for one in lane if (one.live and one.disposition is None) or _may_replace(one, now)]
    rivals.sort(key=lambda one: (one.fire.due_at, one.fire.key), reverse=True)
    return [one.fire.key for one in rivals[: me.fire.policy.max_running]]


def _may_replace(one: OpenFire, now: datetime) -> bool:
    if one.state != "pending" or not one.due or one.disposition or is_late(one, now):
        return False
    start_by = one.fire.start_by
    return bool(one.attempt) or start_by is None or start_by >= now


_WHEN_FULL: dict[str, Callable[[OpenFire, Sequence[OpenFire]], Decision]] = {
    "Forbid": _forbid,
    "Queue": _queue,
}
