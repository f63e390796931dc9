"""Decides what becomes of the due fires that one ask found.  The only copy of these rules, for every store.

`decide` takes a view of the store and the due fires, in order, and returns decisions.  The engine
(`stores.engine`) reads the view and commits the decisions.  Four rules hold for every view:

V1. Every fire that is decided is in the list of its lane.
V2. No fire is decided twice in one ask.
V3. A record that was read twice has one version; otherwise the view is torn, and the engine looks again.
V4. One reading of the clock holds for the whole view.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from detent.clock import instant
from detent.model import Ask, Fire, Outcome, Rate, Usage
from detent.rules.breakers import Circuit, after_grant, wait_s
from detent.rules.lanes import Facts, Judgement, OpenFire, judge
from detent.rules.outcomes import replaced_by
from detent.rules.rates import Charge, charged, charged_as, usage, without_priority

SETTLED_MAX = 200  # fires that one ask settles without running them, in addition to its limit
DELAYS_MAX = 500  # fires that one ask delays or parks: behind a breaker there may be a hundred thousand
NEVER = 9e15  # a wall clock reading that never comes


class Lane:
    """The open fires of a lane that decisions depend on, and the graces of finished fires."""

    def __init__(self, members: Sequence[OpenFire], grace_ends: Sequence[float]) -> None:
        self.members = sorted(members, key=lambda one: one.number)
        self.grace_ends = tuple(grace_ends)  # on the steady clock

    def add(self, me: OpenFire) -> None:
        """V1: of a long lane not all fires were read."""
        if not any(one.fire.key == me.fire.key for one in self.members):
            self.members = sorted([*self.members, me], key=lambda one: one.number)

    def change(self, changed: OpenFire) -> None:
        key = changed.fire.key
        self.members = [changed if one.fire.key == key else one for one in self.members]

    def room(self, width: int) -> int:
        return width - sum(one.holds_lane for one in self.members) - len(self.grace_ends)


class JobFacts(NamedTuple):
    planned_until: datetime | None  # None: the job was removed
    newest_due_at: datetime | None  # its newest open instant that is due


NO_JOB = JobFacts(None, None)


class View:
    """What decisions depend on, as one state of the store had it.  `decide` keeps it up to date with its own
    decisions, so that the next page of due fires is decided by the same rules."""

    def __init__(self, now: float, steady: float) -> None:
        self.now, self.now_at, self.steady = now, instant(now), steady
        self.lanes: dict[str, Lane] = {}
        self.jobs: dict[str, JobFacts] = {}
        self.pauses: Mapping[str, str] = {}
        self.rates: Mapping[str, Rate] = {}  # by queue without priority
        self.charges: dict[str, list[Charge]] = {}
        self.circuits: dict[str, Circuit] = {}
        self.probing: dict[str, bool] = {}  # breakers -> whether the fire that probes has a live claim
        self.decided: set[str] = set()
        self.passed_by: set[str] = set()  # lanes with room whose next fires this node cannot run

    def closed_s(self, queue: str) -> float:
        """How long the rate lets no fire of this queue start."""
        rate = self.rates.get(without_priority(queue))
        return self.usage(without_priority(queue), rate).free_in_s if rate and not rate.by_key else 0.0

    def usage(self, name: str, rate: Rate) -> Usage:
        return usage(self.charges.get(name, ()), rate, self.steady)

    def rate_of(self, fire: Fire) -> tuple[Rate | None, str]:
        """The rate of its queue, and the name under which the fire counts."""
        rate = self.rates.get(without_priority(fire.queue))
        return rate, charged_as(fire.queue, rate, fire.policy.rate_key) if rate else ""


class Room:
    """What the ask can still get."""

    def __init__(self, ask: Ask) -> None:
        self.runs, self.hooks, self.settled, self.delays = ask.limit, ask.hooks, SETTLED_MAX, DELAYS_MAX


class Decision(NamedTuple):
    """What to do with one fire.

    `run`     Grant a claim.
    `settle`  It must not run: end it with `outcome`.
    `stop`    It holds a lane that a newer fire takes: ask its node to stop it with `outcome`.
    `wait`    It waits for its lane until a place is free; look again at `until` (wall clock) at the latest.
    `park`    The same for a fire that is left over from an outage and does not count as waiting.
    `delay`   It is due again at `until`.

    `touches` names what the decision depends on and changes: lane/…, charge/…, breaker/….  Decisions that
    share one of them are committed together or not at all.
    """

    key: str
    step: Literal["run", "settle", "stop", "wait", "park", "delay"]
    touches: frozenset[str] = frozenset()
    outcome: Outcome | None = None
    until: float = 0.0


def decide(ask: Ask, view: View, due: Sequence[OpenFire], room: Room) -> list[Decision]:
    """Decide about the due fires in this order.  A fire without a decision stays as it is."""
    decisions: list[Decision] = []
    for me in due:
        if me.fire.key not in view.decided:
            made = _decide_one(ask, view, me, room)
            view.decided.update(one.key for one in made if one.step != "stop")
            decisions += made
    return decisions


def is_plain(fire: Fire) -> bool:
    """Whether nothing but its turn, and the rate of its queue, decides when it runs."""
    return fire.origin == "push" and not (
        fire.lane or fire.start_by or fire.policy.breaker or fire.policy.hooks
    )


def late_hooks_of(fire: Fire) -> tuple[str, ...]:
    """The keys of its `on_late` hooks, which are deleted when it starts or ends."""
    return tuple(f"{fire.key}/{hook}" for hook in fire.policy.hooks if hook.startswith("on_late"))


def _decide_one(ask: Ask, view: View, me: OpenFire, room: Room) -> list[Decision]:
    fire, lane = me.fire, view.lanes.get(me.fire.lane)
    touches = frozenset([f"lane/{fire.lane}"]) if lane else frozenset()
    if lane:
        lane.add(me)
    judged = judge(me, lane.members if lane else (), _facts(view, me, lane))
    stops = [_stop(lane, key, fire.key, touches) for key in judged.stop if lane]
    match judged.step:
        case "settle" if room.settled:
            room.settled -= 1
            if lane:
                lane.change(me._replace(state="claimed", disposition=judged.disposition))
            return [*stops, Decision(fire.key, "settle", touches, judged.disposition)]
        case "wait" | "hold" if lane and room.delays:
            return [*stops, *_wait(view, me, lane, judged, room)]
        case "run" if fire.job in ask.without:
            view.passed_by.update([fire.lane] if fire.lane else ())
        case "run":
            return [*stops, *_start(view, me, room, touches)]
    return stops


def _facts(view: View, me: OpenFire, lane: Lane | None) -> Facts:
    job = view.jobs.get(me.fire.job, NO_JOB)
    return Facts(
        now=view.now_at,
        planned_until=job.planned_until,
        paused=view.pauses.get(me.fire.job),
        newer_due=job.newest_due_at is not None and job.newest_due_at > me.fire.due_at,
        graces=len(lane.grace_ends) if lane else 0,
    )


def _stop(lane: Lane, key: str, heir: str, touches: frozenset[str]) -> Decision:
    holder = next(one for one in lane.members if one.fire.key == key)
    lane.change(holder._replace(stop=replaced_by(heir)))
    return Decision(key, "stop", touches, replaced_by(heir))


def _wait(view: View, me: OpenFire, lane: Lane, judged: Judgement, room: Room) -> list[Decision]:
    """Put the fire aside until a commit frees a place, a grace ends or its deadline passes.  A fire that
    replaces others stays in sight, because it also decides about older fires."""
    fire, touches = me.fire, frozenset([f"lane/{me.fire.lane}"])
    until = min((view.now + end - view.steady for end in lane.grace_ends), default=NEVER)
    if fire.start_by is not None and not me.attempt:
        until = min(until, fire.start_by.timestamp() + 0.001)
    if judged.step == "hold":
        if lane.room(fire.policy.max_running) > 0:
            return []  # it waits for a plan, not for the lane
        room.delays -= 1
        return [Decision(fire.key, "park", touches, until=until)]
    if fire.policy.concurrency == "Replace":
        if me.waits:
            return []
        until = 0.0
    room.delays -= 1
    lane.change(me._replace(waits=True))
    return [Decision(fire.key, "wait", touches, until=until)]


def _start(view: View, me: OpenFire, room: Room, touches: frozenset[str]) -> list[Decision]:
    """Grant the fire if the ask has room, and its queue's rate and its breaker allow it.  Hooks have neither,
    and room of their own."""
    fire, lane = me.fire, view.lanes.get(me.fire.lane)
    if fire.origin == "hook":
        if not room.hooks:
            return []
        room.hooks -= 1
    else:
        if not room.runs or view.closed_s(fire.queue):
            return []
        if delay_s := _delay_s(view, fire):
            if not room.delays:
                return []
            room.delays -= 1
            if lane:
                lane.change(me._replace(due=False))
            return [Decision(fire.key, "delay", until=view.now + delay_s)]
        room.runs -= 1
        touches |= _enter(view, fire)
    if lane:
        lane.change(me._replace(state="claimed", live=True, due=False))
    view.decided.update(late_hooks_of(fire))
    return [Decision(fire.key, "run", touches)]


def _delay_s(view: View, fire: Fire) -> float:
    rate, name = view.rate_of(fire)
    delay_s = view.usage(name, rate).free_in_s if rate and rate.by_key else 0.0
    if breaker := fire.policy.breaker:
        circuit, is_probing = view.circuits.get(breaker, Circuit()), view.probing.get(breaker, False)
        delay_s = max(delay_s, wait_s(circuit, fire.policy.breaker_cooldown_s, view.now, is_probing))
    return delay_s


def _enter(view: View, fire: Fire) -> frozenset[str]:
    """Count the fire for its rate, and let it probe an open breaker.  Returns what it touches."""
    touches: set[str] = set()
    rate, name = view.rate_of(fire)
    if rate:
        view.charges[name] = charged(view.charges.get(name, ()), rate, view.steady)
        touches.add(f"charge/{name}")
    breaker = fire.policy.breaker
    if breaker and (circuit := view.circuits.get(breaker, Circuit())).opened:
        view.circuits[breaker], view.probing[breaker] = after_grant(circuit, fire.key), True
        touches.add(f"breaker/{breaker}")
    return frozenset(touches)
