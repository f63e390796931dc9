"""Gathers what `detent status` shows from the store and the manifest, and sums it up in one sentence.

- A fire is late if it has not started `late_after_seconds` after it was due (default: 5 s).  A message, or a
  fire that waits for its lane, is late after a minute.  An instant that no node has planned is late, too.
- A queue is unserved if something waits in it and no live node serves it.
- A job is failing if it failed within a day and has not succeeded since.
- A test note is written to the store: only that shows whether it accepts writes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from detent.errors import StoreUnavailable
from detent.manifest.check import Manifest
from detent.model import Kind, Query, Row, Size, Watermark, Watermarks
from detent.rules.lanes import LATE_S
from detent.rules.lateness import is_late, late_since, unplanned_since
from detent.rules.rates import without_priority
from detent.stores.base import Store, app_of, find_all, probe
from detent.text import listed, plural
from detent.views.context import Context
from detent.views.formatting import iso, local_time, relative
from detent.views.json_records import fire_record, names_record
from detent.views.lookup import NOT_HOOKS, SCAN_MAX, apps_of, find_job, known_jobs
from detent.views.nodes import NodeStatus, find_nodes, node_record, remarks
from detent.views.pauses import Pause, find_pauses, pause_record

LATELY = timedelta(days=1)
LOOK_MAX = 2_000  # failures of the last day, and waiting messages, that are read
QUEUES_MAX = 100  # queues whose oldest message is read
BAD: tuple[Kind, ...] = ("failed", "rejected", "timed-out", "lost", "missed")


class NextFire(NamedTuple):
    due_at: datetime
    job: str
    paused: bool


class Failure(NamedTuple):
    """The failures of a job within a day."""

    last: Row
    times: int
    well_at: datetime | None  # when it succeeded after the last one


class Late(NamedTuple):
    """Fires of a job that should have started."""

    job: str
    due_at: datetime  # the oldest
    why: str
    times: int = 1


class Unserved(NamedTuple):
    app: str
    queue: str
    waiting: int


class Overview(NamedTuple):
    now: datetime
    app: str
    running: Sequence[Row] = ()
    coming: Sequence[NextFire] = ()
    failures: Sequence[Failure] = ()
    late: Sequence[Late] = ()
    retrying: Sequence[Row] = ()
    pauses: Sequence[Pause] = ()
    unserved: Sequence[Unserved] = ()
    nodes: Sequence[NodeStatus] = ()
    quarantined_until: datetime | None = None
    refusal: str = ""  # why the store accepts no writes
    has_store: bool = True

    @property
    def alive(self) -> list[NodeStatus]:
        return [node for node in self.nodes if not node.is_dead]

    @property
    def failing(self) -> list[Failure]:
        return [failure for failure in self.failures if failure.well_at is None]


def look(context: Context, now: datetime) -> Overview:
    """`now` is used without a store only; otherwise the store's clock decides what is late."""
    overview = Overview(now, context.app, has_store=context.store is not None)
    pauses: dict[str, Pause] = {}
    if store := context.store:
        by_app = {app: store.look(app) for app in apps_of(context)}
        now = max((watermarks.now for watermarks in by_app.values()), default=now)
        pauses = find_pauses(store, by_app)
        overview = overview._replace(now=now, pauses=[*pauses.values()], nodes=find_nodes(store, by_app))
        overview = _with_store(overview, store, by_app)
        overview = _with_fires(overview, context, store, by_app)
    return overview._replace(coming=sorted(_coming(context, now, pauses)))


def _with_store(overview: Overview, store: Store, by_app: Mapping[str, Watermarks]) -> Overview:
    ends = [watermarks.quarantined_until for watermarks in by_app.values() if watermarks.quarantined_until]
    refusal = ""
    for app in [*by_app][:1]:
        try:
            probe(store, app)
        except StoreUnavailable as error:
            refusal = str(error)
    return overview._replace(quarantined_until=max(ends, default=None), refusal=refusal)


