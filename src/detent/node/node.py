"""A node: plans fires, claims them, runs them and settles them.

The node repeats four steps: look for fires (plan, then claim), renew the claims it holds, judge the attempts
that ended, and report their verdicts to the store.  Each step says when it must run again.  A wake-up runs it
sooner.

The node needs no wall clock: the store decides what is due, late or missed.  The node's own clock is
monotonic, and can only make work stop sooner.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial

from detent.clock import StoreClock
from detent.errors import StoreUnavailable
from detent.messages.envelope import Refusal
from detent.model import Ask, Claim, End, Fire, Grants, Job, Outcome, Report, Verdict, Work
from detent.node.attempt import (
    HeldClaim,
    HeldClaims,
    is_other_revision,
    judge_end,
    not_started,
    with_policy_of,
    work_of,
)
from detent.node.burst import Burst
from detent.node.fairness import FairShare, loads_of
from detent.node.forgotten_launches import ForgottenLaunches
from detent.node.planner import Planner
from detent.node.ports import Ports, Tuning, Wakeup
from detent.node.reporting import Reporter, fields_of
from detent.node.store_calls import StoreCalls
from detent.rules.chains import Followers
from detent.rules.decide import SETTLED_MAX
from detent.rules.outcomes import HOOK_REMOVED
from detent.rules.settling import admit, refuse, report, return_claim, start_hooks
from detent.runners.running import AttemptEnd
from detent.stores.base import HEARTBEAT_TTL_S, NODE, is_hook
from detent.worker.unknown_tasks import UnknownTasks

YIELD_EVERY = 100  # after starting this many attempts, let other coroutines run


class Node:
    planner_type = Planner  # the simulator plants faults here

    def __init__(
        self, instance: str, app: str, jobs: Mapping[str, Job], ports: Ports, tuning: Tuning
    ) -> None:
        self.instance, self.app, self.ports, self.tuning = instance, app, ports, tuning
        self.call, self.clock = StoreCalls(ports, app, instance, tuning), StoreClock(ports.monotonic)
        self.call.on_back = self._on_store_back
        self._forgotten_launches = ForgottenLaunches(self.call)
        self.planner = self.planner_type(jobs, self.call, self.clock, self._forgotten_launches.suspect_all)
        self.fair_share, self._burst = FairShare(not tuning.plans), Burst(tuning.burst_s, tuning.ask_max)
        self.reporter, self.unknown_tasks = Reporter(ports.emit), UnknownTasks()
        self._followers = Followers(jobs.values())
        # Claims.
        self._ask: Ask | None = None  # sent, and not answered yet
        self._asks = 0
        self._dead: set[str] = set()  # instances that are proven dead, until the store knows
        self._live: set[str] = set()  # instances that sent heartbeats
        self._held = HeldClaims()
        self._was_full = False  # the last ask got all that it asked for: there may be more
        self._must_renew = False  # the store may want some of our work to stop
        # Attempts.
        self._starting = 0  # coroutines that are starting attempts
        self._ended: list[tuple[HeldClaim, asyncio.Future[AttemptEnd]]] = []
        self._reports: list[Report] = []
        self.settled = 0
        # Shutdown.
        self.draining = self._is_closing = False
        self._owes_hooks = False  # what ended while draining has hooks to call
        self._hurry = asyncio.Event()
        self._wake_look, self._wake_renew, self._wake_judge, self._wake_report = (Wakeup() for _ in range(4))
        self._progress, self._store_back = Wakeup(), Wakeup()

    @property
    def jobs(self) -> Mapping[str, Job]:
        return self.planner.jobs

    # Called by the service.

    def wake(self) -> None:
        """Something changed in the store: there may be work to claim or to stop."""
        self._must_renew |= bool(self._held or self._ask)  # claims that are granted later know of the change
        self.planner.look_for_deploys()
        self._wake_look.set()
        self._wake_renew.set()

    def declare_dead(self, instance: str) -> None:
        """All processes of that instance are proven dead: other nodes may take its claims."""
        self._dead.add(instance)
        self._wake_look.set()

    def is_declared_dead(self, instance: str) -> bool:
        """Return whether the store knows of that death."""
        return instance not in self._dead

    async def wait_for_store(self) -> None:
        """Wait after a failed call, until the store answers the node or a pause is over."""
        if not self.call.is_away:
            self._wake_look.set()  # the node calls the store too, and reports the failure
        await self._store_back.sleep(self.call.pause_s())

    def _on_store_back(self) -> None:
        self._wake_look.set()
        self._store_back.set()

    async def send_heartbeat(self) -> None:
        """Tell the other nodes that this one is alive, and learn from them how to share the work."""
        load = self.fair_share.load(len(self._held), self.ports.monotonic())
        about = self.ports.heartbeat() | {"list": self.planner.list_digest, "load": round(load, 1)}
        store, name = self.ports.store, NODE + self.instance
        await self.call("renew", store.note, self.app, name, json.dumps(about), HEARTBEAT_TTL_S)
        await self.planner.announce_jobs("renew")
        notes = await self.call("renew", store.notes, self.app, NODE)
        live = {note.name for note in notes}
        if self._live - live or self.planner.is_superseded:  # perhaps no live node holds those jobs any more
            self.planner.look_for_deploys()
            self._wake_look.set()
        self._live = live
        self.unknown_tasks.learn(notes, self.ports.monotonic())
        self.fair_share.compare([*loads_of(notes, self.tuning.queues, self.clock.now())], load)

    def reload(self, jobs: Mapping[str, Job]) -> None:
        """Replace the jobs.  Attempts that run go on."""
        self.planner.reload(jobs)
        self._followers = Followers(jobs.values())
        self._wake_look.set()

    # The steps.

    async def run(self) -> None:
        steps = (
            (self._look_for_fires, self._wake_look),
            (self._renew, self._wake_renew),
            (self._judge_ends, self._wake_judge),
            (self._report, self._wake_report),
        )
        await asyncio.gather(*(self.ports.spawn(self._repeat(step, wakeup)) for step, wakeup in steps))

    async def _repeat(self, step: Callable[[], Awaitable[float]], wakeup: Wakeup) -> None:
        """Run the step again after the time that it returns, or at a wake-up.  After a first failure, try
        again at once: perhaps only the answer was lost."""
        has_failed = False
        while True:
            started = self.ports.monotonic()
            try:
                wait_s, has_failed = await step(), False
            except StoreUnavailable:
                pause_s = self.call.pause_s() if wakeup is self._wake_look else self.tuning.retry_s
                wait_s, has_failed = pause_s if has_failed else 0.0, True
            if wakeup is self._wake_look:
                self.ports.on_round()
            await wakeup.sleep(min(max(wait_s, self.tuning.sleep_min_s), self.tuning.idle_s))
            early_s = started + self.tuning.gather_s - self.ports.monotonic()
            if early_s > 0 and not self._is_worth_a_call(wakeup):
                await asyncio.sleep(early_s)

    def _is_worth_a_call(self, wakeup: Wakeup) -> bool:
        """A store call costs as much for one fire as for ten, so under load a step waits for some more."""
        many = self._capacity() // 4
        if wakeup is self._wake_look:
            return self.draining or self._free() >= many
        return wakeup is not self._wake_report or len(self._reports) >= many

    # Step 1: plan and claim.

    async def _look_for_fires(self) -> float:
        if self.draining:  # claims only to learn the answer to its last ask, and to call hooks
            return await self._claim() if self._ask or self._owes_hooks else self.tuning.idle_s
        await self.planner.plan()
        next_in_s, answered = await self._claim(), self.ports.monotonic()
        await self._forgotten_launches.report()
        plan_in_s = self.planner.next_in_s()  # sorting many watermarks takes a while
        return min(next_in_s - (self.ports.monotonic() - answered), plan_in_s)

    async def _claim(self) -> float:
        """Ask for as many claims as there is room for.  Repeat an ask until it is answered."""
        is_new = self._ask is None
        if self._ask is None:
            await asyncio.sleep(self.fair_share.delay_s)
            self._ask = self._new_ask()
        ask, sent = self._ask, self.ports.monotonic()
        grants = await self.call("look", self.ports.store.claim, ask)
        self._ask = None
        self._progress.set()
        self._dead.difference_update(ask.dead)
        self.clock.learn(grants.now)
        self.planner.note_epoch(grants.epoch)
        if granted := [HeldClaim(claim, sent) for claim in grants.claims if claim.fence not in self._held]:
            self._held.add(granted)
            self._wake_renew.set()
            self.ports.spawn(self._start(granted))
        wait_s = self._ask_again_in_s(ask, grants)
        return wait_s if is_new else 0.0  # more may have become due since a repeated ask was first sent

    def _new_ask(self) -> Ask:
        self._asks, self._owes_hooks = self._asks + 1, False
        unknown = self.unknown_tasks.excluded(self.ports.monotonic())
        return Ask(
            app=self.app,
            node=self.instance,
            number=self._asks,
            limit=min(self.fair_share.batch_limit(self._room()), self._burst.limit),
            hooks=max(0, self.tuning.max_hooks - self._held.hooks),
            queues=self.tuning.queues,
            dead=tuple(sorted(self._dead)),
            without=self.planner.excluded(unknown),
        )

    def _room(self) -> int:
        return 0 if self.draining else self._free()

    def _free(self) -> int:
        return max(0, self._capacity() - self._held.work)

    def _capacity(self) -> int:
        return self.tuning.max_running * self.ports.prefetch_factor()

    def _ask_again_in_s(self, ask: Ask, grants: Grants) -> float:
        decided = sum([claim.disposition is not None for claim in grants.claims])
        hooks = sum([is_hook(claim.fire) and claim.disposition is None for claim in grants.claims])
        runs = len(grants.claims) - decided - hooks
        self._was_full = runs >= ask.limit or hooks >= ask.hooks
        self._owes_hooks |= self.draining and hooks >= ask.hooks
        if self._burst.goes_on(self._was_full, ask.limit, self.ports.monotonic()):
            self._wake_look.set()
        is_more = self.fair_share.take(ask.limit, runs, self._room())
        at_once = is_more or decided >= SETTLED_MAX or not self.planner.is_deployed
        return 0.0 if at_once else grants.next_in_s

    # Attempts.

    async def _start(self, granted: Sequence[HeldClaim]) -> None:
        self._starting += 1
        try:
            await self._start_all(granted)
        finally:
            self._starting -= 1

    async def _start_all(self, granted: Sequence[HeldClaim]) -> None:
        """Start the attempts.  A fire of another revision starts by itself: it needs a store call first."""
        now = self.clock.now()
        for number, held in enumerate(granted, 1):
            fire, job = held.claim.fire, self.jobs.get(held.claim.fire.job)
            is_doubtful = is_other_revision(fire, job) and not self._is_message(fire)
            if is_doubtful and len(granted) > 1:
                self.ports.spawn(self._start([held]))
                continue
            try:
                if is_doubtful and held.claim.disposition is None:
                    job = await self.planner.definition_for(fire, held.renewed)
                    held.claim = with_policy_of(job, held.claim)
                    now = self.clock.now()
                verdict = self._start_attempt(held, job, now)
            except Exception as error:
                verdict = self._internal_error(held.claim, error)
            if verdict:
                self._settle(held, *not_started(verdict))
            if number % YIELD_EVERY == 0:
                await asyncio.sleep(0)
                now = self.clock.now()

    def _start_attempt(self, held: HeldClaim, job: Job | None, now: datetime) -> Verdict | None:
        """Start an attempt, or return the verdict on a fire that does not run."""
        claim = held.claim
        if verdict := admit(claim, self.ports.rng):
            return verdict
        if self.draining and (self._is_closing or not is_hook(claim.fire)):
            return return_claim("its node is shutting down", "shutdown")
        work = self._work_of(claim, job, now)
        if isinstance(work, Verdict):
            return work
        self.reporter.start(claim, now)
        if verdict := held.start(work, self.ports.starter):
            return verdict
        if hooks := start_hooks(claim, now):
            self.ports.spawn(self._put_hooks(hooks))
        if held.running:
            held.running.gone.add_done_callback(partial(self._on_end, held))
        return None

    async def _put_hooks(self, hooks: Sequence[Fire]) -> None:
        """Record hooks before the end of their fire is reported, which uses the same thread."""
        with suppress(StoreUnavailable):  # the node reports it; the ping of the end follows in any case
            await self.call("report", self.ports.store.put, hooks)

    def _work_of(self, claim: Claim, job: Job | None, now: datetime) -> Work | Verdict:
        fire, inbox = claim.fire, self.ports.inbox
        if inbox and self._is_message(fire):
            opened = inbox.open(fire, now)
            return self._refuse(fire, opened) if isinstance(opened, Refusal) else opened
        if job is None:
            self.planner.note_not_here(fire.job)
            return return_claim("its node does not hold its definition", "not-here")
        return work_of(job, claim) or Verdict(HOOK_REMOVED)

    def _refuse(self, fire: Fire, why: Refusal) -> Verdict:
        if why.fault != "unknown-task":
            return refuse(*why)
        if fire.job not in self.unknown_tasks:
            self.call.emit("task-unknown", task=fire.job.partition(".")[2])
        return self.unknown_tasks.verdict(fire.job, why, self.ports.monotonic())

    def _is_message(self, fire: Fire) -> bool:
        return fire.origin == "push" and self.ports.inbox is not None

    def _on_end(self, held: HeldClaim, gone: asyncio.Future[AttemptEnd]) -> None:
        self._ended.append((held, gone))
        self._wake_judge.set()

    # Step 2: renew.

    async def _renew(self) -> float:
        """Renew all held claims, running or not yet settled, in batches."""
        wait_s = self._held.renew_in_s(self.ports.monotonic())
        if wait_s > 0 and not self._must_renew:
            return wait_s
        claims = self._held.to_renew()
        if not claims:
            return wait_s
        self._must_renew = False
        for first in range(0, len(claims), self.tuning.renew_max):
            batch, sent = claims[first : first + self.tuning.renew_max], self.ports.monotonic()
            answers = await self.call("renew", self.ports.store.renew, [held.claim for held in batch])
            for held, stop in zip(batch, answers, strict=True):
                self._apply_renewal(held, stop, sent)
        return self._held.renew_in_s(self.ports.monotonic())

    def _apply_renewal(self, held: HeldClaim, stop: Outcome | None, sent: float) -> None:
        if stop and stop.kind == "lost":
            held.is_lost = True
        else:
            held.renew(sent)
        if stop and not held.stop_reason and not held.is_settled:
            if held.is_lost:
                about = {"reason": stop.reason, "cause": stop.cause}
                self.ports.emit("claim-lost", **fields_of(held.claim), **about)
            held.stop(stop)

    # Step 3: judge.

    async def _judge_ends(self) -> float:
        if self._starts_come_first():
            return self.tuning.gather_s
        ended, self._ended = self._ended, []
        for held, gone in ended:
            if held.is_settled or gone.cancelled():
                continue
            try:
                verdict, end = judge_end(held.claim, gone.result(), self.ports.rng)
            except Exception as error:
                verdict, end = not_started(self._internal_error(held.claim, error))
            self._settle(held, verdict, end)
        return self.tuning.idle_s

    def _starts_come_first(self) -> bool:
        """In a burst, starts go first.  Not in a worker: there, an end makes room for a waiting message."""
        return self.tuning.plans and self._burst.comes_first(self.ports.monotonic(), bool(self._starting))

    def _internal_error(self, claim: Claim, error: Exception) -> Verdict:
        """Fail the fire: a bug in detent must not leave it open for ever."""
        self.ports.emit("internal-error", **fields_of(claim), error=f"{type(error).__name__}: {error}")
        return Verdict(Outcome("failed", "internal error", "internal"))

    def _settle(self, held: HeldClaim, verdict: Verdict, end: End) -> None:
        settled = report(held.claim, verdict, end, now := self.clock.now())
        if verdict.again_in_s is None and (follow := self._following(settled, end.result, now)):
            settled = settled._replace(follow=settled.follow + follow)
        self._reports.append(settled)
        held.is_settled = True
        self._wake_report.set()

    def _following(self, settled: Report, result: str, now: datetime) -> tuple[Fire, ...]:
        """Return the fires that this end causes: messages of a chain, and jobs that run after this one."""
        fire, outcome, inbox = settled.claim.fire, settled.verdict.outcome, self.ports.inbox
        try:
            if fire.origin == "push":
                return inbox.follow(fire, outcome, now, result) if inbox else ()
            return self._followers.fires(fire, outcome, now)
        except Exception as error:  # the fire has ended in any case
            self._internal_error(settled.claim, error)
            return ()

    # Step 4: report.

    async def _report(self) -> float:
        """Record a batch of verdicts in the store, then emit their events."""
        if self._starts_come_first():
            return self.tuning.gather_s
        if reports := self._reports[: self.tuning.report_max]:
            answers = await self.call("report", self.ports.store.finish, reports)
            del self._reports[: len(reports)]
            self.settled += len(reports)
            for settled, verdict in zip(reports, answers, strict=True):
                self._held.remove(settled.claim)
                self.reporter.end(settled, verdict)
                self._forgotten_launches.remember(settled, verdict)
                has_hooks = bool(settled.follow) and settled.claim.disposition is None
                self._owes_hooks |= has_hooks and not self._is_closing
            self._progress.set()
            is_due_again = any(verdict and verdict.again_in_s is not None for verdict in answers)
            if self._was_full or is_due_again or (self.draining and self._owes_hooks):
                self._wake_look.set()  # to use the room, or to learn when a retry is due
        return 0.0 if self._reports else self.tuning.idle_s

    # Shutdown.

    async def drain(self, seconds: float) -> None:
        """Claim no more, wait for running attempts, stop those that are left, and settle all of them."""
        self.draining = True
        self.ports.return_unstarted()
        self._wake_look.set()
        if not await self._is_idle_within(seconds):
            self._is_closing, self._owes_hooks = True, False  # the next node calls the hooks of these
            self._stop_all(kill_after_s=0.0 if self._hurry.is_set() else None)
            if running := [held.running.gone for held in self._held if held.running]:
                await asyncio.wait(running)
            self._hurry.clear()
            await self._is_idle_within(self.tuning.settle_s)

    def running(self) -> list[str]:
        """Return the keys of the running fires."""
        return [held.claim.fire.key for held in self._held if held.running]

    def hurry(self) -> None:
        """Kill what still runs instead of waiting for it."""
        self._hurry.set()
        self._progress.set()
        if self.draining:
            self._stop_all(kill_after_s=0.0)

    def _stop_all(self, kill_after_s: float | None) -> None:
        for held in self._held:
            held.stop(Outcome("lost", "shutdown", "shutdown"), kill_after_s)

    async def _is_idle_within(self, seconds: float) -> bool:
        until = self.ports.monotonic() + seconds
        while self._is_busy() and not self._hurry.is_set() and (left := until - self.ports.monotonic()) > 0:
            await self._progress.sleep(left)
        return not self._is_busy()

    def _is_busy(self) -> bool:
        """Return whether there is a claim to settle, a hook to call or an ask without an answer."""
        return bool(self._held) or self._owes_hooks or self._ask is not None
