"""Which job is to be planned next?  A heap of watermarks, so that a quiet job costs nothing.

Planning begins when the first watermark comes within a quarter of the planning horizon of the store's now,
and takes all jobs whose watermark is within half of it: so a hundred thousand jobs share few calls.  A call
carries a few hundred fires at most, the oldest watermarks first, and each of many jobs gets only its next few
instants: what is due soonest is planned first, and can be claimed while the rest is planned.

A job whose revision in force is not ours is foreign: its own nodes plan it.  If nobody does, so that its
watermark falls behind by the whole horizon, that revision has lapsed.  What `run_on: every` has another host
do is that host's alone: nobody else plans it, takes it over or calls it lapsed, however long the host is
away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush

from detent.model import Job, Plan, Watermark, Watermarks
from detent.rules.planning import plan

EXCLUDED_MAX = 1000  # named in an ask; beyond it, fires of other nodes' jobs are claimed and given back
PLANS_MAX = 500  # in one call of the store
FIRES_MAX = 250  # in one call, more or less: it must not keep the other nodes waiting
INSTANTS_MIN = 5  # of a job in one plan, however many jobs share the call


class Timeline:
    def __init__(self, ahead_s: float) -> None:
        self.epoch, self.generation = "", -1
        self.foreign: set[str] = set()  # jobs that we do not hold as they are in force
        self.superseded: set[str] = set()  # among them: we hold another revision
        self.elsewhere: set[str] = set()  # jobs of `run_on: every`, on other hosts
        self._ahead_s, self._near = ahead_s, timedelta(seconds=ahead_s / 2)
        self._urgent = timedelta(seconds=ahead_s / 4)
        self._watermarks: dict[str, Watermark] = {}  # of our jobs, in our revision
        self._heap: list[tuple[datetime, str]] = []  # some are out of date: `_watermarks` decides
        self._foreign_since: datetime | None = None  # the oldest watermark of a superseded job

    def load(self, watermarks: Watermarks, jobs: Mapping[str, Job]) -> None:
        """Start from what the store has in force."""
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
        """These are the watermarks now."""
        for name, watermark in by_job.items():
            if name in self._watermarks and self._watermarks[name].revision == watermark.revision:
                self._watermarks[name] = watermark
                heappush(self._heap, (watermark.at, name))

    def plans(self, jobs: Mapping[str, Job], now: datetime) -> list[Plan]:
        """The plans of the next call, to be followed by `move`; none: there is nothing to plan yet."""
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
        """When there will be something to plan."""
        self._drop_outdated()
        if not self._heap:
            return float("inf")
        return (self._heap[0][0] - self._urgent - now).total_seconds()

    def has_lapsed(self, now: datetime) -> bool:
        since = self._foreign_since
        return since is not None and since < now - timedelta(seconds=self._ahead_s)

    def excluded(self, unable: set[str]) -> set[str]:
        """The jobs that we do not ask for: those of other nodes, and what we could not run, unless it is ours
        by now."""
        foreign = self.foreign if len(self.foreign) <= EXCLUDED_MAX else set()
        return self.elsewhere | foreign | (unable - self._watermarks.keys())

    def is_in_force(self, job: Job) -> bool:
        watermark = self._watermarks.get(job.name)
        return watermark is not None and watermark.revision == job.revision

    def _near_names(self, now: datetime) -> deque[str]:
        """The oldest watermarks first, as many as one call takes.  They stay in the heap: only `move` puts a
        job later, so that a lost call is made again."""
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
    """Those of `run_on: every` that are other hosts', as long as our jobs have them on this host."""
    everywhere = {base for base, slash, _ in (name.partition("/") for name in jobs) if slash}
    return {
        name for name in names if name not in jobs and "/" in name and name.partition("/")[0] in everywhere
    }


def revisions_in_force(watermarks: Watermarks, jobs: Mapping[str, Job], kept: set[str]) -> dict[str, str]:
    """The revisions that an app has when these are our jobs: ours, what other hosts have, and what is kept as
    it is because other living nodes hold it."""
    names = jobs_elsewhere(watermarks.by_job, jobs) | kept
    theirs = {name: watermarks.by_job[name].revision for name in names}
    return {name: job.revision for name, job in jobs.items()} | theirs
