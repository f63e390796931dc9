"""How a node plans: it makes its jobs the app's, or stands back from those of others, and plans ahead."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Mapping
from datetime import datetime

from detent.clock import instant
from detent.errors import StoreUnavailable
from detent.model import Chart, Fire, Job, Plan
from detent.node.attempt import is_in_doubt
from detent.node.calls import Calls
from detent.node.edges import Edges, Pace
from detent.node.recollection import Recollection
from detent.node.timeline import Timeline, in_force

SAME_S = 0.001


class Planning:
    def __init__(self, life: str, app: str, jobs: Mapping[str, Job], edges: Edges, pace: Pace) -> None:
        self.life, self.app, self.jobs, self.edges, self.pace = life, app, jobs, edges, pace
        self.timeline = Timeline(pace.ahead_s)
        self._adopted = False
        self._ahead_of_us_s = 0.0  # the store's clock less ours, never too much
        self._reckoned_at, self._reckoned = -math.inf, instant(0.0)  # when, and the store's now of then
        self._read_at = 0.0  # when the request for the newest chart was sent
        self._reading = asyncio.Lock()
        self._without: set[str] = set()  # jobs that we cannot run
        self._call, self._recollection = Calls(edges, app, life, pace), Recollection()

    async def _adopt(self) -> None:
        """Make our jobs the app's, over whatever generation we find in force; a worker only looks."""
        store, jobs = self.edges.store, self.jobs
        chart = await self._call("look", store.look, self.app)
        if not self.pace.plans:
            self._adopted = True
            return self._take(chart)
        ours = in_force(chart, jobs)
        if ours != {name: mark.revision for name, mark in chart.marks.items()}:
            chart = await self._call("look", store.adopt, self.app, chart.generation, ours)
        if ours != {name: mark.revision for name, mark in chart.marks.items()}:
            raise StoreUnavailable("another node adopted its jobs just now")
        if jobs is self.jobs:  # else it was reloaded meanwhile, and has to adopt again
            self._adopted = True
        return self._take(chart)

    async def _read_chart(self) -> None:
        """Somebody else's jobs are in force: plan what is the same in ours, stand back from the rest."""
        sent = self.edges.monotonic()
        chart = await self._call("look", self.edges.store.look, self.app)
        before = self.timeline.foreign
        self._take(chart)
        self._read_at = sent
        self._without &= self.timeline.foreign  # the rest may be ours to run by now
        if self.timeline.foreign - before and self.pace.plans:
            foreign = sorted(self.timeline.foreign)
            self.edges.emit("stood-back", app=self.app, node=self.life, jobs=foreign[:10])

    async def _plan_ahead(self) -> None:
        """Plan the jobs whose mark is near, in batches."""
        if self.timeline.foreign and self.edges.monotonic() >= self._read_at + self.pace.idle_s:
            await self._read_chart()
        if self.timeline.has_lapsed(self.store_now()):
            return await self._adopt()
        for plans in self._plans():
            chart = await self._call("look", self.edges.store.advance, self.app, plans)
            self._learn(chart.now)
            self.timeline.move(chart.marks)
            self.edges.planned(plans)
            if chart.era != self.timeline.era:
                self._adopted = False  # the store may have forgotten whose jobs these are
                return await self._adopt()
            if chart.generation != self.timeline.generation:
                return await self._read_chart()
        return None

    def _take(self, chart: Chart) -> None:
        self._learn(chart.now)
        if self.timeline.era not in ("", chart.era):
            self.edges.emit("new-era", app=self.app, node=self.life)
            self._recollection.doubt()
        self.timeline.take(chart, self.jobs)

    def _plans(self) -> Iterator[list[Plan]]:
        return self.timeline.plans(self.jobs, self.store_now())

    def _learn(self, now: datetime) -> None:
        self._ahead_of_us_s = now.timestamp() - self.edges.monotonic()
        self._reckoned_at = -math.inf

    def store_now(self) -> datetime:
        """To a millisecond: it is asked for several times for each of thousands of fires."""
        at = self.edges.monotonic()
        if not 0 <= at - self._reckoned_at < SAME_S:
            self._reckoned_at, self._reckoned = at, instant(at + self._ahead_of_us_s)
        return self._reckoned

    async def _definition(self, fire: Fire, granted: float) -> Job | None:
        """The job, if we hold it as the fire was planned, or as it is in force: by a chart that is newer
        than the grant, as somebody may have adopted another one just before."""
        job = self.jobs.get(fire.job)
        if not is_in_doubt(fire, job):
            return job
        try:
            async with self._reading:
                if self._read_at < granted:
                    await self._read_chart()
        except StoreUnavailable:
            return None
        return job if job and self.timeline.is_in_force(job) else None