def _with_fires(
    overview: Overview, context: Context, store: Store, by_app: Mapping[str, Watermarks]
) -> Overview:
    now, query = overview.now, Query(app=context.app, limit=SCAN_MAX)
    waiting = query._replace(state="pending", until=now)
    running = find_all(store, query._replace(state="claimed", origins=NOT_HOOKS))
    planned = find_all(store, waiting._replace(origins=("schedule", "manual")))
    messages = find_all(store, waiting._replace(origins=("push",), limit=LOOK_MAX))
    lately = query._replace(state="over", origins=NOT_HOOKS, since=now - LATELY, until=now, limit=LOOK_MAX)
    failed = store.find(lately._replace(kinds=BAD))
    marks = {name: mark for watermarks in by_app.values() for name, mark in watermarks.by_job.items()}
    sizes = {app: queue_sizes(store, app) for app in by_app}
    late = [*late_fires(planned, running, overview.alive, now)]
    late += _late_messages(store, sizes, overview.alive, now)
    if context.manifest:
        late += unplanned(context.manifest, by_app[context.app], now)
    known = {*known_jobs(context)}
    return overview._replace(
        running=sorted(running, key=lambda row: row.claimed_at or now),
        retrying=[row for row in (*planned, *messages) if row.attempt],
        late=merge_late(late),
        unserved=unserved_queues(sizes, planned, overview),
        failures=failures([row for row in failed if row.fire.job in known], marks),
        pauses=[pause for pause in overview.pauses if pause.job in known],
    )


def queue_sizes(store: Store, app: str) -> dict[str, Size]:
    """The queues of the app, without those of locks and triggers, which have a slash and serve themselves."""
    return {queue: size for queue, size in store.count(app).items() if "/" not in queue}


def late_fires(
    planned: list[Row], running: list[Row], nodes: Sequence[NodeStatus], now: datetime
) -> Iterator[Late]:
    holders = {row.fire.lane: row.fire.key for row in running if row.fire.lane}
    for row in planned:
        fire, holder = row.fire, holders.get(row.fire.lane, "")
        if due_at := late_since(row, now, waits_for_lane=bool(holder)):
            why = f"waits for {holder}" if holder else ""
            yield Late(fire.job, due_at, _why(fire.queue, nodes) or why)


def _late_messages(
    store: Store, sizes: Mapping[str, Mapping[str, Size]], nodes: Sequence[NodeStatus], now: datetime
) -> Iterator[Late]:
    """Only the oldest message of each queue: thousands can wait behind it."""
    queues = [(app, queue, size) for app, some in sizes.items() for queue, size in some.items()]
    for app, queue, size in [one for one in queues if one[2].pending][:QUEUES_MAX]:
        for row in store.find(oldest_message(app, queue)):
            if late := late_message(row, size, nodes, now):
                yield late


def oldest_message(app: str, queue: str) -> Query:
    return Query(app=app, queues=(queue,), origins=("push",), upcoming=True, limit=1)


def late_message(row: Row, size: Size, nodes: Sequence[NodeStatus], now: datetime) -> Late | None:
    """`row` is the oldest message of its queue."""
    due_at, queue = row.run_at or row.fire.due_at, row.fire.queue
    if not is_late(due_at, row.fire.policy.late_after_s or LATE_S, now):
        return None
    waiting = "message waits" if size.pending == 1 else "messages wait"
    return Late(row.fire.job, due_at, _why(queue, nodes) or f"{size.pending:,} {waiting} in queue {queue}")


def _why(queue: str, nodes: Sequence[NodeStatus]) -> str:
    if nodes and without_priority(queue) not in _served(nodes):
        return f"no live node serves its queue {without_priority(queue)}"
    return ""


def _served(nodes: Sequence[NodeStatus]) -> set[str]:
    return {queue for node in nodes for queue in node.heartbeat.queues}


def unserved_queues(
    sizes: Mapping[str, Mapping[str, Size]], planned: list[Row], overview: Overview
) -> list[Unserved]:
    waiting: Counter[tuple[str, str]] = Counter()
    for app, queues in sizes.items():
        for queue, size in queues.items():
            waiting[app, without_priority(queue)] += size.pending + size.delayed
    for row in planned:
        if "/" not in row.fire.queue:
            waiting[app_of(row.fire.job), row.fire.queue] += 1
    return [
        Unserved(app, queue, count)
        for (app, queue), count in sorted(waiting.items())
        if count and queue not in _served([node for node in overview.alive if node.app == app])
    ]


def unplanned(manifest: Manifest, watermarks: Watermarks, now: datetime) -> Iterator[Late]:
    """Due instants that no node has recorded as fires."""
    for job in manifest.jobs:
        watermark = watermarks.by_job.get(find_job(manifest, job.name))
        if watermark and (due_at := unplanned_since(job, watermark, now)):
            yield Late(job.name, due_at, "no node has planned it")


def merge_late(late: list[Late]) -> list[Late]:
    """Merge them by job, the oldest first."""
    found: dict[str, Late] = {}
    for one in sorted(late, key=lambda one: one.due_at):
        known = found.get(one.job)
        found[one.job] = known._replace(times=known.times + 1) if known else one
    return [*found.values()]


