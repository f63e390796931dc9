"""What the observer knows of one app: the newest answers of the store, read in small repeated steps.

Each step is one call of the store that reads at most a page.  `fetch` runs in a thread; `take` keeps the
answer.  A page of the whole window is read again and again, because fires can be
recorded, settled or deleted long after they were due.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from detent.clock import StoreClock
from detent.dashboard.coming import Coming
from detent.dashboard.tallies import Tallies
from detent.manifest.check import Manifest
from detent.model import Found, Place, Query, Row, Size, Watermarks
from detent.rules.rates import without_priority
from detent.stores.base import JOBS, NODE, PAUSE, Store
from detent.stores.paging import place_of
from detent.views.job_text import canonical_job
from detent.views.lookup import NOT_HOOKS, find_job
from detent.views.nodes import Heartbeat, NodeStatus, heartbeat_of, lists_of, node_statuses
from detent.views.pauses import Pause, pause_of
from detent.views.status import BAD, LATELY, Late, oldest_message, unplanned

PERIODS_S = {  # how often each step is due
    "recent": 1.0, "running": 1.0, "open": 2.0, "heartbeats": 5.0, "pauses": 5.0, "scan": 5.0, "sizes": 10.0,
    "watermarks": 10.0, "waiting": 10.0, "oldest": 10.0, "failures": 15.0, "tally": 1.0, "newest": 30.0,
    "held": 30.0,
}  # fmt: skip
WINDOW = timedelta(days=1)
RECENT = timedelta(seconds=30)
PAGE = 250  # fires of one step
ROWS_MAX = 2_000  # fires that are kept
RUNNING_MAX = 500
KEYS_MAX = 200
JOBS_MAX = 500  # jobs that are shown
SIZES_KEPT = 7  # answers: about a minute
EACH = 20  # newest fires of a job
NOW_SLACK = timedelta(seconds=5)  # the estimate of the store's clock is a little behind


class Picture:
    def __init__(self, app: str, manifest: Manifest | None) -> None:
        self.app, self.manifest = app, manifest
        self._clock = StoreClock()
        self.watermarks = Watermarks(datetime.fromtimestamp(0, UTC), "", 0, {})
        self.rows: dict[str, Row] = {}
        self.dropped_at: datetime | None = None  # rows due before were dropped: there were too many
        self.running: list[Row] = []
        self.waiting: list[Row] = []
        self.failed: list[Row] = []
        self.newest: dict[str, dict[str, Row]] = {}
        self.sizes: dict[str, Size] = {}
        self.oldest: dict[str, Row] = {}  # the oldest message of each queue
        self.pauses: dict[str, Pause] = {}
        self.unplanned: list[Late] = []
        self.coming, self.tallies = Coming(manifest), Tallies()
        self._beats: list[Heartbeat] = []
        self._lists: dict[str, dict[str, str]] = {}
        self._cursor: Place | None = None  # where the scan of the window continues
        self._has_scanned = False
        self._queue_turn = 0
        self._known: dict[str, dict[str, Any]] = {}  # canonical jobs
        self._jobs: list[str] | None = None  # sorted; None: not computed since the watermarks were read
        self._sizes_log: deque[tuple[datetime, dict[str, int]]] = deque(maxlen=SIZES_KEPT)

    @property
    def now(self) -> datetime:
        """The store's clock."""
        return self._clock.now()

    @property
    def has_begun(self) -> bool:
        return self.watermarks.epoch != ""

    @property
    def nodes(self) -> list[NodeStatus]:
        running = Counter(row.node for row in self.running)
        return node_statuses(self.app, self._beats, self._lists, self.watermarks, running)

    def holders(self, job: str) -> list[str]:
        """The instances of the nodes that hold the job."""
        return [beat.instance for beat in self._beats if job in self._lists.get(beat.jobs_list, {})]

    def ended_since(self, instant: datetime) -> dict[str, Counter[str]]:
        """How the fires ended that ended since then: their numbers by job and outcome."""
        found: dict[str, Counter[str]] = {}
        for row in self.rows.values():
            if row.over_at and row.outcome and row.over_at >= instant:
                found.setdefault(row.fire.job, Counter())[row.outcome.kind] += row.fire.instants
        return found

    def jobs(self) -> list[str]:
        """The names of all jobs in the store, and of those of the manifest."""
        if self._jobs is None:
            planned, manifest = self.watermarks.by_job, self.manifest
            seen = {name.partition("/")[0] for name in planned}
            own = [name for name in manifest.canonical if name not in seen] if manifest else []
            self._jobs = sorted({*planned, *(find_job(manifest, name) for name in own if manifest)})
        return self._jobs

    def known(self, name: str) -> dict[str, Any]:
        """The canonical job of this name; empty if the manifest does not have it."""
        base, manifest = name.partition("/")[0], self.manifest
        if base not in self._known:
            has_job = manifest is not None and base in manifest.canonical
            self._known[base] = canonical_job(manifest, base) if manifest and has_job else {}
        return self._known[base]

    def period_s(self, step: str) -> float:
        """How often the step is due: often while there is no node yet, or the window was not read once."""
        is_first = (step == "heartbeats" and not self._beats) or (step == "scan" and not self._has_scanned)
        return 1.0 if is_first else PERIODS_S[step]

    def is_useful(self, step: str) -> bool:
        """Whether this step would read something now."""
        if not self.has_begun:
            return step == "watermarks"
        match step:
            case "open":
                return bool(self._open())
            case "oldest":
                return bool(self._waiting_queues())
            case "newest":
                return bool(self.watermarks.by_job)
            case "tally":
                return self.tallies.missing(self.now) is not None
        return True

    def fetch(self, step: str, store: Store) -> Any:
        now, app = self.now, self.app
        query = Query(app=app, origins=NOT_HOOKS, until=now + NOW_SLACK, limit=PAGE)
        match step:
            case "watermarks":
                return self._look(store)
            case "recent":
                return store.find(query._replace(since=now - RECENT))
            case "running":
                return store.find(query._replace(state="claimed", limit=RUNNING_MAX))
            case "open":
                keys = self._open()
                return keys, store.find(Query(keys=keys, limit=len(keys)))
            case "scan":
                return store.find(query._replace(since=now - WINDOW, before=self._cursor))
            case "waiting":
                return store.find(query._replace(state="pending", origins=("schedule", "manual"), until=now))
            case "failures":
                return store.find(query._replace(state="over", kinds=BAD, since=now - LATELY))
            case "oldest":
                queues = self._waiting_queues()
                return store.find(oldest_message(app, queues[self._queue_turn % len(queues)]))
            case "newest":
                return store.newest(app, self.jobs()[:JOBS_MAX], EACH)
            case "tally":
                span = self.tallies.missing(now) or (now, now)
                return *span, store.tally(app, *span)
            case "sizes":
                return store.count(app)
            case "heartbeats":
                return store.notes(app, NODE)
            case "pauses":
                return store.notes(app, PAUSE)
            case "held":
                return store.notes(app, JOBS)
        raise AssertionError(f"unreachable: there is no step {step}")

    def take(self, step: str, found: Any) -> None:
        match step:
            case "watermarks":
                self.watermarks, self.unplanned = found
                self._clock.learn(self.watermarks.now)
                self._jobs = None
            case "recent":
                self._keep(found)
                if len(found) >= PAGE:  # more fires were due than a page holds
                    self._drop_before(found[-1].fire.due_at)
            case "running":
                self.running = sorted(found, key=_started)
                self._keep(found)
            case "open":
                keys, rows = found
                for key in keys:
                    self.rows.pop(key, None)
                self._keep(rows)
            case "scan":
                self._take_scan(found)
            case "waiting":
                self.waiting = found
            case "failures":
                self.failed = found
            case "oldest":
                self.oldest |= {row.fire.queue: row for row in found}
                self._queue_turn += 1
            case "more":  # jobs beyond those that are always read
                self.newest |= _by_key(found)
            case "newest":
                self.newest = _by_key(found)
            case "tally":
                self.tallies.take(*found)
            case "sizes":
                self.sizes = {queue: size for queue, size in found.items() if "/" not in queue}
                self._remember_sizes()
            case "heartbeats":
                self._beats = [heartbeat_of(note) for note in found]
            case "pauses":
                self.pauses = {pause.job: pause for pause in map(pause_of, found)}
            case "held":
                self._lists = lists_of(found)
        self._forget_old()

    def _look(self, store: Store) -> tuple[Watermarks, list[Late]]:
        """Read the watermarks.  What takes long with many jobs is computed here, in the thread."""
        found = store.look(self.app)
        if not self.has_begun:
            self.coming.move_to(found.now)
        return found, [*unplanned(self.manifest, found, found.now)] if self.manifest else []

    def _remember_sizes(self) -> None:
        waiting, open_sizes = self._waiting_queues(), Counter[str]()
        self.oldest = {queue: row for queue, row in self.oldest.items() if queue in waiting}
        for queue, size in self.sizes.items():
            open_sizes[without_priority(queue)] += size.pending + size.delayed + size.running
        self._sizes_log.append((self.now, {**open_sizes}))

    def growth_per_min(self, queue: str) -> float | None:
        """How fast the number of unfinished messages grows; None: not known yet."""
        if not self._sizes_log:
            return None
        (old_at, old), (new_at, new) = self._sizes_log[0], self._sizes_log[-1]
        passed_s = (new_at - old_at).total_seconds()
        return (new.get(queue, 0) - old.get(queue, 0)) * 60 / passed_s if passed_s else None

    def _take_scan(self, found: Found) -> None:
        """Keep a page of the window, and remove what is no longer there."""
        first, last = self._cursor, found.before
        there = {row.fire.key for row in found}
        until = self.now - RECENT  # newer fires are read in other steps meanwhile
        for key, row in [*self.rows.items()]:
            place = place_of(row.fire)
            is_in_page = (first is None or place < first) and (last is None or place >= last)
            if is_in_page and key not in there and row.fire.due_at < until:
                del self.rows[key]
        self._keep(found)
        self._cursor = None if len(self.rows) >= ROWS_MAX else last
        self._has_scanned |= self._cursor is None

    def _keep(self, rows: Iterable[Row]) -> None:
        for row in rows:
            if self.dropped_at is None or row.fire.due_at >= self.dropped_at or row.state != "over":
                self.rows[row.fire.key] = row
            known = self.newest.get(row.fire.job)
            if known is not None and row.fire.origin != "hook":
                known[row.fire.key] = row
                if len(known) > EACH:
                    del known[min(known, key=lambda key: place_of(known[key].fire))]

    def _forget_old(self) -> None:
        since = self.now - WINDOW
        self._delete_before(since)
        if self.dropped_at and self.dropped_at < since:
            self.dropped_at = None
        if len(self.rows) > ROWS_MAX:
            newest = sorted((row.fire.due_at for row in self.rows.values()), reverse=True)
            self._drop_before(newest[ROWS_MAX - 1])

    def _drop_before(self, instant: datetime) -> None:
        self.dropped_at = max(self.dropped_at or instant, instant)
        self._delete_before(instant)

    def _delete_before(self, instant: datetime) -> None:
        old = [key for key, row in self.rows.items() if row.fire.due_at < instant and row.state == "over"]
        for key in old:
            del self.rows[key]

    def _open(self) -> tuple[str, ...]:
        """Fires that were not over when they were read, and are too old for the other steps."""
        now, running = self.now, {row.fire.key for row in self.running}
        found = [
            key
            for key, row in self.rows.items()
            if row.state != "over" and key not in running and row.fire.due_at < now - RECENT
        ]
        return tuple(found[:KEYS_MAX])

    def _waiting_queues(self) -> list[str]:
        return sorted(queue for queue, size in self.sizes.items() if size.pending)


def _by_key(found: Mapping[str, list[Row]]) -> dict[str, dict[str, Row]]:
    """The fires of each job by key, without its hooks."""
    return {
        job: {row.fire.key: row for row in rows if row.fire.origin != "hook"} for job, rows in found.items()
    }


def _started(row: Row) -> tuple[datetime, str]:
    return row.claimed_at or row.fire.due_at, row.fire.key
