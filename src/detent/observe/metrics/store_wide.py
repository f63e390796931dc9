"""Renders the series of a whole store for Prometheus.  It reads the store, and writes nothing."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from detent.model import Job, Query, Watermarks
from detent.observe.metrics.prometheus import import_client
from detent.observe.metrics.series import STORE, Labels
from detent.rules.breakers import circuit_of
from detent.rules.lateness import late_since, unplanned_since
from detent.rules.rates import without_priority
from detent.stores.base import BREAKER, NODE, PAUSE, Store, app_of

JOBS_MAX = 500  # of an app
QUEUES_MAX = 100  # whose oldest message is read
WAITING_MAX = 2_000  # waiting fires that are read to find late ones
Value = tuple[str, Labels, float]


def render_store(store: Store, apps: Sequence[str], jobs: Iterable[Job]) -> bytes:
    """Return the store-wide series of these apps in the text format of Prometheus.

    `jobs`: the jobs of their manifests, whose next instants are computed; other jobs have no series."""
    client = import_client("/metrics")
    registry = client.CollectorRegistry()
    gauges = {one.name: client.Gauge(one.name, one.help, one.labels, registry=registry) for one in STORE}
    by_app: dict[str, list[Job]] = {app: [] for app in apps}
    for job in sorted(jobs, key=lambda job: job.name):
        by_app.get(app_of(job.name), []).append(job)
    for app, some in by_app.items():
        for name, labels, value in _values(store, app, some):
            gauges[name].labels(*labels).set(value)
    rendered: bytes = client.generate_latest(registry)
    return rendered


def _values(store: Store, app: str, jobs: Sequence[Job]) -> Iterator[Value]:
    watermarks = store.look(app)
    yield from _of_jobs(store, app, jobs[:JOBS_MAX], watermarks)
    yield "detent_jobs_omitted", (app,), max(0, len(jobs) - JOBS_MAX)
    yield from _of_queues(store, app, watermarks.now)
    for note in store.notes(app, BREAKER):
        yield (
            "detent_breaker_open",
            (app, note.name.removeprefix(BREAKER)),
            float(circuit_of(note.text).opened > 0),
        )
    beats = [note.written_at.timestamp() for note in store.notes(app, NODE)]
    yield "detent_nodes", (app,), len(beats)
    if beats:
        yield "detent_node_heartbeat_timestamp_seconds", (app,), max(beats)


def _of_jobs(store: Store, app: str, jobs: Sequence[Job], watermarks: Watermarks) -> Iterator[Value]:
    """A job that runs on every host has a fire, a watermark and a pause for each of them."""
    now, marks = watermarks.now, defaultdict(list)
    for name, mark in watermarks.by_job.items():
        marks[_without_host(name)].append(mark)
    paused = {_without_host(note.name.removeprefix(PAUSE)) for note in store.notes(app, PAUSE)}
    late = _late_jobs(store, app, now)
    for job in jobs:
        labels, due_at = (app, job.name.partition(".")[2]), job.schedule.after(now)
        is_late = job.name in late or any(unplanned_since(job, mark, now) for mark in marks[job.name])
        yield "detent_job_paused", labels, float(job.name in paused)
        yield "detent_job_late", labels, float(is_late)
        if due_at:
            yield "detent_job_next_timestamp_seconds", labels, due_at.timestamp()
        newest_at = job.schedule.before(now)
        if newest_at and (before_at := job.schedule.before(newest_at)):
            yield "detent_job_last_but_one_timestamp_seconds", labels, before_at.timestamp()
        if succeeded := [mark.succeeded_at for mark in marks[job.name] if mark.succeeded_at]:
            yield "detent_job_last_success_timestamp_seconds", labels, max(succeeded).timestamp()


def _late_jobs(store: Store, app: str, now: datetime) -> set[str]:
    """Read the oldest waiting fires last: of more than the limit, all are due, and most are late."""
    waiting = Query(app=app, state="pending", origins=("schedule", "manual"), until=now, limit=WAITING_MAX)
    return {_without_host(row.fire.job) for row in store.find(waiting) if late_since(row, now)}


def _of_queues(store: Store, app: str, now: datetime) -> Iterator[Value]:
    sizes: dict[str, dict[str, int]] = {}
    oldest: dict[str, float] = {}
    counted = {queue: size for queue, size in store.count(app).items() if "/" not in queue}  # no locks
    for queue, size in counted.items():
        name = without_priority(queue)
        known = sizes.setdefault(name, dict.fromkeys(size._fields, 0))
        sizes[name] = {state: known[state] + count for state, count in size._asdict().items()}
    for queue in [queue for queue, size in counted.items() if size.pending][:QUEUES_MAX]:
        for row in store.find(Query(app=app, queues=(queue,), origins=("push",), upcoming=True, limit=1)):
            age_s = (now - (row.run_at or row.fire.due_at)).total_seconds()
            oldest[without_priority(queue)] = max(oldest.get(without_priority(queue), 0.0), age_s)
    for queue, by_state in sizes.items():
        for state, count in by_state.items():
            yield "detent_queue_messages", (app, queue, state), count
        yield "detent_queue_oldest_age_seconds", (app, queue), oldest.get(queue, 0.0)


def _without_host(job: str) -> str:
    return job.partition("/")[0]
