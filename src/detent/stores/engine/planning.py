"""Sets the jobs of an app, and records their plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from detent.clock import instant
from detent.model import Plan, Watermark, Watermarks
from detent.stores.base import GONE, NOTE_PREFIX, RETURN_S, continues, is_planned, resume_at
from detent.stores.encoding import instant_of
from detent.stores.engine import driver
from detent.stores.engine.driver import NO_JOB, Cells, Group, Jobs, JobState, SetJob, Wake, Write
from detent.stores.engine.finishing import WAKE
from detent.stores.engine.record import Record
from detent.stores.engine.unit import Unit


def set_jobs(unit: Unit, seen: int, revisions: Mapping[str, str]) -> Watermarks:
    unit.look(Jobs())
    in_force = {name: state for name, state in unit.jobs.items() if state.at is not None}
    if seen != unit.header.generation or revisions == {name: job.revision for name, job in in_force.items()}:
        return watermarks(unit, in_force)
    removed = [name for name in in_force if name not in revisions]
    changed = [
        name for name, revision in revisions.items() if unit.jobs.get(name, NO_JOB).revision != revision
    ]
    _remove(unit, removed)
    _revise(unit, {name: revisions[name] for name in changed})
    committed = unit.commit(driver.Expect(generation=seen, new_generation=True, wakes_nodes=True))
    assert committed
    after = {name: job for name, job in in_force.items() if name in revisions}
    for job in unit.set_jobs:
        if job.at is not None:
            after[job.name] = unit.jobs[job.name]._replace(at=job.at, revision=job.revision)
    return watermarks(unit, after)._replace(generation=seen + 1)


def _remove(unit: Unit, names: Sequence[str]) -> None:
    """The planned fires of a removed job stay, and are cancelled when they are due."""
    for name in names:
        job = unit.jobs[name]
        unit.set_jobs.append(SetJob(name, None, "", job.version))
        unit.wakes.append(Wake(job=name))
        unit.set_note(GONE + name, str(job.at), RETURN_S)


def _revise(unit: Unit, revisions: Mapping[str, str]) -> None:
    """Set new and changed jobs.  Withdraws what was planned and never claimed: it is planned again."""
    if not revisions:
        return
    names = tuple(revisions)
    records, *_ = unit.look(
        driver.Planned(names), Cells(tuple(f"{NOTE_PREFIX}{GONE}{name}" for name in names)), Jobs(names)
    )
    planned: dict[str, list[Record]] = {}
    for record in records:
        if is_planned(record.fire):
            planned.setdefault(record.fire.job, []).append(record)
    for name, revision in revisions.items():
        job, gone = unit.jobs[name], unit.note(GONE + name)
        ended_at = instant_of(gone or None) if job.at is None else instant(job.at)
        reached_at = instant_of(job.reached)
        ours = planned.get(name, [])
        starts = [one.fire.first_at or one.fire.due_at for one in ours if one.fire.origin == "schedule"]
        first_at = min((at for at in starts if not reached_at or at > reached_at), default=None)
        since = resume_at(instant(unit.now), ended_at, reached_at, first_at)
        for record in ours:
            if ended_at is None or (record.fire.first_at or record.fire.due_at) > since:
                unit.drop(record)
        unit.wakes += [Wake(lane=lane, most=WAKE) for lane in sorted({one.fire.lane for one in ours} - {""})]
        unit.set_jobs.append(SetJob(name, since.timestamp(), revision, job.version))
        unit.wakes.append(Wake(job=name))
        if gone:
            unit.set_note(GONE + name, "")


def advance(unit: Unit, plans: Sequence[Plan]) -> Watermarks:
    unit.look(Jobs(tuple(dict.fromkeys(plan.job for plan in plans))))
    at = {name: job.at for name, job in unit.jobs.items()}
    groups, longest_ttl_s = [], 0.0
    for plan in plans:
        job, since = unit.jobs[plan.job], at[plan.job]
        if since is None or job.revision != plan.revision or not continues(plan, instant(since)):
            continue
        new = [fire for fire in plan.fires if (fire.first_at or fire.due_at) > instant(since)]
        at[plan.job] = until = plan.until.timestamp()
        longest_ttl_s = max([longest_ttl_s, *(fire.policy.claim_s for fire in new)])
        groups.append(
            Group(
                writes=[Write(Record(fire, fire.due_at.timestamp()), 0) for fire in new],
                jobs=[SetJob(plan.job, until, plan.revision, job.version)],
            )
        )
    if groups:
        unit.commit_groups(driver.Expect(longest_ttl_s=longest_ttl_s), groups)
    return watermarks(unit, {name: job._replace(at=at[name]) for name, job in unit.jobs.items()})


def watermarks(unit: Unit, jobs: Mapping[str, JobState]) -> Watermarks:
    left_s = unit.header.quarantined_until - unit.steady
    return Watermarks(
        now=instant(unit.now),
        epoch=unit.header.epoch,
        generation=unit.header.generation,
        by_job={
            name: Watermark(instant(job.at), job.revision, instant_of(job.succeeded))
            for name, job in jobs.items()
            if job.at is not None
        },
        quarantined_until=instant(unit.now + left_s) if left_s > 0 else None,
    )
