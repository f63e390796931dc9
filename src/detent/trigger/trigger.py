"""The one-shot: a host's scheduler rings, and the fire that this is for is carried out, once in the fleet.

The hops are the node's: plan, record, claim, attempt, settle, finish; here one after the other, in a process
that ends with them.

1. Each of its fires has a queue of its own, and it asks for no other: no node takes a trigger's fire, and a
   trigger takes no node's.  An instant that a node planned is the node's to run, also if it still waits.
2. First it settles what it finds of its job that is older and not live: expired claims, retries whose trigger
   is gone, instants that nobody rang for.  With `--due` it leaves those to the next trigger.
3. Hooks are fires of the same queue: it calls them before it ends.
4. The store's clock says what is due; its own only how long something takes.
"""

from __future__ import annotations

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

ADOPT_MAX = 20  # others may adopt their jobs at the same moment
FIRST_S = 60.0  # a job that is new is fired for the instant for which it was rung just now
FIRST_SAID_S = 3600.0  # or for the one that the host names: a pod may take long to start
ALIVE_S = 10.0  # a retry that is overdue by so much has no trigger any more
OPEN_MAX = 1000  # open fires of a job that are looked at
WAIT_S = 1.0  # between two asks for a lane that is taken


class TriggerOptions(NamedTuple):
    """What the trigger was told."""

    scope: str  # host | global
    scheduled_for: datetime | None = None  # what the host says it rang for
    due_at: datetime | None = None  # exactly this instant
    started_at: datetime | None = None  # when it rang, by the host's clock


