"""Runs the fires that are due in a period at once, in the caller's thread: for tests of an app's jobs.

Isolation is ignored, and hooks are not called.  Time is a fake clock's, so retries follow without waiting.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from itertools import islice
from random import Random
from typing import Any, NamedTuple

from detent.clock import StoreClock, instant
from detent.errors import UsageError
from detent.manifest.check import Manifest
from detent.messages.message import Task
from detent.model import Ask, Call, Cause, Claim, End, Job, Kind, Push
from detent.node.claim_session import ClaimSession
from detent.rules.chains import Followers
from detent.rules.planning import fire_at
from detent.rules.settling import report, settle
from detent.runners.call.function import (
    RESULT_NOT_KEPT,
    CannotCall,
    bind,
    exit_status,
    failure_of,
    find,
    returned,
)
from detent.runners.call.spec import SUCCEEDED, claimed_fire, keeps_result, outcome_of
from detent.schedules.timetable import parse_instant
from detent.stores.memory.store import MemoryStore

FIRES_MAX = 10_000
FIRST = "2026-01-01T00:00:00Z"  # the default start of a fake clock
LIFE = "dry-run.0"
Moment = str | datetime


class FakeClock:
    """A clock for tests: time passes only by calls.  Its wall time can be set; its monotonic time cannot."""

    def __init__(self, at: Moment = FIRST) -> None:
        self._wall, self._monotonic = moment(at).timestamp(), 1000.0

    def now(self) -> datetime:
        return instant(self._wall)

    def wall(self) -> float:
        return self._wall

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        if seconds < 0:
            raise UsageError(f"time cannot pass backwards: use step({seconds:g}) to set the clock back")
        self._wall += seconds
        self._monotonic += seconds

    def step(self, seconds: float) -> None:
        """Set the wall clock forwards or back; no time passes."""
        self._wall += seconds

    def set(self, at: Moment) -> None:
        """Let time pass until this instant; if it is in the past, set the clock back."""
        seconds = moment(at).timestamp() - self._wall
        self.advance(seconds) if seconds >= 0 else self.step(seconds)


class Fired(NamedTuple):
    """The end of a fire."""

    job: str
    due_at: datetime
    outcome: Kind
    reason: str
    cause: Cause
    attempts: int
    result: Any = None  # what the function returned, as it is kept
    error: BaseException | None = None  # what its last attempt raised


class DryRun:
    def __init__(self, manifest: Manifest, clock: FakeClock | None = None) -> None:
        self._manifest, self._clock = manifest, clock or FakeClock()
        self._followers = Followers(manifest.jobs)

    def fire_due(self, at: Moment, since: Moment | None = None) -> list[Fired]:
        until = moment(at)
        after = until - timedelta(seconds=1) if since is None else moment(since)
        due = sorted(islice(self._due(after, until), FIRES_MAX + 1), key=lambda one: (one[0], one[1].name))
        if len(due) > FIRES_MAX:
            raise UsageError(f"more than {FIRES_MAX:,} fires are due in this period: choose a shorter one")
        self._clock.set(due[0][0] if due else until)
        fired = [one for due_at, job in due for one in self._fire_all(job, due_at)]
        self._clock.advance(max(0.0, until.timestamp() - self._clock.wall()))
        return fired

    def _due(self, after: datetime, until: datetime) -> Iterator[tuple[datetime, Job]]:
        return ((at, job) for job in self._manifest.jobs for at in job.schedule.between(after, until))

    def _fire_all(self, job: Job, due_at: datetime) -> Iterator[Fired]:
        """Run the job, then the jobs that follow it."""
        fired = self._fire(job, due_at)
        yield fired
        if fired.outcome == "succeeded":
            for follower in self._followers.of(job.name):
                yield from self._fire_all(follower, self._clock.now())

    def _fire(self, job: Job, due_at: datetime) -> Fired:
        """Run attempts until the fire has ended, settled in the same way as by a node."""
        self._clock.advance(max(0.0, due_at.timestamp() - self._clock.wall()))
        store = MemoryStore(self._clock.wall, self._clock.monotonic)
        fire = fire_at(job, due_at)._replace(origin="manual", start_by=None)  # run it however late it is
        store.put([fire])
        ask = Ask(self._manifest.app, LIFE, number=0, queues=(job.queue,))
        session = ClaimSession(store, ask, StoreClock(self._clock.monotonic))
        while True:
            (claim,) = session.claim().grants.claims
            if not isinstance(job.work, Call):
                raise UsageError(f"{job.name} is not a function: fire_due runs only functions")
            end, error = attempt(job.work, claim)
            verdict = settle(end, claim, Random(0))
            session.finish(report(claim, verdict, end, self._clock.now())._replace(follow=()))
            if verdict.again_in_s is None:
                result = json.loads(end.result) if end.result else None
                name = job.name.partition(".")[2]
                kind, reason, cause, _ = verdict.outcome
                return Fired(name, due_at, kind, reason, cause, claim.attempt, result, error)
            self._clock.advance(verdict.again_in_s)


def with_task_call(job: Job, tasks: Mapping[str, Task]) -> Job:
    """Replace a message by the call that a worker makes of it."""
    if not isinstance(job.work, Push) or job.work.task not in tasks:
        return job
    return job._replace(work=tasks[job.work.task].call._replace(args=job.work.args))


def moment(at: Moment) -> datetime:
    """An instant, given as text or as an aware datetime."""
    if isinstance(at, str):
        return parse_instant(at, "time")
    if at.tzinfo is None:
        raise UsageError(f"{at.isoformat()} has no time zone: add one, like UTC")
    return at


def attempt(call: Call, claim: Claim) -> tuple[End, BaseException | None]:
    """Call the function; return how it ended, and what it raised."""
    try:
        value = _call(call, claim)
    except SystemExit as error:
        status, _ = exit_status(error)
        return End(outcome_of(status, ""), status), error if status else None
    except Exception as error:
        status, reason = failure_of(error)
        return End(outcome_of(status, reason), status), error
    text, why_not = returned(value)
    if why_not and keeps_result(claim):
        return End(outcome_of(RESULT_NOT_KEPT, why_not), RESULT_NOT_KEPT), None
    return End(SUCCEEDED, 0, result=text), None


def _call(call: Call, claim: Claim) -> object:
    try:
        function = find(call.function)
    except CannotCall as error:
        raise UsageError(str(error)) from error
    args, named = bind(function, json.loads(call.args), lambda: claimed_fire(claim))
    value = function(*args, **named)
    return _awaited(value) if hasattr(value, "__await__") else value


def _awaited(value: Any) -> object:
    """Await it on a new loop; in another thread if this thread runs a loop already."""

    async def main() -> object:
        return await value

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, main()).result()
