"""Bugs planted into the engine and the rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import count
from typing import Any

from detent.clock import instant
from detent.model import Ask, Claim, Fire, Grants, Outcome, Plan, Report, Verdict, Watermarks
from detent.rules import decide as deciding
from detent.rules import lanes
from detent.rules.decide import Decision
from detent.rules.lanes import RUN, Facts, Judgement, OpenFire
from detent.stores.engine import claiming, engine, finishing, grouping, planning
from detent.stores.engine.driver import Expect, Write
from detent.stores.engine.engine import Engine
from detent.stores.engine.record import Record
from detent.stores.engine.unit import Unit
from detent.testing.sim.checked_store import CheckedStore
from detent.testing.sim.mutants.registry import patch

EPOCH = instant(0)
NUMBERS = count(1)
Judge = Callable[[OpenFire, Sequence[OpenFire], Facts], Judgement]

# Asks.


@patch(Engine, "claim", "gentle")
def repeated_ask_is_granted_again(original: Any, self: Engine, ask: Ask) -> Grants:
    """The store does not recognise a repeated ask."""
    grants: Grants = original(self, ask._replace(number=next(NUMBERS)))
    return grants


@patch(Engine, "claim", "gentle")
def late_ask_is_granted(original: Any, self: CheckedStore, ask: Ask) -> Grants:
    """The store recognises only the newest ask; an older one that arrives late counts as new."""
    asks = self.checked.state.asks
    if ask.number < asks.get(ask.node, (0, 0.0))[0]:
        asks[ask.node] = ask.number - 1, 0.0
    grants: Grants = original(self, ask)
    return grants


@patch(claiming.Claiming, "_answer_again")
def repeated_ask_does_not_renew_claims(original: Any, self: Any, mine: Any) -> Any:
    """A repeated ask returns the same claims, but with the expiry of the first answer."""
    self._unit.write = lambda record, **_: None
    return original(self, mine)


# Lanes.


@patch(deciding, "judge")
def replacement_starts_before_holder_ends(
    original: Judge, me: OpenFire, lane: Sequence[OpenFire], facts: Facts
) -> Judgement:
    judged = original(me, lane, facts)
    replaces = judged.step == "wait" and me.fire.policy.concurrency == "Replace"
    return judged._replace(step="run") if replaces else judged


@patch(deciding, "judge")
def retry_ignores_its_lane(
    original: Judge, me: OpenFire, lane: Sequence[OpenFire], facts: Facts
) -> Judgement:
    judged = original(me, lane, facts)
    return RUN if judged.step == "settle" and me.attempt and me.state == "pending" else judged


@patch(deciding, "judge")
def every_late_fire_runs(original: Judge, me: OpenFire, lane: Sequence[OpenFire], facts: Facts) -> Judgement:
    """The store applies `latest` before the job is planned completely."""
    judged = original(me, lane, facts)
    return RUN if judged.step == "hold" else judged


@patch(deciding, "judge")
def expired_claim_is_granted_again(
    original: Judge, me: OpenFire, lane: Sequence[OpenFire], facts: Facts
) -> Judgement:
    """A fire whose node died runs again, without a verdict about its first attempt."""
    return RUN if me.state == "claimed" and not me.disposition else original(me, lane, facts)


@patch(lanes, "_room")
def lane_has_one_place_more(original: Any, me: OpenFire, lane: Any, facts: Facts) -> int:
    room: int = original(me, lane, facts)
    return room + 1


@patch(deciding, "_facts")
def pause_does_not_count(original: Any, view: Any, me: OpenFire, lane: Any) -> Facts:
    facts: Facts = original(view, me, lane)
    return facts._replace(paused=None)


@patch(deciding, "_facts")
def grace_does_not_fill_the_lane(original: Any, view: Any, me: OpenFire, lane: Any) -> Facts:
    facts: Facts = original(view, me, lane)
    return facts._replace(graces=0)


@patch(deciding.Lane, "change", "calm")
def page_does_not_see_its_own_grants(original: Any, self: Any, changed: OpenFire) -> None:
    """Two fires of one lane that are due together both run."""


@patch(deciding, "_wait")
def parking_does_not_touch_the_lane(original: Any, *args: Any) -> list[Decision]:
    """A fire is parked although its lane became free after the look."""
    return [one._replace(touches=frozenset()) for one in original(*args)]


@patch(grouping, "components")
def decisions_of_a_lane_are_committed_apart(original: Any, decisions: Sequence[Decision]) -> Any:
    """A fire is skipped because of another one whose grant is refused."""
    return [[one] for one in decisions]


@patch(grouping, "_has_room")
def settled_fire_wakes_nobody(original: Any, view: Any, fire: Fire) -> bool:
    """The fire that was woken is settled, and the next ones of its lane stay parked."""
    return False


# Claims.


@patch(engine, "renew")
def renewal_ignores_fence(original: Any, unit: Unit, claim: Claim) -> Outcome | None:
    record = unit.records.get(claim.fire.key)
    outcome: Outcome | None = original(unit, claim._replace(fence=record.fence) if record else claim)
    return outcome


@patch(engine, "renew")
def expired_claim_is_renewed(original: Any, unit: Unit, claim: Claim) -> Outcome | None:
    record = unit.records.get(claim.fire.key)
    if record is None or record.fence != claim.fence or record.state != "claimed":
        return original(unit, claim)  # type: ignore[no-any-return]
    record.expires = unit.steady + claim.ttl_s
    unit.write(record)
    return record.stop


@patch(engine, "renew")
def renewal_is_not_written(original: Any, unit: Unit, claim: Claim) -> Outcome | None:
    outcome: Outcome | None = original(unit, claim)
    unit.writes.pop(claim.fire.key, None)
    return outcome


# Finishing.


@patch(engine, "finish")
def repeated_finish_is_refused(original: Any, unit: Unit, report: Report) -> Verdict | None:
    record = unit.records.get(report.claim.fire.key)
    return original(unit, report) if record and record.state == "claimed" else None


@patch(engine, "finish")
def finish_ignores_fence(original: Any, unit: Unit, report: Report) -> Verdict | None:
    record = unit.records.get(report.claim.fire.key)
    claim = report.claim._replace(fence=record.fence) if record else report.claim
    verdict: Verdict | None = original(unit, report._replace(claim=claim))
    return verdict


@patch(engine, "finish")
def finish_returns_reported_verdict(original: Any, unit: Unit, report: Report) -> Verdict | None:
    """`finish` returns the reported verdict instead of the one that stands."""
    return original(unit, report) and report.verdict


@patch(engine, "finish")
def hooks_are_not_recorded(original: Any, unit: Unit, report: Report) -> Verdict | None:
    """Hooks are not recorded in the same commit as the end of their fire."""
    verdict: Verdict | None = original(unit, report._replace(follow=()))
    return verdict


@patch(finishing, "_free_lane")
def finish_does_not_change_the_lane(original: Any, unit: Unit, fire: Fire, grace_s: float) -> None:
    """Decisions that saw the lane full are committed after it became free."""
    before = dict(unit.set_cells)
    original(unit, fire, grace_s)
    if not grace_s:
        unit.set_cells = before


@patch(finishing, "_free_lane")
def finish_wakes_nobody(original: Any, unit: Unit, fire: Fire, grace_s: float) -> None:
    original(unit, fire, grace_s)
    unit.wakes.clear()


@patch(finishing, "_free_lane")
def finish_keeps_no_grace(original: Any, unit: Unit, fire: Fire, grace_s: float) -> None:
    original(unit, fire, 0.0)


@patch(grouping, "late_hooks_of", "deploy")
def late_hook_stays_when_its_fire_starts(original: Any, fire: Fire) -> tuple[str, ...]:
    return ()


# Planning.


@patch(Engine, "advance", "failover")
def plan_leaves_gap(original: Any, self: Engine, app: str, plans: Sequence[Plan]) -> Watermarks:
    """The store accepts a plan wherever it starts."""
    watermarks: Watermarks = original(self, app, [plan._replace(since=EPOCH) for plan in plans])
    return watermarks


@patch(Engine, "advance")
def pruned_fire_is_planned_again(
    original: Any, self: CheckedStore, app: str, plans: Sequence[Plan]
) -> Watermarks:
    """Only recorded keys prevent a second fire, so a pruned fire can be planned again."""
    in_force, unit = self.checked.watermarks(app), Unit(self.driver, app)
    for plan in plans:
        if plan.job in in_force and in_force[plan.job].revision == plan.revision:
            for fire in plan.fires:
                unit.writes[fire.key] = Write(Record(fire, fire.due_at.timestamp()), 0)
    unit.commit(Expect())
    watermarks: Watermarks = original(self, app, plans)
    return watermarks


@patch(engine, "set_jobs")
def old_schedule_is_not_withdrawn(original: Any, unit: Unit, seen: int, revisions: Any) -> Watermarks:
    """Fires of the old schedule still run after a change."""
    unit.drop = lambda record: None  # type: ignore[method-assign]
    watermarks: Watermarks = original(unit, seen, revisions)
    return watermarks


@patch(engine, "set_jobs")
def changed_job_keeps_old_policy(original: Any, unit: Unit, seen: int, revisions: Any) -> Watermarks:
    """A due fire of an older revision keeps its old policy, but runs the new work."""

    def drop(record: Record) -> None:
        if record.fire.due_at > instant(unit.now):
            Unit.drop(unit, record)

    unit.drop = drop  # type: ignore[method-assign]
    watermarks: Watermarks = original(unit, seen, revisions)
    return watermarks


@patch(planning, "_revise", "failover")
def watermark_stays_ahead(original: Any, unit: Unit, revisions: Mapping[str, str]) -> None:
    """The new schedule starts where the plan of the old one ended."""
    original(unit, revisions)
    unit.set_jobs = [
        one._replace(at=job.at)
        if one.name in revisions and (job := unit.jobs.get(one.name)) and job.at is not None
        else one
        for one in unit.set_jobs
    ]


@patch(planning, "resume_at", "failover")
def clock_set_back_repeats_instants(
    original: Any, now: datetime, ended_at: Any, reached_at: Any, first_at: Any
) -> datetime:
    """A changed job continues from now, although a clock that was ahead launched later instants."""
    since: datetime = original(now, ended_at, None, first_at)
    return since


@patch(Engine, "set_jobs", "deploy")
def stale_jobs_are_accepted(original: Any, self: CheckedStore, app: str, seen: int, jobs: Any) -> Watermarks:
    """The store accepts jobs even if others were set in the meantime."""
    watermarks: Watermarks = original(self, app, self.checked.state.generations[app], jobs)
    return watermarks
