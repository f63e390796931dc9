"""A node: plans fires, claims them, attempts them, settles them.  The only loops in the program.

It needs no wall clock: what is due, late or missed is the store's to say.  Its own clock is
monotonic, and can only make it stop sooner.  Four steps, each repeated when it says or when its
bell rings: look for fires (plan, claim), renew what is held, judge what has ended, report it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial

from detent.errors import StoreUnavailable
from detent.messages.envelope import Refusal
from detent.model import Ask, Claim, End, Fire, Grants, Job, Outcome, Report, Verdict, Work
from detent.node.attempt import (
    HeldClaim,
    is_other_revision,
    is_sentenced,
    judge_end,
    not_started,
    start,
    with_policy_of,
    work_of,
)
from detent.node.burst import Burst
from detent.node.fairness import FairShare, loads_of
from detent.node.planner import RING_READ_S, Planning
from detent.node.ports import Ports, Tuning, Wakeup
from detent.node.reporting import Reporter, fields_of
from detent.rules.chains import Followers
from detent.rules.outcomes import HOOK_REMOVED
from detent.rules.settling import admit, refuse, report, return_claim
from detent.runners.running import AttemptEnd
from detent.stores.base import DISPOSITIONS_MAX, NODE, is_hook
from detent.worker.unknown_tasks import UnknownTasks

YIELD_EVERY = 100  # attempts that are begun before others get their turn


class Node(Planning):
    def __init__(
        self, instance: str, app: str, jobs: Mapping[str, Job], ports: Ports, tuning: Tuning
    ) -> None:
        super().__init__(instance, app, jobs, ports, tuning)
        self.fair_share, self.draining = FairShare(is_worker=not tuning.plans), False
        self._owes_hooks = self._is_closing = False  # while it drains
        self._ask: Ask | None = None
        self._asks = self.settled = 0
        self._dead: set[str] = set()
        self._live_instances: set[str] = set()  # the heartbeats that we saw last
        self._full = False  # the newest ask used up our room: there may be more
        self._held: dict[int, HeldClaim] = {}  # by fence, until settled
        self._hooks = self._sentenced = 0  # among them: neither takes a place
        self._renew_by = math.inf  # not later than the first of them has to be renewed
        self._beginning = 0  # rounds of attempts that are being begun
        self._ended: list[tuple[HeldClaim, asyncio.Future[AttemptEnd]]] = []
        self._done: list[Report] = []
        self._look, self._keep, self._end, self._tell = Wakeup(), Wakeup(), Wakeup(), Wakeup()
        self._renew_now, self._burst = False, Burst(tuning.burst_s, tuning.ask_max)
        self._settled, self._hurried = Wakeup(), asyncio.Event()
        self.reporter, self._call.back, self._back = Reporter(ports.emit), self._store_is_back, Wakeup()
        self._followers, self.unknown = Followers(jobs.values()), UnknownTasks()

    # What others tell it.

    def wake(self) -> None:
        """Something changed in the store: there may be work to take, or to stop."""
        self._renew_now |= bool(self._held or self._ask)  # what is claimed later knows of it
        self._rang = True
        self._look.set()
        self._keep.set()

    def declare_dead(self, instance: str) -> None:
        """All processes of that life are proven dead: its claims are free."""
        self._dead.add(instance)
        self._look.set()

    async def wait_for_store(self) -> None:
        """After another call of the store failed: ask the store too, so that the node reports it if it is
        away; then wait until it answers again, or for as long as it is to be left alone."""
        if not self._call.is_away:
            self._look.set()
        await self._back.sleep(self._call.pause_s())

    def _store_is_back(self) -> None:
        self._look.set()
        self._back.set()

    def is_declared_dead(self, instance: str) -> bool:
        """Has the store been told?"""
        return instance not in self._dead

    def load(self) -> float:
        """How much it had of late: to be compared, once, with the loads of the other nodes."""
        return self.fair_share.load(len(self._held), self.ports.monotonic())

    async def beat(self) -> None:
        """Tell the other nodes that we are alive, and share what is due with those that serve our queues."""
        load = self.load()
        await self.announce("renew", load)
        living = await self._call("renew", self.ports.store.notes, self.app, NODE)
        instances = {note.name for note in living}
        if self._live_instances - instances or self.timeline.superseded:
            self._rang = True  # perhaps no other living node holds these jobs any more
            self._look.set()
        self._live_instances = instances
        self.unknown.learn(living, self.ports.monotonic())
        self.fair_share.compare([*loads_of(living, self.tuning.queues, self.store_now())], load)

    def reload(self, jobs: Mapping[str, Job]) -> None:
        """Other jobs from now on; what runs goes on."""
        self.jobs, self._followers = jobs, Followers(jobs.values())
        self._adopted, self._deploys = False, True
        self._without.clear()
        self._look.set()

    # The loops.

    async def run(self) -> None:
        steps = (
            (self._look_for_fires, self._look),
            (self._renew, self._keep),
            (self._judge_ends, self._end),
            (self._report, self._tell),
        )
        await asyncio.gather(*(self.ports.spawn(self._repeat(step, wakeup)) for step, wakeup in steps))

    async def _repeat(self, step: Callable[[], Awaitable[float]], wakeup: Wakeup) -> None:
        """Do it, and again when it says or when the bell rings; sooner if the store is away, and at once
        if it was not: perhaps only an answer was lost."""
        has_failed = False
        while True:
            began = self.ports.monotonic()
            try:
                wait_s, has_failed = await step(), False
            except StoreUnavailable:
                pause_s = self._call.pause_s() if wakeup is self._look else self.tuning.retry_s
                wait_s, has_failed = pause_s if has_failed else 0.0, True
            if wakeup is self._look:
                self.ports.rounded()
            await wakeup.sleep(min(max(wait_s, self.tuning.least_s), self.tuning.idle_s))
            early_s = began + self.tuning.gather_s - self.ports.monotonic()
            if early_s > 0 and not self._is_worthwhile(wakeup):
                await asyncio.sleep(early_s)

    def _is_worthwhile(self, wakeup: Wakeup) -> bool:
        """A call of the store costs as much for one fire as for ten: under load, some are gathered first."""
        many = self._most() // 4
        if wakeup is self._look:
            return self.draining or self._free() >= many
        return wakeup is not self._tell or len(self._done) >= many

    # Planning.

    async def _look_for_fires(self) -> float:
        if self.draining:  # what it gets is given back, but for the hooks of what it ran
            return await self._claim() if self._ask or self._owes_hooks else self.tuning.idle_s
        if not self._adopted:
            await self._adopt()
        if self.tuning.plans:
            await self._plan_ahead()
        next_in_s, answered = await self._claim(), self.ports.monotonic()
        find = partial(self._call, "look", self.ports.store.find)
        await self._forgotten_launches.report_forgotten(self.app, find, self.ports.emit)
        plan_in_s = self.timeline.next_in_s(self.store_now()) if self.tuning.plans else math.inf
        if self.tuning.plans and self._rang:
            plan_in_s = min(plan_in_s, RING_READ_S)
        return min(next_in_s - (self.ports.monotonic() - answered), plan_in_s)  # marks take a while to sort

    # Claiming.

    async def _claim(self) -> float:
        """Ask for as much as we have room for; repeat an ask until it is answered."""
        is_new = self._ask is None
        if self._ask is None:
            await asyncio.sleep(self.fair_share.delay_s)
            self._ask = self._new_ask()
        ask, sent = self._ask, self.ports.monotonic()
        grants = await self._call("look", self.ports.store.claim, ask)
        self._ask = None
        self._settled.set()
        self._dead.difference_update(ask.dead)
        self._learn(grants.now)
        if grants.epoch != self.timeline.epoch:
            self._adopted, self._deploys = False, True  # it may have forgotten whose jobs these are
        if fresh := [HeldClaim(claim, sent) for claim in grants.claims if claim.fence not in self._held]:
            self._hold(fresh)
            self.ports.spawn(self._begin(fresh))
        wait_s = self._when_to_ask_again(ask, grants)
        return wait_s if is_new else 0.0  # what became due since it was first sent is for the next one

    def _hold(self, fresh: Sequence[HeldClaim]) -> None:
        self._held.update((holding.claim.fence, holding) for holding in fresh)
        self._hooks += sum([holding.claim.fire.origin == "hook" for holding in fresh])
        self._sentenced += sum([is_sentenced(holding.claim) for holding in fresh])
        of_each_ttl = {holding.claim.ttl_s: holding for holding in fresh}  # few: they are from one ask
        self._renew_by = min(self._renew_by, *(holding.renew_at for holding in of_each_ttl.values()))
        self._keep.set()

    def _let_go(self, claim: Claim) -> None:
        del self._held[claim.fence]
        self._hooks -= is_hook(claim.fire)
        self._sentenced -= is_sentenced(claim)

    def _new_ask(self) -> Ask:
        self._asks, self._owes_hooks = self._asks + 1, False
        (room, hooks), unknown = self._room(), self.unknown.excluded(self.ports.monotonic())
        return Ask(
            app=self.app,
            node=self.instance,
            number=self._asks,
            limit=min(self.fair_share.batch_limit(room), self._burst.limit),
            hooks=hooks,
            queues=self.tuning.queues,
            dead=tuple(sorted(self._dead)),
            without=tuple(sorted(self.timeline.excluded(self._without | unknown))),
        )

    def _room(self) -> tuple[int, int]:
        """For how much work, and for how many hooks."""
        work = 0 if self.draining else self._free()
        return work, max(0, self.tuning.max_hooks - self._hooks)

    def _free(self) -> int:
        return max(0, self._most() - len(self._held) + self._hooks + self._sentenced)

    def _most(self) -> int:
        return self.tuning.max_running * self.ports.prefetch_factor()

    def _when_to_ask_again(self, ask: Ask, grants: Grants) -> float:
        dispositions = sum([claim.disposition is not None for claim in grants.claims])
        hooks = sum([claim.fire.origin == "hook" and claim.disposition is None for claim in grants.claims])
        runs = len(grants.claims) - dispositions - hooks
        self._full = runs >= ask.limit or hooks >= ask.hooks
        self._owes_hooks |= self.draining and hooks >= ask.hooks
        if self._burst.goes_on(self._full, ask.limit, self.ports.monotonic()):
            self._look.set()
        is_more = self.fair_share.take(ask.limit, runs, self._room()[0])
        at_once = is_more or dispositions >= DISPOSITIONS_MAX or not self._adopted
        return 0.0 if at_once else grants.next_in_s

    # Attempts.

    async def _begin(self, holdings: Sequence[HeldClaim]) -> None:
        self._beginning += 1
        try:
            await self._begin_all(holdings)
        finally:
            self._beginning -= 1

    async def _begin_all(self, holdings: Sequence[HeldClaim]) -> None:
        """Start all of these; who needs to look into the store first waits alone."""
        now = self.store_now()
        for number, holding in enumerate(holdings, 1):
            fire, job = holding.claim.fire, self.jobs.get(holding.claim.fire.job)
            is_doubtful = is_other_revision(fire, job) and not self._is_message(fire)
            if is_doubtful and len(holdings) > 1:
                self.ports.spawn(self._begin([holding]))
                continue
            try:
                if is_doubtful and holding.claim.disposition is None:
                    job = await self._definition(fire, holding.renewed)
                    holding.claim = with_policy_of(job, holding.claim)
                    now = self.store_now()
                verdict = self._start_attempt(holding, job, now)
            except Exception as error:
                verdict = self._broken(holding.claim, error)
            if verdict:
                self._settle(holding, *not_started(verdict))
            if number % YIELD_EVERY == 0:
                await asyncio.sleep(0)
                now = self.store_now()

    def _start_attempt(self, holding: HeldClaim, job: Job | None, now: datetime) -> Verdict | None:
        """None: it is under way."""
        claim = holding.claim
        if verdict := admit(claim, self.ports.rng):
            return verdict
        if self.draining and (self._is_closing or not is_hook(claim.fire)):
            return return_claim("its node is shutting down", "shutdown")
        work = self._work_of(holding, job, now)
        if isinstance(work, Verdict):
            return work
        self.reporter.start(claim, now)
        if verdict := start(holding, work, self.ports.starter):
            return verdict
        if holding.running:
            holding.running.gone.add_done_callback(partial(self._note_end, holding))
        return None

    def _work_of(self, holding: HeldClaim, job: Job | None, now: datetime) -> Work | Verdict:
        """What it is to carry out, or what becomes of it without that."""
        fire, inbox = holding.claim.fire, self.ports.inbox
        if inbox and self._is_message(fire):
            opened = inbox.open(fire, now)
            return self._refused(fire, opened) if isinstance(opened, Refusal) else opened
        if job is None:
            self._without.add(fire.job)
            return return_claim("its node does not hold its definition", "not-here")
        work = work_of(job, holding.claim)
        return work or Verdict(HOOK_REMOVED)

    def _refused(self, fire: Fire, why: Refusal) -> Verdict:
        """What becomes of a message that may not run here."""
        if why.fault != "unknown-task":
            return refuse(*why)
        if fire.job not in self.unknown:
            self.ports.emit("task-unknown", app=self.app, node=self.instance, task=fire.job.partition(".")[2])
        return self.unknown.verdict(fire.job, why, self.ports.monotonic())

    def _is_message(self, fire: Fire) -> bool:
        """Is it one that we open, and not the fire of a job?"""
        return fire.origin == "push" and self.ports.inbox is not None

    def _note_end(self, holding: HeldClaim, gone: asyncio.Future[AttemptEnd]) -> None:
        self._ended.append((holding, gone))
        self._end.set()

    async def _judge_ends(self) -> float:
        if self._starts_come_first():
            return self.tuning.gather_s
        ended, self._ended = self._ended, []
        for holding, gone in ended:
            if holding.settled or gone.cancelled():
                continue
            try:
                verdict, end = judge_end(holding.claim, gone.result(), self.ports.rng)
            except Exception as error:
                verdict, end = not_started(self._broken(holding.claim, error))
            self._settle(holding, verdict, end)
        return self.tuning.idle_s

    def _starts_come_first(self) -> bool:
        """Not in a worker: what has ended there makes room for what waits in its queues."""
        return self.tuning.plans and self._burst.comes_first(self.ports.monotonic(), bool(self._beginning))

    def _broken(self, claim: Claim, error: Exception) -> Verdict:
        """A bug of ours must not leave the fire open for ever."""
        text = f"{type(error).__name__}: {error}"
        self.ports.emit("internal-error", **fields_of(claim), error=text)
        return Verdict(Outcome("failed", "internal error", "internal"))

    def _settle(self, holding: HeldClaim, verdict: Verdict, end: End) -> None:
        settled = report(holding.claim, verdict, end, now := self.store_now())
        if verdict.again_in_s is None and (follow := self._what_follows(settled, end.result, now)):
            settled = settled._replace(follow=settled.follow + follow)
        self._done.append(settled)
        holding.settled = True
        self._tell.set()

    def _what_follows(self, settled: Report, result: str, now: datetime) -> tuple[Fire, ...]:
        """The messages and the jobs that its end brings about."""
        fire, outcome, inbox = settled.claim.fire, settled.verdict.outcome, self.ports.inbox
        try:
            if fire.origin == "push":
                return inbox.follow(fire, outcome, now, result) if inbox else ()
            return self._followers.fires(fire, outcome, now)
        except Exception as error:  # it has ended all the same
            self._broken(settled.claim, error)
            return ()

    # Keeping and settling.

    async def _renew(self) -> float:
        """Renew all that we hold, at work or not yet settled, in few calls."""
        now = self.ports.monotonic()
        if now < self._renew_by and not self._renew_now:
            return self._renew_by - now
        held = [holding for holding in self._held.values() if not holding.lost]
        self._renew_by = soonest = min((holding.renew_at for holding in held), default=math.inf)
        if not held or (now < soonest and not self._renew_now):
            return soonest - now
        self._renew_now = False
        for first in range(0, len(held), self.tuning.renew_max):
            batch, sent = held[first : first + self.tuning.renew_max], self.ports.monotonic()
            answers = await self._call("renew", self.ports.store.renew, [holding.claim for holding in batch])
            for holding, stop in zip(batch, answers, strict=True):
                self._apply_renewal(holding, stop, sent)
        self._renew_by = min((one.renew_at for one in self._held.values() if not one.lost), default=math.inf)
        return self._renew_by - self.ports.monotonic()

    def _apply_renewal(self, holding: HeldClaim, stop: Outcome | None, sent: float) -> None:
        """The store's answer to a renewal: go on, or stop."""
        if stop and stop.kind == "lost":
            holding.lost = True
        else:
            holding.renew(sent)
        if stop and not holding.stop_reason and not holding.settled:
            if holding.lost:
                self.ports.emit(
                    "claim-lost", **fields_of(holding.claim), reason=stop.reason, cause=stop.cause
                )
            holding.stop(stop)

    async def _report(self) -> float:
        """Record the verdicts in one batch, however long the store is away; then say so."""
        if self._starts_come_first():
            return self.tuning.gather_s
        if reports := self._done[: self.tuning.report_max]:
            answers = await self._call("report", self.ports.store.finish, reports)
            del self._done[: len(reports)]
            self.settled += len(reports)
            for one, stands in zip(reports, answers, strict=True):
                self._let_go(one.claim)
                self.reporter.end(one, stands)
                self._forgotten_launches.remember(one, stands)
                self._owes_hooks |= (
                    bool(one.follow) and one.claim.disposition is None and not self._is_closing
                )
            self._settled.set()
            is_due_again = any(stands and stands.again_in_s is not None for stands in answers)
            if self._full or is_due_again or (self.draining and self._owes_hooks):
                self._look.set()  # there is room for more; or to learn when a retry is due
        return 0.0 if self._done else self.tuning.idle_s

    # The end.

    async def drain(self, seconds: float) -> None:
        """Take no more; let what runs end; end the rest; have it all settled."""
        self.draining = True
        self.ports.recall()
        self._look.set()
        if not await self._is_settled_within(seconds):
            self._is_closing, self._owes_hooks = True, False  # the next node calls the hooks of what we end
            self._stop_all(kill_after_s=0.0 if self._hurried.is_set() else None)
            if running := [held.running.gone for held in self._held.values() if held.running]:
                await asyncio.wait(running)
            self._hurried.clear()
            await self._is_settled_within(self.tuning.settle_s)

    def running(self) -> list[str]:
        """The keys of the fires that run now."""
        return [holding.claim.fire.key for holding in self._held.values() if holding.running]

    def hurry(self) -> None:
        """End at once what still runs."""
        self._hurried.set()
        self._settled.set()
        if self.draining:
            self._stop_all(kill_after_s=0.0)

    def _stop_all(self, kill_after_s: float | None) -> None:
        for holding in self._held.values():
            holding.stop(Outcome("lost", "shutdown", "shutdown"), kill_after_s)

    async def _is_settled_within(self, seconds: float) -> bool:
        until = self.ports.monotonic() + seconds
        while self._is_busy() and not self._hurried.is_set() and (left := until - self.ports.monotonic()) > 0:
            await self._settled.sleep(left)
        return not self._is_busy()

    def _is_busy(self) -> bool:
        """Is there something to settle, a hook to call, or an ask whose answer is not known?"""
        return bool(self._held) or self._owes_hooks or self._ask is not None