class Trigger:
    def __init__(self, job: Job, options: TriggerOptions, store: Store, claims: TriggerClaims) -> None:
        self._job, self._options, self._store, self._claims = job, options, store, claims
        self._signals, self._emit, self._clock = claims.signals, claims.emit, claims.clock
        self._app = app_of(job.name)
        self._is_first = False  # the job is in force since just now

    def fire(self) -> int:
        """The exit code."""
        watermarks = self._take_part()
        self._plan(watermarks)
        target = self._target()
        if self._options.due_at is None:
            self._settle_older(target.key if target else "")
        code = self._fire(target) if target else self._say_nothing_due()
        return SIGNALLED + self._signals.first if self._signals.first else code

    # What is due.

    def _take_part(self) -> Watermarks:
        """Have our job in force, as we know it, beside whatever else there is of its app."""
        name, revision = self._job.name, self._job.revision
        watermarks = self._learn(self._store.look(self._app))
        for _ in range(ADOPT_MAX):
            in_force = {job: watermark.revision for job, watermark in watermarks.by_job.items()}
            if in_force.get(name) == revision:
                return watermarks
            jobs = {**in_force, name: revision}
            self._store.note(self._app, TRIGGERED + name, "by a host's scheduler")  # no living node holds it
            watermarks = self._learn(self._store.set_jobs(self._app, watermarks.generation, jobs))
            self._is_first = (
                watermarks.by_job[name].revision == revision if name in watermarks.by_job else False
            )
        raise StoreUnavailable(f"the jobs of {self._app} change all the time: others adopt theirs")

    def _learn(self, watermarks: Watermarks) -> Watermarks:
        self._clock.learn(watermarks.now)
        return watermarks

    def _plan(self, watermarks: Watermarks) -> None:
        """Account for every instant up to now: what nobody rang for is missed, or caught up by policy."""
        now, watermark = watermarks.now, watermarks.by_job[self._job.name]
        while watermark.at < now and watermark.revision == self._job.revision:
            watermarks = self._learn(self._store.advance(self._app, [_ours(self._next_plan(watermark, now))]))
            watermark = watermarks.by_job.get(self._job.name) or watermark._replace(at=now)

    def _next_plan(self, watermark: Watermark, now: datetime) -> Plan:
        """Only the newest instant is in time, however close the others are: nobody rang for those."""
        due_at = newest_instant(self._job.schedule, now)
        until = due_at if due_at and due_at > watermark.at else now
        return plan(self._job, watermark, until + timedelta(seconds=LATE_S), -LATE_S)

    def _plan_again(self) -> None:
        self._plan(self._take_part())

    def _target(self) -> Fire | None:
        """The fire that the ring is for, recorded; None: it is settled, and nothing else is due."""
        if self._options.due_at is not None:
            return self._exact(self._options.due_at)
        now = self._clock.now()
        due_at = newest_instant(self._job.schedule, min(now, self._options.scheduled_for or now))
        if due_at is not None and (fire := self._open_fire(due_at, now)):
            return fire
        ahead = upcoming_instant(
            self._job.schedule, now, self._options.scheduled_for or self._options.started_at or now
        )
        if ahead is None or not self._sleep_until(ahead):
            return None
        self._plan_again()
        return self._open_fire(ahead, ahead)

    def _open_fire(self, due_at: datetime, now: datetime) -> Fire | None:
        """The fire of this instant, unless it is over, or was never to be."""
        rows = self._store.find(Query(key=key_of(self._job.name, due_at)))
        if rows:
            return rows[0].fire if rows[0].state != "over" else None
        recent_s = FIRST_SAID_S if self._options.scheduled_for else FIRST_S
        if not self._is_first or due_at < now - timedelta(seconds=recent_s):
            return None
        return self._put(fire_at(self._job, due_at))

    def _exact(self, due_at: datetime) -> Fire | None:
        """`--due`: this instant, whatever the schedule says, and however late it is.  Somebody asked for it:
        it is no instant of an outage, and a newer one does not take its place."""
        ahead_s = (due_at - self._clock.now()).total_seconds()
        if ahead_s >= HOST_EARLY_S:
            raise UsageError(f"--due {rfc3339(due_at)} is {ahead_s:.0f} s ahead: at most {HOST_EARLY_S:g}")
        if not self._sleep_until(due_at):
            return None
        if ahead_s > 0:
            self._plan_again()
        rows = self._store.find(Query(key=key_of(self._job.name, due_at)))
        if not rows:
            return self._put(fire_at(self._job, due_at)._replace(origin="manual", start_by=None))
        return rows[0].fire if rows[0].state != "over" else None

    def _put(self, fire: Fire) -> Fire:
        ours = _on_own_queue(fire)
        self._store.put([ours])
        return ours

    def _sleep_until(self, instant: datetime) -> bool:
        return self._signals.sleep((instant - self._clock.now()).total_seconds())

    # What is older.

    def _settle_older(self, target: str) -> None:
        for row in self._open_rows():
            if row.fire.key != target and not self._signals.first and self._is_own(row.fire):
                self._settle(row)

    def _open_rows(self) -> list[Row]:
        query = Query(job=self._job.name, until=self._clock.now(), limit=OPEN_MAX)
        states = ("pending", "claimed")
        rows = [row for state in states for row in self._store.find(query._replace(state=state))]
        return sorted(rows, key=lambda row: (row.fire.due_at, row.fire.key))

    def _settle(self, row: Row) -> None:
        if row.fire.origin == "hook":
            self._claims.call_hooks(row.fire.queue)
        elif not self._is_waited_for(row):
            self._claims.run_fire(row.fire, is_abandoned=_is_retry(row))

    def _is_waited_for(self, row: Row) -> bool:
        """A retry whose trigger may be alive, and wait for it to be due."""
        overdue = self._clock.now() - timedelta(seconds=ALIVE_S)
        return _is_retry(row) and row.run_at is not None and row.run_at > overdue

    # The fire itself.

    def _fire(self, fire: Fire) -> int:
        """Carry it out, once there is room in its lane, if it is to wait for that."""
        lane_wait = LaneWait(fire, self._clock.ticks)
        while not self._signals.first:
            row = self._row(fire)
            if row is None or row.state == "over":
                return self._say_nothing_due()
            if not self._is_own(row.fire):
                return self._say_launched(fire)
            outcome = None if self._is_waited_for(row) else self._claims.run_fire(fire, _is_retry(row))
            if outcome:
                return exit_code_of(outcome)
            if self._is_launched(fire):
                return self._say_launched(fire)
            holders = self._holders(fire)
            if holders and fire.policy.concurrency == "Replace":
                self._claims.replaces = holders[0].fire.key
            if not lane_wait.goes_on(is_taken=bool(holders)):
                return self._say_contended(fire, holders)
            if lane_wait.is_half_over():
                self._end_those_of_this_host(holders)
            if holders:
                self._store.wait(self._app, WAIT_S)
            else:
                self._plan_again()
        row = self._row(fire)
        if row and row.state == "pending" and self._is_own(row.fire):
            self._say_cancelled(fire, self._claims.why_ended())
        return OK

    def _is_own(self, fire: Fire) -> bool:
        """True if triggers run this fire or hook; False if nodes do, because a node planned it."""
        return fire.queue.startswith(own_queue(f"{self._job.name}@"))

    def _row(self, fire: Fire) -> Row | None:
        return next(iter(self._store.find(Query(key=fire.key))), None)

    def _is_launched(self, fire: Fire) -> bool:
        """True if another trigger has claimed it, or waits for its next attempt."""
        row = self._row(fire)
        return row is not None and (row.state == "claimed" or self._is_waited_for(row))

    def _holders(self, fire: Fire) -> list[Row]:
        claimed = self._store.find(Query(job=fire.job, state="claimed", limit=OPEN_MAX))
        return [row for row in claimed if row.fire.lane == fire.lane and row.fire.key != fire.key]

    def _end_those_of_this_host(self, holders: list[Row]) -> None:
        """Those that the store told to stop and that do not react: end them, and record that at once."""
        for row in holders:
            self._claims.locks.end_holder(row.node)
            if self._is_own(row.fire):
                self._settle(row)

    # What there is to say.

    def _say_nothing_due(self) -> int:
        self._emit("nothing-due", **self._who(), due=self._said_due())
        return OK

    def _said_due(self) -> str:
        """The newest instant, which is settled."""
        due_at = self._options.due_at or newest_instant(self._job.schedule, self._clock.now())
        return rfc3339(due_at) if due_at else ""

    def _say_launched(self, fire: Fire) -> int:
        row = self._row(fire)
        about = {"fire": fire.key, "run_id": fire.run_id, "holder": row.node if row else ""}
        if row and not self._is_own(row.fire):
            about["reason"] = f"a node planned it for the queue {row.fire.queue}: only a node runs it"
        self._emit("already-launched", **self._who(), **about, scope=self._options.scope)
        return CONTENDED

    def _say_contended(self, fire: Fire, holders: list[Row]) -> int:
        holder = next((row.fire.key for row in holders), "")
        about = {"fire": fire.key, "run_id": fire.run_id, "holder": holder}
        if fire.policy.concurrency == "Replace":
            reason = f"contended: {holder} is still running" if holder else "contended"
            if self._store.cancel(fire.key, reason, "lane"):
                about |= {"outcome": "cancelled", "reason": reason, "cause": "lane"}
        self._emit("lock-contended", **self._who(), **about, scope=self._options.scope)
        return CONTENDED

    def _say_cancelled(self, fire: Fire, reason: str) -> None:
        if self._store.cancel(fire.key, reason, "shutdown"):
            about = {"fire": fire.key, "run_id": fire.run_id}
            about |= {"outcome": "cancelled", "reason": reason, "cause": "shutdown"}
            self._emit("cancelled", **self._who(), **about)

    def _who(self) -> dict[str, str]:
        app, _, job = self._job.name.partition(".")
        return {"app": app, "job": job, "node": self._claims.locks.name}


