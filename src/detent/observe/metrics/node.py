"""Measures a node: its events and the calls of its store become series.  The node does not depend on it."""

import platform
from collections import Counter
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Any, Protocol

from detent import __version__, clock
from detent.events import Emit
from detent.model import Ask, Claim, Grants, Report, Verdict
from detent.observe.metrics.series import Labels
from detent.observe.watched_store import Watch
from detent.rules.rates import without_priority
from detent.stores.base import app_of

JOBS_MAX = 500  # names in labels; each name adds one series for each of its outcomes
OTHER = "other"
SILENT_S = 60.0  # a healthy node calls its store at least every ten seconds
COUNTED = {  # events that are counted as they are
    "claim-lost": "detent_claims_lost_total",
    "new-epoch": "detent_epochs_total",
    "clock-stepped": "detent_clock_steps_total",
    "warden-died": "detent_warden_deaths_total",
}


class Meter(Protocol):
    """Keeps the values of series, and makes them available outside."""

    def record(self, name: str, labels: Labels, value: float, run_id: str = "") -> None:
        """Add to a counter, set a gauge, or observe a value of a histogram."""


class NodeMetrics:
    def __init__(self, app: str, meters: Sequence[Meter], emit: Emit) -> None:
        self._app, self._meters, self._emit = app, meters, emit
        self._jobs: set[str] = set()
        self._running: Counter[Labels] = Counter()  # by app and queue
        self._held: dict[int, Labels] = {}  # app and queue by fence
        self._lock = Lock()  # claims and ends come from different threads
        self._called_at = clock.monotonic()
        self._state = "starting"  # | ready | draining
        self._is_store_away = False
        self.watch = Watch(self._called, self._granted, self._ended)
        self._record("detent_build_info", (__version__, platform.python_version()), 1)
        for name in COUNTED.values():
            self._record(name, (app,), 0)

    def set_slots(self, queues: Sequence[str], slots: int) -> None:
        for queue in queues:
            self._record("detent_slots", (self._app, queue), slots)
            self._record("detent_running", (self._app, queue), self._running[self._app, queue])

    def emit(self, event: str, **fields: Any) -> None:
        if name := COUNTED.get(event):
            self._record(name, (self._app,))
        elif event in ("store-unavailable", "store-back"):
            self._is_store_away = event == "store-unavailable"
        elif event in ("started", "draining"):
            self._state = "ready" if event == "started" else event

    # Health.

    def unhealthy(self) -> str:
        """Return why the process should be restarted, or ""."""
        silent_s = clock.monotonic() - self._called_at
        is_stuck = self._state == "ready" and silent_s > SILENT_S
        return f"the node has not called its store for {silent_s:.0f} s" if is_stuck else ""

    def unready(self) -> str:
        """Return why the node takes no work, or ""."""
        if self._state != "ready":
            return f"the node is {self._state}"
        return "the store does not answer; the log says why" if self._is_store_away else self.unhealthy()

    # Calls of the store.

    def _called(self, verb: str, took_s: float, error: Exception | None) -> None:
        self._called_at = clock.monotonic()
        self._record("detent_store_call_duration_seconds", (verb,), took_s)
        if error:
            self._record("detent_store_errors_total", (verb,))

    def _granted(self, ask: Ask, grants: Grants) -> None:
        self._record("detent_clock_offset_seconds", (), clock.wall() - grants.now.timestamp())
        runs = {claim.fence: claim for claim in grants.claims if claim.disposition is None}
        with self._lock:
            new = {fence: _place(claim) for fence, claim in runs.items() if fence not in self._held}
            self._held |= new
            self._count_running(new.values(), 1)
        for fence, place in new.items():
            if (claim := runs[fence]).attempt == 1:
                late_s = max(0.0, (grants.now - claim.fire.due_at).total_seconds())
                self._record("detent_fire_lateness_seconds", place, late_s, claim.fire.run_id)

    def _ended(self, reports: Sequence[Report], verdicts: Sequence[Verdict | None]) -> None:
        with self._lock:
            left = [self._held.pop(report.claim.fence, None) for report in reports]
            self._count_running(filter(None, left), -1)
        for report, verdict in zip(reports, verdicts, strict=True):
            claim = report.claim
            if verdict is None or claim.fire.origin == "hook":
                continue
            place, kind = _place(claim), verdict.outcome.kind
            if claim.disposition is None and verdict.counts:
                self._record("detent_attempts_total", (*place, kind))
                self._record("detent_fire_duration_seconds", place, report.took_s, claim.fire.run_id)
            if verdict.again_in_s is None:
                app, job = place[0], self._label_of(claim.fire.job)
                self._record("detent_fires_total", (app, job, kind))

    def _count_running(self, places: Iterable[Labels], sign: int) -> None:
        for place, count in Counter(places).items():
            self._running[place] += sign * count
            self._record("detent_running", place, self._running[place])

    def _label_of(self, job: str) -> str:
        """Return the name of the job, or `other` if there are too many."""
        name = job.partition(".")[2].partition("/")[0]
        if name in self._jobs:
            return name
        if len(self._jobs) == JOBS_MAX:
            self._jobs.add(OTHER)
            self._emit("metrics-limited", app=self._app, error=f"more than {JOBS_MAX} job names")
        if len(self._jobs) > JOBS_MAX:
            return OTHER
        self._jobs.add(name)
        return name

    def _record(self, name: str, labels: Labels, value: float = 1.0, run_id: str = "") -> None:
        for meter in self._meters:
            meter.record(name, labels, value, run_id)


def _place(claim: Claim) -> Labels:
    return app_of(claim.fire.job), without_priority(claim.fire.queue)