def failures(rows: Iterable[Row], marks: Mapping[str, Watermark]) -> list[Failure]:
    """Gather failed fires by job.  `rows`: the newest first."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.fire.job, []).append(row)
    return [_failure(some, marks.get(name)) for name, some in found.items()]


def _failure(rows: Sequence[Row], mark: Watermark | None) -> Failure:
    well_at = mark.succeeded_at if mark else None
    is_well = well_at is not None and well_at > (rows[0].over_at or rows[0].fire.due_at)
    return Failure(rows[0], sum(row.fire.instants for row in rows), well_at if is_well else None)


def _coming(context: Context, now: datetime, pauses: Mapping[str, Pause]) -> Iterator[NextFire]:
    for job in context.manifest.jobs if context.manifest else ():
        if due_at := job.schedule.after(now):
            yield next_fire(context.manifest, job.name, due_at, pauses)


def next_fire(
    manifest: Manifest | None, name: str, due_at: datetime, pauses: Mapping[str, Pause]
) -> NextFire:
    pause = pauses.get(find_job(manifest, name)) if manifest else None
    return NextFire(due_at, name, pause is not None and pause.holds_at(due_at))


def problems(overview: Overview) -> list[str]:
    """What is wrong, the most important first."""
    found = []
    if overview.refusal:
        found.append(f"THE STORE ACCEPTS NO WRITES: {overview.refusal}")
    if not overview.alive:
        found.append(_no_node(overview))
    if until := overview.quarantined_until:
        found.append(
            f"QUARANTINE: the store was restarted, restored, replaced or failed over; nothing starts before"
            f" {local_time(until, overview.now)}, when all older claims have expired"
        )
    if overview.alive and overview.late:
        found.append(_some(len(overview.late), f"{overview.late[0].job} is late", "jobs are late"))
    if overview.alive and overview.unserved:
        found.append(_unserved_words(overview.unserved))
    if failing := overview.failing:
        one = _failing(failing[0].last, overview.now)
        found.append(_some(len(failing), one, "jobs failed and have not succeeded since"))
    return found + remarks(overview.nodes)


def headline(overview: Overview) -> str:
    if found := problems(overview):
        return "; ".join(found)
    parts = [
        f"{plural(len(overview.alive), 'node')} alive",
        f"{len(overview.running)} running" if overview.running else "",
        f"{plural(len(overview.pauses), 'job')} paused" if overview.pauses else "",
        f"next {relative(overview.coming[0].due_at, overview.now)}" if overview.coming else "",
    ]
    return f"all well: {', '.join(filter(None, parts))}"


def _no_node(overview: Overview) -> str:
    start = "start `detent run`"
    if not overview.has_store:
        return f"nothing has run yet, and no node is alive: {start}"
    if late := overview.late:
        due = _some(len(late), f"{late[0].job} is due", "jobs are due")
        return f"NO NODE IS ALIVE, and {due}: {start}"
    return f"NO NODE IS ALIVE: {start}"


def _unserved_words(unserved: Sequence[Unserved]) -> str:
    names = [one.queue for one in unserved]
    queues = f"queue {names[0]}" if len(names) == 1 else f"queues {listed(names[:5], 'and')}"
    return f"no live node serves the {queues}: start `detent run --queues {','.join(names[:5])}`, or a worker"


def _some(count: int, one: str, many: str) -> str:
    return one if count == 1 else f"{count} {many}"


def _failing(row: Row, now: datetime) -> str:
    kind = row.outcome.kind if row.outcome else "failed"
    verb = f"was {kind}" if kind in ("rejected", "lost", "missed") else kind.replace("-", " ")
    return f"{row.fire.job} {verb} {relative(row.over_at or now, now)}"


def overview_record(overview: Overview) -> dict[str, Any]:
    return {
        "well": not problems(overview),
        "headline": headline(overview),
        "problems": problems(overview),
        "time": iso(overview.now),
        "running": [
            fire_record(row) | {"attempt": row.attempt, "started_at": iso(row.claimed_at)}
            for row in overview.running
        ],
        "next": [
            names_record(one.job) | {"due_at": iso(one.due_at), "paused": one.paused}
            for one in overview.coming
        ],
        "failed": [
            fire_record(one.last) | {"times": one.times, "succeeded_at": iso(one.well_at)}
            for one in overview.failures
        ],
        "late": [
            names_record(one.job) | {"due_at": iso(one.due_at), "times": one.times, "reason": one.why or None}
            for one in overview.late
        ],
        "retrying": [fire_record(row) | {"again_at": iso(row.run_at)} for row in overview.retrying],
        "paused": [pause_record(pause) for pause in overview.pauses],
        "nodes": [node_record(node) for node in overview.nodes],
        "unserved": [one._asdict() for one in overview.unserved],
        "quarantined_until": iso(overview.quarantined_until),
        "store_error": overview.refusal or None,
    }
