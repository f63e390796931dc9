"""Decides which jobs to plan next, with a heap of watermarks, so that a quiet job costs nothing.

Planning starts when the first watermark comes within a quarter of the planning horizon of the store's time.
It takes all jobs whose watermark is within half of the horizon, so that a hundred thousand jobs share few
calls.  A call holds a few hundred fires at most, the oldest watermarks first.  If many jobs share a call,
each of them gets only its next few instants.  So what is due soonest is planned first, and claimed while the
rest is planned.

A job that is in force in another revision than ours is foreign: the nodes with that revision plan it.  If no
node does, and its watermark falls behind by the whole horizon, the revision has lapsed.  A job of `run_on:
every` on another host belongs to that host alone.  No other host plans it or lets it lapse, however long that
host is away."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush

from detent.model import Job, Plan, Watermark, Watermarks
from detent.rules.planning import plan

EXCLUDED_MAX = 1000  # jobs that one ask names; beyond it, foreign fires are claimed and returned
PLANS_MAX = 500  # in one call of the store
FIRES_MAX = 250  # about this many in one call, so that other nodes need not wait
INSTANTS_MIN = 5  # of each job in a call, however many jobs share it


class Timeline:
    def __init__(self, ahead_s: float) -> None:
        self.epoch, self.generation = "", -1
        self.foreign: set[str] = set()  # jobs in force that we do not hold in that revision
        self.superseded: set[str] = set()  # those of them that we hold in another revision
        self.elsewhere: set[str] = set()  # jobs of `run_on: every` on other hosts
        self._ahead_s, self._near = ahead_s, timedelta(seconds=ahead_s / 2)
        self._urgent = timedelta(seconds=ahead_s / 4)
        self._watermarks: dict[str, Watermark] = {}  # of our jobs, in our revision
        self._heap: list[tuple[datetime, str]] = []  # may hold outdated entries: `_watermarks` decides
        self._foreign_since: datetime | None = None  # the oldest watermark of a superseded job

    def load(self, watermarks: Watermarks, jobs: Mapping[str, Job]) -> None:
        """Replace everything by what the store has in force."""
        self.epoch, self.generation = watermarks.epoch, watermarks.generation
        self._watermarks = {
            name: watermark
            for name, watermark in watermarks.by_job.items()
            if name in jobs and jobs[name].revision == watermark.revision
        }
        self.elsewhere = jobs_elsewhere(watermarks.by_job, jobs)
        self.foreign = (watermarks.by_job.keys() | jobs.keys()) - self._watermarks.keys() - self.elsewhere
        self.superseded = self.foreign & jobs.keys() & watermarks.by_job.keys()
        self._foreign_since = min((watermarks.by_job[name].at for name in self.superseded), default=None)
        self._heap = [(watermark.at, name) for name, watermark in self._watermarks.items()]
        heapify(self._heap)

    def update(self, by_job: Mapping[str, Watermark]) -> None:
        """Take the new watermarks of some jobs."""
        for name, watermark in by_job.items():
            if name in self._watermarks and self._watermarks[name].revision == watermark.revision:
                self._watermarks[name] = watermark
                heappush(self._heap, (watermark.at, name))

    def plans(self, jobs: Mapping[str, Job], now: datetime) -> list[Plan]:
        """Return the plans for the next call of the store.  Its answer goes to `update`."""
        if self.next_in_s(now) > 0:
            return []
        near, plans, fires = self._near_names(now), list[Plan](), 0
        most = max(INSTANTS_MIN, FIRES_MAX // len(near))
        while near and fires < FIRES_MAX:
            name = near.popleft()
            plans.append(plan(jobs[name], self._watermarks[name], now, self._ahead_s, most))
            fires += len(plans[-1].fires)
        return plans

    def next_in_s(self, now: datetime) -> float:
        """Return the time until there is something to plan."""
        self._drop_outdated()
        if not self._heap:
            return float("inf")
        return (self._heap[0][0] - self._urgent - now).total_seconds()

    def has_lapsed(self, now: datetime) -> bool:
        since = self._foreign_since
        return since is not None and since < now - timedelta(seconds=self._ahead_s)

    def excluded(self, unable: set[str]) -> set[str]:
        """Return the jobs that this node must not claim: those of other nodes, and the `unable` ones that are
        not ours by now."""
        foreign = self.foreign if len(self.foreign) <= EXCLUDED_MAX else set()
        return self.elsewhere | foreign | (unable - self._watermarks.keys())

    def is_in_force(self, job: Job) -> bool:
        watermark = self._watermarks.get(job.name)
        return watermark is not None and watermark.revision == job.revision

    def _near_names(self, now: datetime) -> deque[str]:
        """Return the jobs with the oldest watermarks, as many as one call takes.  They stay in the heap until
        `update`, so that a lost call is repeated."""
        near: dict[str, datetime] = {}
        while self._heap and self._heap[0][0] <= now + self._near and len(near) < PLANS_MAX:
            at, name = heappop(self._heap)
            if name in self._watermarks and self._watermarks[name].at == at:
                near[name] = at
        for name, at in near.items():
            heappush(self._heap, (at, name))
        return deque(near)

    def _drop_outdated(self) -> None:
        while self._heap:
            at, name = self._heap[0]
            if name in self._watermarks and self._watermarks[name].at == at:
                return
            heappop(self._heap)


def jobs_elsewhere(names: Iterable[str], jobs: Mapping[str, Job]) -> set[str]:
    """Return the jobs of `run_on: every` that belong to other hosts, if our jobs have them for this host."""
    everywhere = {base for base, slash, _ in (name.partition("/") for name in jobs) if slash}
    return {
        name for name in names if name not in jobs and "/" in name and name.partition("/")[0] in everywhere
    }


def revisions_in_force(watermarks: Watermarks, jobs: Mapping[str, Job], kept: set[str]) -> dict[str, str]:
    """Return the revisions that should be in force: those of our jobs and of other hosts, and those in
    `kept`, because other live nodes hold them."""
    names = jobs_elsewhere(watermarks.by_job, jobs) | kept
    theirs = {name: watermarks.by_job[name].revision for name in names}
    return {name: job.revision for name, job in jobs.items()} | theirs
