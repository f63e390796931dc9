"""Runs one job now on behalf of a host's scheduler, once in the fleet.

A trigger takes the same steps as a node: plan, record, claim, attempt, settle, report.  It takes them one
after the other, in a process that ends with them.

1. Each fire of a trigger has its own queue, and a trigger claims from no other one.  So nodes never run a
   trigger's fire.  An instant that a node planned is for nodes to run, even if it still waits.
2. A trigger first settles older fires of its job that no live trigger has: expired claims, abandoned retries
   and missed instants.  With `--due` it leaves those to the next trigger.
3. Hooks are fires of the same queue.  The trigger calls them before it ends.
4. The store's clock decides what is due.  The trigger's own clock only measures durations.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from detent.errors import StoreUnavailable, UsageError
from detent.model import Fire, Job, Plan, Query, Row, Watermark, Watermarks
from detent.rules.lanes import HOST_EARLY_S, LATE_S
from detent.rules.planning import fire_at, key_of, plan, rfc3339
from detent.rules.trust import lane_wait_s
from detent.stores.base import TRIGGERED, Store, app_of
from detent.trigger.claims import TriggerClaims, own_queue
from detent.trigger.exit_codes import CONTENDED, OK, SIGNALLED, exit_code_of
from detent.trigger.instant import newest_instant, upcoming_instant

DEPLOYS_MAX = 20  # tries to deploy the job while other processes deploy theirs
NEW_JOB_S = 60.0  # a new job runs for an instant that is at most this old
NEW_JOB_NAMED_S = 3600.0  # the same, if the host names the instant: a pod may take long to start
ALIVE_S = 10.0  # a retry that is overdue by this much has no live trigger
OPEN_MAX = 1000  # open fires of a job that one trigger reads
WAIT_S = 1.0  # between two asks for a busy lane


class TriggerOptions(NamedTuple):
    scope: str  # host | global
    scheduled_for: datetime | None = None  # the time that the host says it fired for
    due_at: datetime | None = None  # run exactly this instant
    started_at: datetime | None = None  # by the host's clock


class Trigger:
    def __init__(self, job: Job, options: TriggerOptions, store: Store, claims: TriggerClaims) -> None:
        self._job, self._options, self._store, self._claims = job, options, store, claims
        self._signals, self._clock, self._locks = claims.signals, claims.clock, claims.locks
        self._app = app_of(job.name)
        self._is_new = False  # this trigger was the first to deploy the job

    def fire(self) -> int:
        """Run the fire that is due and return the exit code."""
        fire = self._find_fire(self._deploy_and_plan())
        if self._options.due_at is None:
            self._settle_older(fire.key if fire else "")
        code = self._run(fire) if fire else self._report_nothing_due()
        return SIGNALLED + self._signals.first if self._signals.first else code

    # Deploy and plan.

    def _deploy_and_plan(self) -> datetime:
        """Record every instant up to now, and return that time.  Instants without a trigger are missed, or
        caught up by policy."""
        watermarks = self._deploy()
        now, watermark = watermarks.now, watermarks.by_job[self._job.name]
        while watermark.at < now and watermark.revision == self._job.revision:
            watermarks = self._store.advance(self._app, [self._next_plan(watermark, now)])
            self._clock.learn(watermarks.now)
            watermark = watermarks.by_job.get(self._job.name) or watermark._replace(at=now)
        return now

    def _deploy(self) -> Watermarks:
        """Put our definition of the job in force, beside the other jobs of the app."""
        name, revision = self._job.name, self._job.revision
        watermarks = self._store.look(self._app)
        for _ in range(DEPLOYS_MAX):
            self._clock.learn(watermarks.now)
            in_force = {job: watermark.revision for job, watermark in watermarks.by_job.items()}
            if in_force.get(name) == revision:
                return watermarks
            self._store.note(self._app, TRIGGERED + name, "by a host's scheduler")  # no live node holds it
            jobs = {**in_force, name: revision}
            watermarks = self._store.set_jobs(self._app, watermarks.generation, jobs)
            self._is_new = name in watermarks.by_job and watermarks.by_job[name].revision == revision
        raise StoreUnavailable(f"the jobs of {self._app} change all the time: other processes deploy theirs")

    def _next_plan(self, watermark: Watermark, now: datetime) -> Plan:
        """Plan up to the newest instant.  Only that one is on time: no trigger came for the others.  Nothing
        runs that could notice a late fire, so there is no hook for it."""
        due_at = newest_instant(self._job.schedule, now)
        until = due_at if due_at and due_at > watermark.at else now
        planned = plan(self._job, watermark, until + timedelta(seconds=LATE_S), -LATE_S)
        fires = [_on_own_queue(fire) for fire in planned.fires if fire.origin != "hook"]
        return planned._replace(fires=tuple(fires))

    # Find the fire.

    def _find_fire(self, now: datetime) -> Fire | None:
        """Return the fire that this trigger is for, or None if it is settled and nothing else is due.

        `now` is when it planned: an instant that became due since has no fire yet."""
        options, schedule = self._options, self._job.schedule
        if options.due_at is not None:
            return self._exact_fire(options.due_at)
        due_at = newest_instant(schedule, min(now, options.scheduled_for or now))
        if due_at is not None and (fire := self._open_fire(due_at, now)):
            return fire
        ahead = upcoming_instant(schedule, now, options.scheduled_for or options.started_at or now)
        if ahead is None or not self._sleep_until(ahead):
            return None
        self._deploy_and_plan()
        return self._open_fire(ahead, ahead)

    def _open_fire(self, due_at: datetime, now: datetime) -> Fire | None:
        """Return the fire of this instant, unless it is over or was never planned."""
        if row := self._row(key_of(self._job.name, due_at)):
            return row.fire if row.state != "over" else None
        recent_s = NEW_JOB_NAMED_S if self._options.scheduled_for else NEW_JOB_S
        if not self._is_new or due_at < now - timedelta(seconds=recent_s):
            return None
        return self._put(fire_at(self._job, due_at))

    def _exact_fire(self, due_at: datetime) -> Fire | None:
        """Return the fire for `--due`: this instant, however late, even if the schedule does not have it.  It
        is a manual fire, so a newer instant does not replace it."""
        ahead_s = (due_at - self._clock.now()).total_seconds()
        if ahead_s >= HOST_EARLY_S:
            raise UsageError(f"--due {rfc3339(due_at)} is {ahead_s:.0f} s ahead: at most {HOST_EARLY_S:g}")
        if not self._sleep_until(due_at):
            return None
        if ahead_s > 0:
            self._deploy_and_plan()
        if row := self._row(key_of(self._job.name, due_at)):
            return row.fire if row.state != "over" else None
        return self._put(fire_at(self._job, due_at)._replace(origin="manual", start_by=None))

    def _put(self, fire: Fire) -> Fire:
        own = _on_own_queue(fire)
        self._store.put([own])
        return own

    def _sleep_until(self, instant: datetime) -> bool:
        return self._signals.sleep((instant - self._clock.now()).total_seconds())

    def _row(self, key: str) -> Row | None:
        return next(iter(self._store.find(Query(key=key))), None)

    # Settle older fires.

    def _settle_older(self, except_key: str) -> None:
        query = Query(job=self._job.name, until=self._clock.now(), limit=OPEN_MAX)
        states = ("pending", "claimed")
        rows = [row for state in states for row in self._store.find(query._replace(state=state))]
        for row in sorted(rows, key=lambda row: (row.fire.due_at, row.fire.key)):
            if row.fire.key != except_key and not self._signals.first and self._is_own(row.fire):
                self._settle(row)

    def _settle(self, row: Row) -> None:
        if row.fire.origin == "hook":
            self._claims.call_hooks(row.fire.queue)
        elif not self._is_waited_for(row):
            self._claims.run_fire(row.fire, is_abandoned=_is_retry(row))

    def _is_waited_for(self, row: Row) -> bool:
        """Return whether a live trigger may wait for this retry to be due."""
        overdue = self._clock.now() - timedelta(seconds=ALIVE_S)
        return _is_retry(row) and row.run_at is not None and row.run_at > overdue

    def _is_own(self, fire: Fire) -> bool:
        """Return True if triggers run this fire, False if nodes do because a node planned it."""
        return fire.queue.startswith(own_queue(f"{self._job.name}@"))

    # Run the fire.

    def _run(self, fire: Fire) -> int:
        """Run the fire, after waiting for its lane if its policy says so."""
        lane_wait = LaneWait(fire, self._clock.ticks)
        while not self._signals.first:
            row = self._row(fire.key)
            if row is None or row.state == "over":
                return self._report_nothing_due()
            if not self._is_own(row.fire):
                return self._report_launched(row)
            outcome = None if self._is_waited_for(row) else self._claims.run_fire(fire, _is_retry(row))
            if outcome:
                return exit_code_of(outcome)
            row = self._row(fire.key)
            if row and (row.state == "claimed" or self._is_waited_for(row)):
                return self._report_launched(row)
            holders = self._holders(fire)
            if holders and fire.policy.concurrency == "Replace":
                self._claims.replaces = holders[0].fire.key
            if not lane_wait.may_go_on(is_busy=bool(holders)):
                return self._report_contended(fire, holders)
            if lane_wait.is_time_to_kill():
                self._kill_holders_here(holders)
            if holders:
                self._store.wait(self._app, WAIT_S)
            else:
                self._deploy_and_plan()
        row = self._row(fire.key)
        if row and row.state == "pending" and self._is_own(row.fire):
            self._cancel(fire)
        return OK

    def _holders(self, fire: Fire) -> list[Row]:
        claimed = self._store.find(Query(job=fire.job, state="claimed", limit=OPEN_MAX))
        return [row for row in claimed if row.fire.lane == fire.lane and row.fire.key != fire.key]

    def _kill_holders_here(self, holders: list[Row]) -> None:
        """Kill triggers of this host that ignored the store's request to stop, and record their ends at
        once."""
        for row in holders:
            self._locks.kill_holder(row.node)
            if self._is_own(row.fire):
                self._settle(row)

    # Events.

    def _report_nothing_due(self) -> int:
        due_at = self._options.due_at or newest_instant(self._job.schedule, self._clock.now())
        self._emit("nothing-due", due=rfc3339(due_at) if due_at else "")
        return OK

    def _report_launched(self, row: Row) -> int:
        about = {"holder": row.node, "scope": self._options.scope}
        if not self._is_own(row.fire):
            about["reason"] = f"a node planned it for the queue {row.fire.queue}: only a node runs it"
        self._emit("already-launched", row.fire, **about)
        return CONTENDED

    def _report_contended(self, fire: Fire, holders: list[Row]) -> int:
        holder = next((row.fire.key for row in holders), "")
        about = {"holder": holder, "scope": self._options.scope}
        if fire.policy.concurrency == "Replace":
            reason = f"contended: {holder} is still running" if holder else "contended"
            if self._store.cancel(fire.key, reason, "lane"):
                about |= {"outcome": "cancelled", "reason": reason, "cause": "lane"}
        self._emit("lock-contended", fire, **about)
        return CONTENDED

    def _cancel(self, fire: Fire) -> None:
        reason = self._claims.stop_reason()
        if self._store.cancel(fire.key, reason, "shutdown"):
            self._emit("cancelled", fire, outcome="cancelled", reason=reason, cause="shutdown")

    def _emit(self, event: str, fire: Fire | None = None, **fields: str) -> None:
        app, _, job = self._job.name.partition(".")
        about = {"app": app, "job": job, "node": self._locks.name}
        if fire:
            about |= {"fire": fire.key, "run_id": fire.run_id}
        self._claims.emit(event, **about, **fields)


class LaneWait:
    """How long a fire waits for its lane: with `Queue` for ever, with `Replace` for a while, otherwise not.
    If no fire holds the lane, the store only needs a newer plan: then every policy tries again for a
    while."""

    def __init__(self, fire: Fire, boottime: Callable[[], float]) -> None:
        self._concurrency, self._boottime = fire.policy.concurrency, boottime
        wait_s = lane_wait_s(fire.policy.timeout_s)
        self._until = boottime() + wait_s
        self._kill_at = self._until - wait_s / 2

    def may_go_on(self, is_busy: bool) -> bool:
        if self._concurrency == "Queue":
            return True
        return (self._concurrency == "Replace" or not is_busy) and self._boottime() < self._until

    def is_time_to_kill(self) -> bool:
        """Return True once, after half of the time that a replaced fire has to stop."""
        is_time = self._concurrency == "Replace" and self._boottime() > self._kill_at
        if is_time:
            self._kill_at = float("inf")
        return is_time


def _is_retry(row: Row) -> bool:
    return row.state == "pending" and row.attempt > 0


def _on_own_queue(fire: Fire) -> Fire:
    return fire._replace(queue=own_queue(fire.key))