class LaneWait:
    """How long a fire waits for its lane: `Queue` as long as it takes, `Replace` for a while, others not.
    Where nobody has the lane, it is only that the store's now has passed what is planned."""

    def __init__(self, fire: Fire, boottime: Callable[[], float]) -> None:
        self._concurrency, self._boottime = fire.policy.concurrency, boottime
        self._wait_s = lane_wait_s(fire.policy.timeout_s)
        self._until = boottime() + self._wait_s
        self._is_half_told = False

    def goes_on(self, is_taken: bool) -> bool:
        if self._concurrency == "Queue":
            return True
        return (self._concurrency == "Replace" or not is_taken) and self._boottime() < self._until

    def is_half_over(self) -> bool:
        """True once: those who should have gone by now may not have heard."""
        if self._is_half_told or self._concurrency != "Replace":
            return False
        self._is_half_told = self._boottime() > self._until - self._wait_s / 2
        return self._is_half_told


def _is_retry(row: Row) -> bool:
    return row.state == "pending" and row.attempt > 0


def _ours(planned: Plan) -> Plan:
    """As a trigger records it.  Nobody is there to notice that a fire is late: there is no hook for that."""
    fires = [_on_own_queue(fire) for fire in planned.fires if fire.origin != "hook"]
    return planned._replace(fires=tuple(fires))


def _on_own_queue(fire: Fire) -> Fire:
    return fire._replace(queue=own_queue(fire.key))
