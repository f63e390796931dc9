"""Renews claims, settles fires, and cancels them."""

from __future__ import annotations

from collections.abc import Sequence

from detent.model import Claim, Fire, Outcome, Report, Verdict
from detent.rules.alerts import after_sending, judge_alert, trouble_of, trouble_text
from detent.rules.breakers import after_attempt, circuit_of, circuit_text
from detent.rules.outcomes import CLAIM_GONE
from detent.rules.pings import ping_delay_s, start_ping_of
from detent.rules.settling import keep_until
from detent.stores.base import BREAKER, LANE_PREFIX, NOTE_PREFIX, alert_note, is_repeated_alert
from detent.stores.encoding import graces_text, live_graces
from detent.stores.engine.driver import Cells, Fires, Progress, Wake
from detent.stores.engine.record import Record, attempt_of
from detent.stores.engine.unit import Conflict, Unit

WAKE = 4  # fires that look for a free place in their lane


def read_claims(unit: Unit, claims: Sequence[Claim]) -> None:
    unit.look(unit.unknown(claim.fire.key for claim in claims))


def read_reports(unit: Unit, reports: Sequence[Report]) -> None:
    """Read the records of these claims that are not known, and what settling them depends on."""
    names: list[str] = []
    for fire in (report.claim.fire for report in reports):
        if fire.policy.breaker:
            names.append(f"{NOTE_PREFIX}{BREAKER}{fire.policy.breaker}")
        if fire.lane and fire.policy.grace_s:
            names.append(LANE_PREFIX + fire.lane)
    follow = [one for report in reports for one in report.follow]
    hooks = [*follow, *(report.claim.fire for report in reports)]
    names += [f"{NOTE_PREFIX}{alert_note(one)}" for one in hooks if is_repeated_alert(one)]
    reused = [one.key for one in follow if one.policy.unique_s]
    pings = [key for key in (start_ping_of(report.claim.fire) for report in reports) if key]
    keys = [*(report.claim.fire.key for report in reports), *pings]
    unit.look(unit.unknown(keys, reused), Cells(tuple(dict.fromkeys(names))))


def renew(unit: Unit, claim: Claim) -> Outcome | None:
    record = unit.records.get(claim.fire.key)
    if record and not record.is_live(unit.steady) and claim.fire.key in unit.remembered:
        raise Conflict  # read it: the driver may have extended the claim when the server's clock was set
    if record is None or record.fence != claim.fence or not record.is_live(unit.steady):
        return CLAIM_GONE
    record.expires = unit.steady + claim.ttl_s
    unit.write(record, must_live=True)
    return record.stop


def finish(unit: Unit, report: Report) -> Verdict | None:
    record = unit.records.get(report.claim.fire.key)
    if record is None or record.fence != report.claim.fence:
        return None
    if record.state == "claimed":
        _settle(unit, record, report)
    return record.verdict


def _settle(unit: Unit, record: Record, report: Report) -> None:
    verdict, stop, fire, attempt = report.verdict, record.stop, record.fire, None
    follow: Sequence[Fire] = ()
    _leave_breaker(unit, fire, verdict.outcome)
    held_lane, grace_s = record.disposition is None, 0.0
    if verdict.counts and record.attempt > record.recorded:
        record.recorded, attempt = record.attempt, attempt_of(record, report, unit.now)
        grace_s = fire.policy.grace_s
    if not verdict.counts and record.disposition is None:
        record.attempt -= 1
    record.disposition = record.disposition if not verdict.counts else None
    if held_lane and fire.lane:
        _free_lane(unit, fire, grace_s)
    if verdict.again_in_s is None or stop:
        record.verdict = Verdict(stop) if stop and verdict.again_in_s is not None else verdict
        end(unit, record, record.verdict.outcome)
        if record.verdict == verdict:
            follow = report.follow
    else:
        record.outcome = verdict.outcome if verdict.counts else record.outcome
        record.verdict = verdict
        make_pending(record, unit.now + verdict.again_in_s)
    unit.write(record, attempt)
    if record.state == "over":
        _follow(unit, report.claim.fire, record.verdict.outcome, follow)


def _follow(unit: Unit, fire: Fire, outcome: Outcome, follow: Sequence[Fire]) -> None:
    """Record the fires that follow the end of this one, and what the addresses of alerts know then."""
    if is_repeated_alert(fire):
        name = alert_note(fire)
        _keep_trouble(unit, name, trouble_text(after_sending(trouble_of(unit.note(name)), outcome)))
    start = unit.records.get(start_ping_of(fire))
    if start and start.state == "pending":
        unit.drop(start)
    for one in follow:
        hook: Fire | None = one
        if is_repeated_alert(one):
            name = alert_note(one)
            trouble, hook = judge_alert(one, trouble_of(unit.note(name)), unit.now)
            _keep_trouble(unit, name, trouble_text(trouble))
        if hook:
            is_being_sent = start is not None and start.state == "claimed"
            unit.replace(hook, unit.now + ping_delay_s(hook, is_being_sent))


def _keep_trouble(unit: Unit, name: str, text: str) -> None:
    if text != unit.note(name):
        unit.set_note(name, text)


def make_pending(record: Record, run_at: float) -> None:
    record.state, record.run_at, record.look_at = "pending", run_at, run_at
    record.waits = record.is_parked = False
    if record.disposition and record.tier == "plain":
        record.tier = "judged"


def end(unit: Unit, record: Record, outcome: Outcome) -> None:
    fire = record.fire
    record.state, record.outcome, record.over_at = "over", outcome, unit.now
    record.waits = record.is_parked = False
    record.keep_until = keep_until(fire, outcome, unit.now)
    if outcome.kind == "succeeded" and fire.origin != "hook":
        unit.progress.append(Progress(fire.job, succeeded=unit.now))
    unit.drop_late_hooks(fire)


def cancel(unit: Unit, key: str, stop: Outcome) -> bool:
    unit.look(Fires((key,)))
    record = unit.records.get(key)
    if record is None or record.state == "over":
        return False
    record.stop = stop
    if record.state == "pending":
        if record.fire.origin == "schedule":
            unit.progress.append(Progress(record.fire.job, reached=record.fire.due_at.timestamp()))
        if record.fire.lane:
            unit.wakes.append(Wake(lane=record.fire.lane, most=WAKE))
        end(unit, record, stop)
    unit.write(record)
    return True


def _leave_breaker(unit: Unit, fire: Fire, outcome: Outcome) -> None:
    if not fire.policy.breaker:
        return
    name = BREAKER + fire.policy.breaker
    circuit = circuit_of(unit.note(name))
    after = after_attempt(circuit, fire.key, outcome, fire.policy.breaker_threshold, unit.now)
    if after != circuit:
        unit.set_note(name, circuit_text(after))


def _free_lane(unit: Unit, fire: Fire, grace_s: float) -> None:
    """Change the lane's version, so that decisions that saw it full are made again, and wake who waits."""
    name, free_at = LANE_PREFIX + fire.lane, 0.0
    if grace_s:
        graces = [*live_graces(unit.cells[name].text, unit.steady), (unit.steady + grace_s, grace_s)]
        unit.set_cell(name, graces_text(graces))
        free_at = unit.now + grace_s
    elif name not in unit.set_cells:
        unit.touch_cell(name)
    unit.wakes.append(Wake(lane=fire.lane, most=WAKE, at=free_at))
