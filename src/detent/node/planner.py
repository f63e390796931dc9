"""The planner of a node: deploys the node's jobs to the store, and records their next fires ahead of time.

The jobs of an app are the union of what its live nodes hold.  If two nodes hold different definitions of a
job, the one that was deployed last is in force.  The node with the older definition leaves the job alone
until no live node holds the newer one.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping

from detent.clock import StoreClock
from detent.errors import StoreUnavailable
from detent.model import Fire, Job, Plan, Watermarks
from detent.node.holders import Holders
from detent.node.store_calls import StoreCalls
from detent.node.timeline import Timeline, revisions_in_force

REREAD_S = 1.0  # a wake-up makes the planner look for a deploy at most this often
NAMES_MAX = 10  # jobs that an event names


class Planner:
    def __init__(
        self, jobs: Mapping[str, Job], call: StoreCalls, clock: StoreClock, on_new_epoch: Callable[[], None]
    ) -> None:
        self.jobs, self._call, self._clock, self._on_new_epoch = jobs, call, clock, on_new_epoch
        self._store, self._plans_jobs = call.ports.store, call.tuning.plans
        self._timeline = Timeline(call.tuning.ahead_s)
        self._holders = Holders(jobs, call)
        self.is_deployed = False
        self._overrides = True  # the next deploy replaces the definitions that other live nodes hold
        self._may_be_stale = False  # another process changed something in the store
        self._read_at, self._reading = 0.0, asyncio.Lock()  # when the newest watermarks were requested
        self._not_here: set[str] = set()  # jobs of which we returned a claim

    # What the node asks.

    async def plan(self) -> None:
        """Deploy the jobs if necessary, then record the fires that are due soonest, in one call."""
        if not self.is_deployed:
            await self._deploy()
        if self._plans_jobs:
            await self._plan_ahead()

    def next_in_s(self) -> float:
        """Return the time until `plan` has something to do."""
        if not self._plans_jobs:
            return math.inf
        plan_in_s = self._timeline.next_in_s(self._clock.now())
        return min(plan_in_s, REREAD_S) if self._may_be_stale else plan_in_s

    async def definition_for(self, fire: Fire, granted: float) -> Job | None:
        """Return our definition for a fire that another revision planned, or None if ours is not in force.
        Reads watermarks that are newer than the grant: a deploy may have happened just before it."""
        job = self.jobs.get(fire.job)
        try:
            async with self._reading:
                if self._read_at < granted:
                    await self.read_watermarks()
        except StoreUnavailable:
            return None
        return job if job and self._timeline.is_in_force(job) else None

    def excluded(self, others: set[str]) -> tuple[str, ...]:
        """Return the jobs that the node must not claim, together with `others`."""
        return tuple(sorted(self._timeline.excluded(self._not_here | others)))

    # Changes that the node reports.

    def reload(self, jobs: Mapping[str, Job]) -> None:
        self.jobs = jobs
        self._not_here.clear()
        self._redeploy()

    def look_for_deploys(self) -> None:
        """Read the watermarks again soon: another process may have changed the jobs in force."""
        self._may_be_stale = True

    def note_not_here(self, job: str) -> None:
        """Exclude a job of which this node got a fire and has no definition."""
        self._not_here.add(job)

    def note_epoch(self, epoch: str) -> None:
        """In a new epoch, the store may have forgotten which jobs are in force."""
        if epoch != self._timeline.epoch:
            self._redeploy()

    # Heartbeats.

    @property
    def list_digest(self) -> str:
        return self._holders.digest if self._plans_jobs else ""

    @property
    def is_superseded(self) -> bool:
        return bool(self._timeline.superseded)

    async def announce_jobs(self, pool: str) -> None:
        if self._plans_jobs:
            await self._holders.announce(self.jobs, pool)

    # Deploys.

    async def _deploy(self) -> None:
        """Put our jobs in force beside those of other live nodes.  A worker only reads what is in force."""
        jobs, app = self.jobs, self._call.app
        if not self._plans_jobs:
            self._take(await self._call("look", self._store.look, app))
            self.is_deployed = True
            return
        await self.announce_jobs("look")  # first, because jobs that no live node holds are removed
        watermarks = await self._call("look", self._store.look, app)
        before = _revisions(watermarks)
        kept = await self._holders.held_by_others(jobs, before)
        wanted = revisions_in_force(watermarks, jobs, kept - jobs.keys() if self._overrides else kept)
        if wanted != before:
            watermarks = await self._call("look", self._store.set_jobs, app, watermarks.generation, wanted)
        if wanted != _revisions(watermarks):
            raise StoreUnavailable("another node changed the app's jobs at the same moment")
        self._report_deploy(before, wanted)
        self._take(watermarks)
        self.is_deployed = jobs is self.jobs  # a reload during the deploy needs another one
        self._overrides = not self.is_deployed

    def _report_deploy(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        changed = sorted(name for name in before.keys() & after.keys() if before[name] != after[name])
        removed = sorted(before.keys() - after.keys())
        if changed or removed:
            self._call.emit("deployed", changed=changed[:NAMES_MAX], removed=removed[:NAMES_MAX])

    async def read_watermarks(self) -> None:
        """Read which jobs are in force, and deploy again if that differs from what live nodes hold."""
        sent = self._call.ports.monotonic()
        watermarks = await self._call("look", self._store.look, self._call.app)
        before = self._timeline.superseded
        self._take(watermarks)
        self._read_at = sent
        self._not_here &= self._timeline.foreign  # the other ones may be ours to run by now
        if not self._plans_jobs:
            return
        if superseded := sorted(self._timeline.superseded - before):
            self._call.emit("superseded", jobs=superseded[:NAMES_MAX])
        revisions = _revisions(watermarks)
        kept = await self._holders.held_by_others(self.jobs, revisions)
        if revisions_in_force(watermarks, self.jobs, kept) != revisions:
            self.is_deployed = False

    def _take(self, watermarks: Watermarks) -> None:
        self._clock.learn(watermarks.now)
        if self._timeline.epoch not in ("", watermarks.epoch):
            self._call.emit("new-epoch")
            self._on_new_epoch()
            self._redeploy()
        self._timeline.load(watermarks, self.jobs)

    def _redeploy(self) -> None:
        self._holders.announce_again()
        self.is_deployed, self._overrides = False, True

    # Plans.

    async def _plan_ahead(self) -> None:
        pause_s = REREAD_S if self._may_be_stale else self._call.tuning.idle_s
        is_time = self._call.ports.monotonic() >= self._read_at + pause_s
        if is_time and (self._may_be_stale or self._timeline.foreign):
            self._may_be_stale = False
            await self.read_watermarks()
            if not self.is_deployed:
                return await self._deploy()
        if self._timeline.has_lapsed(self._clock.now()):
            self._overrides = True
            return await self._deploy()
        if not (plans := self._plans()):
            return None
        watermarks = await self._call("look", self._store.advance, self._call.app, plans)
        self._clock.learn(watermarks.now)
        self._timeline.update(watermarks.by_job)
        self._call.ports.on_planned(plans)
        if watermarks.epoch != self._timeline.epoch:
            self._redeploy()
            return await self._deploy()
        if watermarks.generation != self._timeline.generation:
            return await self.read_watermarks()
        return None

    def _plans(self) -> list[Plan]:
        return self._timeline.plans(self.jobs, self._clock.now())


def _revisions(watermarks: Watermarks) -> dict[str, str]:
    return {name: watermark.revision for name, watermark in watermarks.by_job.items()}
