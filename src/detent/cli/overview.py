"""What `detent status` tells: gathered from the store and the manifest, and summed up in one sentence.

- A fire is late if it has not started `late_after_seconds` after it was due, or a minute where a job does not
  say; an instant that no node has planned is late, too.
- A job is failing if it failed within a day, and has not succeeded since.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from detent.cli.context import Context
from detent.cli.names import NOT_HOOKS, SCAN_MAX, apps_of, find_job, known_jobs
from detent.cli.nodes import Alive, find_nodes, node_record, remarks
from detent.cli.pauses import Pause, find_pauses, pause_record
from detent.cli.records import fire_record
from detent.cli.words import iso, relative
from detent.core.lanes import LATE_S
from detent.core.manifest import Manifest
from detent.core.text import plural
from detent.model import Job, Mark, Policy, Query, Row
from detent.stores.base import Store

LATELY = timedelta(days=1)
LOOK_MAX = 2_000  # fires of the last day that are looked at
BAD = ("failed", "rejected", "timed-out", "lost", "missed")


class Coming(NamedTuple):
    """The next instant of a job."""

    due_at: datetime
    job: str
    paused: bool


class Failure(NamedTuple):
    """How a job failed lately."""

    last: Row
    times: int
    well_at: datetime | None  # when it succeeded since


class Late(NamedTuple):
    """What is due of a job and has not started."""

    job: str
    due_at: datetime  # the oldest
    why: str
    times: int = 1


class Overview(NamedTuple):
    now: datetime
    app: str
    running: Sequence[Row] = ()
    coming: Sequence[Coming] = ()
    failures: Sequence[Failure] = ()
    late: Sequence[Late] = ()
    retrying: Sequence[Row] = ()
    pauses: Sequence[Pause] = ()
    nodes: Sequence[Alive] = ()
    has_store: bool = True

    @property
    def failing(self) -> list[Failure]:
        return [failure for failure in self.failures if failure.well_at is None]


def look(context: Context, now: datetime) -> Overview:
    overview = Overview(now, context.app, has_store=context.store is not None)
    pauses: Sequence[Pause] = ()
    if store := context.store:
        apps = apps_of(context)
        pauses = [pause for app in apps for pause in find_pauses(store, app).values()]
        overview = overview._replace(pauses=pauses, nodes=find_nodes(store, apps))
        overview = _with_fires(overview, context, store)
    return overview._replace(coming=sorted(_coming(context, now, {pause.job: pause for pause in pauses})))


# What there is.


def _with_fires(overview: Overview, context: Context, store: Store) -> Overview:
    now, query = overview.now, Query(app=context.app, origins=NOT_HOOKS, limit=SCAN_MAX)
    running = store.find(query._replace(state="claimed"))
    pending = store.find(query._replace(state="pending", until=now))
    over = store.find(query._replace(state="over", since=now - LATELY, until=now, limit=LOOK_MAX))
    unplanned = _unplanned(context.manifest, store, now) if context.manifest else ()
    late = _by_job([*_late(pending, running, overview.nodes, now), *unplanned])
    known = {*known_jobs(context)}  # what became of a job that was removed needs nobody's attention
    return overview._replace(
        running=sorted(running, key=lambda row: row.claimed_at or now),
        retrying=[row for row in pending if row.attempt],
        late=late,
        failures=_failures([row for row in over if row.fire.job in known]),
        pauses=[pause for pause in overview.pauses if pause.job in known],
    )


def _late(pending: list[Row], running: list[Row], nodes: Sequence[Alive], now: datetime) -> Iterator[Late]:
    holders = {row.fire.lane: row.fire.key for row in running if row.fire.lane}
    served = {queue for node in nodes for queue in node.heartbeat.queues}
    for row in pending:
        fire = row.fire
        if row.attempt or not _is_late(fire.due_at, fire.policy, now):
            continue
        why = f"waits for {holders[fire.lane]}" if fire.lane in holders else ""
        if nodes and fire.queue not in served:
            why = f"no living node serves its queue {fire.queue}"
        yield Late(fire.job, fire.due_at, why)


def _unplanned(manifest: Manifest, store: Store, now: datetime) -> Iterator[Late]:
    """Instants that nobody has put on record although they are due."""
    marks = store.look(manifest.app).marks
    for job in manifest.jobs:
        mark: Mark | None = marks.get(find_job(manifest, job.name))
        due_at = job.schedule.after(mark.at) if mark else None
        if due_at and _is_late(due_at, job.policy, now):
            yield Late(job.name, due_at, "no node has planned it")


def _by_job(late: list[Late]) -> list[Late]:
    """One for each job, the oldest first."""
    found: dict[str, Late] = {}
    for one in sorted(late, key=lambda one: one.due_at):
        known = found.get(one.job)
        found[one.job] = known._replace(times=known.times + 1) if known else one
    return [*found.values()]


def _is_late(due_at: datetime, policy: Policy, now: datetime) -> bool:
    return due_at + timedelta(seconds=policy.late_after_s or LATE_S) < now


def _failures(over: list[Row]) -> list[Failure]:
    """One for each job, the newest first; `over` is the newest first, too."""
    found: dict[str, Failure] = {}
    well_at: dict[str, datetime | None] = {}
    for row in over:
        job, kind = row.fire.job, row.outcome.kind if row.outcome else ""
        if kind == "succeeded" and job not in found:
            well_at.setdefault(job, row.over_at)
        elif kind in BAD:
            known = found.get(job) or Failure(row, 0, well_at.get(job))
            found[job] = known._replace(times=known.times + row.fire.instants)
    return [*found.values()]


def _coming(context: Context, now: datetime, pauses: dict[str, Pause]) -> Iterator[Coming]:
    jobs: tuple[Job, ...] = context.manifest.jobs if context.manifest else ()
    for job in jobs:
        if due_at := job.schedule.after(now):
            pause = pauses.get(find_job(context.manifest, job.name)) if context.manifest else None
            yield Coming(due_at, job.name, pause is not None and pause.holds_at(due_at))


# In one sentence.


def problems(overview: Overview) -> list[str]:
    """What is wrong, what matters most first."""
    found = []
    if not overview.nodes:
        found.append(_nobody(overview))
    elif overview.late:
        found.append(_some(len(overview.late), f"{overview.late[0].job} is late", "jobs are late"))
    if failing := overview.failing:
        one = _failing(failing[0].last, overview.now)
        found.append(_some(len(failing), one, "jobs failed and have not succeeded since"))
    return found + remarks(overview.nodes)


def headline(overview: Overview) -> str:
    if found := problems(overview):
        return "; ".join(found)
    told = [
        f"{plural(len(overview.nodes), 'node')} alive",
        f"{len(overview.running)} running" if overview.running else "",
        f"{plural(len(overview.pauses), 'job')} paused" if overview.pauses else "",
        f"next {relative(overview.coming[0].due_at, overview.now)}" if overview.coming else "",
    ]
    return f"all well: {', '.join(word for word in told if word)}"


def _nobody(overview: Overview) -> str:
    start = "start `detent run`"
    if not overview.has_store:
        return f"nothing has run yet, and no node is alive: {start}"
    if late := overview.late:
        due = _some(len(late), f"{late[0].job} is due", "jobs are due")
        return f"NO NODE IS ALIVE, and {due}: {start}"
    return "NO NODE IS ALIVE: nothing runs before you start `detent run`"


def _some(count: int, one: str, many: str) -> str:
    return one if count == 1 else f"{count} {many}"


def _failing(row: Row, now: datetime) -> str:
    kind = row.outcome.kind if row.outcome else "failed"
    told = f"was {kind}" if kind in ("rejected", "lost", "missed") else kind.replace("-", " ")
    return f"{row.fire.job} {told} {relative(row.over_at or now, now)}"


# For programs.


def overview_record(overview: Overview) -> dict[str, Any]:
    return {
        "well": not problems(overview),
        "headline": headline(overview),
        "time": iso(overview.now),
        "running": [_running_record(row) for row in overview.running],
        "next": [
            _named(one.job) | {"due_at": iso(one.due_at), "paused": one.paused} for one in overview.coming
        ],
        "failed": [_failure_record(failure) for failure in overview.failures],
        "late": [_late_record(one) for one in overview.late],
        "retrying": [fire_record(row) | {"again_at": iso(row.run_at)} for row in overview.retrying],
        "paused": [pause_record(pause) for pause in overview.pauses],
        "nodes": [node_record(node) for node in overview.nodes],
    }


def _named(name: str) -> dict[str, Any]:
    app, _, job = name.partition(".")
    return {"app": app, "job": job}


def _running_record(row: Row) -> dict[str, Any]:
    return fire_record(row) | {"attempt": row.attempt, "started_at": iso(row.claimed_at)}


def _late_record(one: Late) -> dict[str, Any]:
    return _named(one.job) | {"due_at": iso(one.due_at), "times": one.times, "reason": one.why or None}


def _failure_record(failure: Failure) -> dict[str, Any]:
    return fire_record(failure.last) | {"times": failure.times, "succeeded_at": iso(failure.well_at)}
