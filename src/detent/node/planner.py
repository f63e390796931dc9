"""How a node plans: it puts its jobs in force beside those of other living nodes, and plans them ahead.

An app's jobs are the union of what its living nodes hold.  Where two nodes hold different definitions of a
job, the one that was deployed last is in force: the node that holds the older one leaves the job alone, until
no living node holds the newer one.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from datetime import datetime

from detent.clock import StoreClock
from detent.errors import StoreUnavailable
from detent.model import Fire, Job, Note, Plan, Watermarks
from detent.node.attempt import is_other_revision
from detent.node.forgotten_launches import ForgottenLaunches
from detent.node.holders import ANY, HOLDS_TTL_S, LIST_TTL_S, RENEW_S, REWRITE_S, Holders, JobList
from detent.node.ports import Ports, Tuning
from detent.node.store_calls import StoreCalls
from detent.node.timeline import Timeline, in_force
from detent.stores.base import HEARTBEAT_TTL_S, HOLDS, JOBS, NODE

RING_READ_S = 1.0  # at most this often, a wake-up makes a node look for a deploy
NAMES_MAX = 10  # jobs that an event names


class Planning:
    def __init__(
        self, instance: str, app: str, jobs: Mapping[str, Job], ports: Ports, tuning: Tuning
    ) -> None:
        self.instance, self.app, self.jobs, self.ports, self.tuning = instance, app, jobs, ports, tuning
        self.timeline = Timeline(tuning.ahead_s)
        self._adopted = False
        self._deploys = True  # our definitions replace those of other living nodes
        self._store_clock = StoreClock(ports.monotonic)
        self._read_at = 0.0  # when the request for the newest watermarks was sent
        self._reading = asyncio.Lock()
        self._without: set[str] = set()  # jobs that we cannot run
        self._rang = False  # another process changed something in the store
        self._holders, self._list, self._listed_at = Holders(instance), JobList(jobs), -math.inf
        self._held_at = -math.inf  # when the note of what we hold was written
        self._call, self._forgotten_launches = StoreCalls(ports, app, instance, tuning), ForgottenLaunches()

    async def announce(self, pool: str, load: float = 0.0) -> None:
        """Write our heartbeat, and keep the list of our jobs."""
        held = {"list": self._list.digest if self.tuning.plans else "", "load": round(load, 1)}
        text = json.dumps(self.ports.heartbeat() | held)
        await self._call(pool, self.ports.store.note, self.app, NODE + self.instance, text, HEARTBEAT_TTL_S)
        if self.tuning.plans:
            await self._keep_list(pool)

    async def _keep_list(self, pool: str) -> None:
        """Keep the note of the list of jobs that we hold, and the list itself."""
        now, note = self.ports.monotonic(), self.ports.store.note
        if self._list.jobs is not self.jobs:
            self._list, self._listed_at, self._held_at = JobList(self.jobs), -math.inf, -math.inf
        digest = self._list.digest
        if now >= self._listed_at + REWRITE_S:
            await self._call(pool, note, self.app, JOBS + digest, self._list.text, LIST_TTL_S)
            self._listed_at = now
        if now >= self._held_at + RENEW_S:
            await self._call(pool, note, self.app, HOLDS + self.instance, digest, HOLDS_TTL_S)
            self._held_at = now

    async def _adopt(self) -> None:
        """Put our jobs in force, beside those that other living nodes hold; a worker only looks."""
        store, jobs = self.ports.store, self.jobs
        if not self.tuning.plans:
            self._take(await self._call("look", store.look, self.app))
            self._adopted = True
            return
        await self._keep_list("look")  # before: what no living node holds is removed
        watermarks = await self._call("look", store.look, self.app)
        kept = await self._held_by_others(watermarks)
        wanted = in_force(watermarks, jobs, kept - jobs.keys() if self._deploys else kept)
        before = {name: watermark.revision for name, watermark in watermarks.by_job.items()}
        if wanted != before:
            watermarks = await self._call("look", store.set_jobs, self.app, watermarks.generation, wanted)
        if wanted != {name: watermark.revision for name, watermark in watermarks.by_job.items()}:
            raise StoreUnavailable("another node changed the app's jobs at the same moment")
        self._report_deploy(before, wanted)
        self._take(watermarks)
        self._adopted = jobs is self.jobs  # else it was reloaded meanwhile, and has to adopt again
        self._deploys = not self._adopted

    async def _held_by_others(self, watermarks: Watermarks) -> set[str]:
        """Of the jobs that we do not hold as they are in force: those that another living node holds.  A job
        that we hold otherwise counts only where that node holds it as it is in force."""
        revisions = {name: watermark.revision for name, watermark in watermarks.by_job.items()}
        foreign = {
            name for name in revisions if name not in self.jobs or self.jobs[name].revision != revisions[name]
        }
        held = await self._holders.held(self._notes) if foreign else {}
        if held is None:
            return foreign
        return {
            name
            for name in foreign & held.keys()
            if name not in self.jobs or held[name] & {revisions[name], ANY}
        }

    async def _notes(self, prefix: str) -> list[Note]:
        return await self._call("look", self.ports.store.notes, self.app, prefix)

    def _report_deploy(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        changed = sorted(name for name in before.keys() & after.keys() if before[name] != after[name])
        removed = sorted(before.keys() - after.keys())
        if changed or removed:
            about = {"changed": changed[:NAMES_MAX], "removed": removed[:NAMES_MAX]}
            self.ports.emit("deployed", app=self.app, node=self.instance, **about)

    async def _read_watermarks(self) -> None:
        """Other nodes changed the app's jobs: plan what is as we hold it, leave the rest to them."""
        sent = self.ports.monotonic()
        watermarks = await self._call("look", self.ports.store.look, self.app)
        before = self.timeline.superseded
        self._take(watermarks)
        self._read_at = sent
        self._without &= self.timeline.foreign  # the rest may be ours to run by now
        if not self.tuning.plans:
            return
        if superseded := sorted(self.timeline.superseded - before):
            self.ports.emit("superseded", app=self.app, node=self.instance, jobs=superseded[:NAMES_MAX])
        kept = await self._held_by_others(watermarks)
        if in_force(watermarks, self.jobs, kept) != {
            name: watermark.revision for name, watermark in watermarks.by_job.items()
        }:
            self._adopted = False  # a job of ours is missing, or one is in force as no living node holds it

    async def _plan_ahead(self) -> None:
        """Plan what is due soonest, as much as one call of the store takes; the rest after the next claim."""
        pause_s = RING_READ_S if self._rang else self.tuning.idle_s
        if (self._rang or self.timeline.foreign) and self.ports.monotonic() >= self._read_at + pause_s:
            self._rang = False
            await self._read_watermarks()
            if not self._adopted:
                return await self._adopt()
        if self.timeline.has_lapsed(self.store_now()):
            self._deploys = True
            return await self._adopt()
        if not (plans := self._plans()):
            return None
        watermarks = await self._call("look", self.ports.store.advance, self.app, plans)
        self._learn(watermarks.now)
        self.timeline.move(watermarks.by_job)
        self.ports.planned(plans)
        if watermarks.epoch != self.timeline.epoch:
            self._adopted, self._deploys = False, True  # the store may have forgotten whose jobs these are
            return await self._adopt()
        if watermarks.generation != self.timeline.generation:
            return await self._read_watermarks()
        return None

    def _take(self, watermarks: Watermarks) -> None:
        self._learn(watermarks.now)
        if self.timeline.epoch not in ("", watermarks.epoch):
            self.ports.emit("new-era", app=self.app, node=self.instance)
            self._forgotten_launches.suspect_all()
            self._adopted, self._deploys = False, True  # the store may have forgotten whose jobs these are
        self.timeline.take(watermarks, self.jobs)

    def _plans(self) -> list[Plan]:
        return self.timeline.plans(self.jobs, self.store_now())

    def _learn(self, now: datetime) -> None:
        self._store_clock.learn(now)

    def store_now(self) -> datetime:
        return self._store_clock.now()

    async def _definition(self, fire: Fire, granted: float) -> Job | None:
        """The job, if we hold it as the fire was planned, or as it is in force: by watermarks that are newer
        than the grant, as somebody may have adopted another one just before."""
        job = self.jobs.get(fire.job)
        if not is_other_revision(fire, job):
            return job
        try:
            async with self._reading:
                if self._read_at < granted:
                    await self._read_watermarks()
        except StoreUnavailable:
            return None
        return job if job and self.timeline.is_in_force(job) else None
