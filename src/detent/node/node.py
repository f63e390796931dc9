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
from detent.node.attempt import Holding, is_in_doubt, is_sentenced, judge, start, under, without_work, work_of
from detent.node.burst import Burst
from detent.node.fairness import Share, loads_of
from detent.node.planner import RING_READ_S, Planning
from detent.node.ports import Bell, Edges, Pace
from detent.node.reporting import Telling, fields_of
from detent.rules.chains import Followers
from detent.rules.outcomes import HOOK_REMOVED
from detent.rules.settling import admit, give_back, refuse, report
from detent.runners.running import Went
from detent.stores.base import NODE, SENTENCES_MAX, is_hook
from detent.worker.unknown_tasks import UnknownTasks

TURN = 100  # attempts that are begun before others get their turn


class Node(Planning):
    def __init__(self, life: str, app: str, jobs: Mapping[str, Job], edges: Edges, pace: Pace) -> None:
        super().__init__(life, app, jobs, edges, pace)
        self.share, self.draining = Share(is_worker=not pace.plans), False
        self._owes_hooks = self._is_closing = False  # while it drains
        self._ask: Ask | None = None
        self._asks = self.settled = 0
        self._dead: set[str] = set()
        self._lives: set[str] = set()  # the heartbeats that we saw last
        self._full = False  # the newest ask used up our room: there may be more
        self._held: dict[int, Holding] = {}  # by fence, until settled
        self._hooks = self._sentenced = 0  # among them: neither takes a place
        self._renew_by = math.inf  # not later than the first of them has to be renewed
        self._beginning = 0  # rounds of attempts that are being begun
        self._ended: list[tuple[Holding, asyncio.Future[Went]]] = []
        self._done: list[Report] = []
        self._look, self._keep, self._end, self._tell = Bell(), Bell(), Bell(), Bell()
        self._renew_now, self._burst = False, Burst(pace.burst_s, pace.ask_max)
        self._settled, self._hurried = Bell(), asyncio.Event()
        self.tell, self._call.back, self._back = Telling(edges.emit), self._store_is_back, Bell()
        self._followers, self.unknown = Followers(jobs.values()), UnknownTasks()

    # What others tell it.

    def told(self) -> None:
        """Something changed in the store: there may be work to take, or to stop."""
        self._renew_now |= bool(self._held or self._ask)  # what is claimed later knows of it
        self._rang = True
        self._look.ring()
        self._keep.ring()

    def bury(self, life: str) -> None:
        """All processes of that life are proven dead: its claims are free."""
        self._dead.add(life)
        self._look.ring()

    async def wait_for_store(self) -> None:
        """After another call of the store failed: ask the store too, so that the node reports it if it is
        away; then wait until it answers again, or for as long as it is to be left alone."""
        if not self._call.is_away:
            self._look.ring()
        await self._back.sleep(self._call.pause_s())

    def _store_is_back(self) -> None:
        self._look.ring()
        self._back.ring()

    def has_buried(self, life: str) -> bool:
        """Has the store been told?"""
        return life not in self._dead

    def load(self) -> float:
        """How much it had of late: to be compared, once, with the loads of the other nodes."""
        return self.share.load(len(self._held), self.edges.monotonic())

    async def beat(self) -> None:
        """Tell the other nodes that we are alive, and share what is due with those that serve our queues."""
        load = self.load()
        await self.announce("renew", load)
        living = await self._call("renew", self.edges.store.notes, self.app, NODE)
        lives = {note.name for note in living}
        if self._lives - lives:
            self._rang = True  # a node is gone: perhaps nobody else holds its jobs
            self._look.ring()
        self._lives = lives
        self.unknown.hear(living, self.edges.monotonic())
        self.share.compare([*loads_of(living, self.pace.queues, self.store_now())], load)

    def reload(self, jobs: Mapping[str, Job]) -> None:
        """Other jobs from now on; what runs goes on."""
        self.jobs, self._followers = jobs, Followers(jobs.values())
        self._adopted, self._deploys = False, True
        self._without.clear()
        self._look.ring()

    # The loops.

    async def run(self) -> None:
        steps = (
            (self._look_for_fires, self._look),
            (self._renew, self._keep),
            (self._judge_ends, self._end),
            (self._report, self._tell),
        )
        await asyncio.gather(*(self.edges.spawn(self._repeat(step, bell)) for step, bell in steps))

    async def _repeat(self, step: Callable[[], Awaitable[float]], bell: Bell) -> None:
        """Do it, and again when it says or when the bell rings; sooner if the store is away, and at once
        if it was not: perhaps only an answer was lost."""
        has_failed = False
        while True:
            began = self.edges.monotonic()
            try:
                wait_s, has_failed = await step(), False
            except StoreUnavailable:
                pause_s = self._call.pause_s() if bell is self._look else self.pace.retry_s
                wait_s, has_failed = pause_s if has_failed else 0.0, True
            if bell is self._look:
                self.edges.rounded()
            await bell.sleep(min(max(wait_s, self.pace.least_s), self.pace.idle_s))
            early_s = began + self.pace.gather_s - self.edges.monotonic()
            if early_s > 0 and not self._is_worthwhile(bell):
                await asyncio.sleep(early_s)

    def _is_worthwhile(self, bell: Bell) -> bool:
        """A call of the store costs as much for one fire as for ten: under load, some are gathered first."""
        many = self._most() // 4
        if bell is self._look:
            return self.draining or self._free() >= many
        return bell is not self._tell or len(self._done) >= many

    # Planning.

    async def _look_for_fires(self) -> float:
        if self.draining:  # what it gets is given back, but for the hooks of what it ran
            return await self._claim() if self._ask or self._owes_hooks else self.pace.idle_s
        if not self._adopted:
            await self._adopt()
        if self.pace.plans:
            await self._plan_ahead()
        next_in_s, answered = await self._claim(), self.edges.monotonic()
        find = partial(self._call, "look", self.edges.store.find)
        await self._recollection.tell_forgotten(self.app, find, self.edges.emit)
        plan_in_s = self.timeline.next_in_s(self.store_now()) if self.pace.plans else math.inf
        if self.pace.plans and self._rang:
            plan_in_s = min(plan_in_s, RING_READ_S)
        return min(next_in_s - (self.edges.monotonic() - answered), plan_in_s)  # marks take a while to sort

    # Claiming.

    async def _claim(self) -> float:
        """Ask for as much as we have room for; repeat an ask until it is answered."""
        is_new = self._ask is None
        if self._ask is None:
            await asyncio.sleep(self.share.delay_s)
            self._ask = self._new_ask()
        ask, sent = self._ask, self.edges.monotonic()
        grants = await self._call("look", self.edges.store.claim, ask)
        self._ask = None
        self._settled.ring()
        self._dead.difference_update(ask.dead)
        self._learn(grants.now)
        if grants.epoch != self.timeline.epoch:
            self._adopted, self._deploys = False, True  # it may have forgotten whose jobs these are
        if fresh := [Holding(claim, sent) for claim in grants.claims if claim.fence not in self._held]:
            self._hold(fresh)
            self.edges.spawn(self._begin(fresh))
        wait_s = self._when_to_ask_again(ask, grants)
        return wait_s if is_new else 0.0  # what became due since it was first sent is for the next one

    def _hold(self, fresh: Sequence[Holding]) -> None:
        self._held.update((holding.claim.fence, holding) for holding in fresh)
        self._hooks += sum([holding.claim.fire.origin == "hook" for holding in fresh])
        self._sentenced += sum([is_sentenced(holding.claim) for holding in fresh])
        of_each_ttl = {holding.claim.ttl_s: holding for holding in fresh}  # few: they are from one ask
        self._renew_by = min(self._renew_by, *(holding.renew_at for holding in of_each_ttl.values()))
        self._keep.ring()

    def _let_go(self, claim: Claim) -> None:
        del self._held[claim.fence]
        self._hooks -= is_hook(claim.fire)
        self._sentenced -= is_sentenced(claim)

    def _new_ask(self) -> Ask:
        self._asks, self._owes_hooks = self._asks + 1, False
        (room, hooks), unknown = self._room(), self.unknown.left_out(self.edges.monotonic())
        return Ask(
            app=self.app,
            node=self.life,
            number=self._asks,
            limit=min(self.share.bite(room), self._burst.bite),
            hooks=hooks,
            queues=self.pace.queues,
            dead=tuple(sorted(self._dead)),
            without=tuple(sorted(self.timeline.left_out(self._without | unknown))),
        )

    def _room(self) -> tuple[int, int]:
        """For how much work, and for how many hooks."""
        work = 0 if self.draining else self._free()
        return work, max(0, self.pace.max_hooks - self._hooks)

    def _free(self) -> int:
        return max(0, self._most() - len(self._held) + self._hooks + self._sentenced)

    def _most(self) -> int:
        return self.pace.max_running * self.edges.stretch()

    def _when_to_ask_again(self, ask: Ask, grants: Grants) -> float:
        sentences = sum([claim.sentence is not None for claim in grants.claims])
        hooks = sum([claim.fire.origin == "hook" and claim.sentence is None for claim in grants.claims])
        runs = len(grants.claims) - sentences - hooks
        self._full = runs >= ask.limit or hooks >= ask.hooks
        self._owes_hooks |= self.draining and hooks >= ask.hooks
        if self._burst.goes_on(self._full, ask.limit, self.edges.monotonic()):
            self._look.ring()
        is_more = self.share.take(ask.limit, runs, self._room()[0])
        at_once = is_more or sentences >= SENTENCES_MAX or not self._adopted
        return 0.0 if at_once else grants.next_in_s

    # Attempts.

    async def _begin(self, holdings: Sequence[Holding]) -> None:
        self._beginning += 1
        try:
            await self._begin_all(holdings)
        finally:
            self._beginning -= 1

    async def _begin_all(self, holdings: Sequence[Holding]) -> None:
        """Start all of these; who needs to look into the store first waits alone."""
        now = self.store_now()
        for number, holding in enumerate(holdings, 1):
            fire, job = holding.claim.fire, self.jobs.get(holding.claim.fire.job)
            is_doubtful = is_in_doubt(fire, job) and not self._is_message(fire)
            if is_doubtful and len(holdings) > 1:
                self.edges.spawn(self._begin([holding]))
                continue
            try:
                if is_doubtful and holding.claim.sentence is None:
                    job = await self._definition(fire, holding.renewed)
                    holding.claim = under(job, holding.claim)
                    now = self.store_now()
                verdict = self._carry_out(holding, job, now)
            except Exception as error:
                verdict = self._broken(holding.claim, error)
            if verdict:
                self._settle(holding, *without_work(verdict))
            if number % TURN == 0:
                await asyncio.sleep(0)
                now = self.store_now()

    def _carry_out(self, holding: Holding, job: Job | None, now: datetime) -> Verdict | None:
        """None: it is under way."""
        claim = holding.claim
        if verdict := admit(claim, self.edges.rng):
            return verdict
        if self.draining and (self._is_closing or not is_hook(claim.fire)):
            return give_back("its node is shutting down", "shutdown")
        work = self._work_of(holding, job, now)
        if isinstance(work, Verdict):
            return work
        self.tell.start(claim, now)
        if verdict := start(holding, work, self.edges.starter):
            return verdict
        if holding.running:
            holding.running.gone.add_done_callback(partial(self._note_end, holding))
        return None

    def _work_of(self, holding: Holding, job: Job | None, now: datetime) -> Work | Verdict:
        """What it is to carry out, or what becomes of it without that."""
        fire, desk = holding.claim.fire, self.edges.desk
        if desk and self._is_message(fire):
            opened = desk.open(fire, now)
            return self._refused(fire, opened) if isinstance(opened, Refusal) else opened
        if job is None:
            self._without.add(fire.job)
            return give_back("its node does not hold its definition", "not-here")
        work = work_of(job, holding.claim)
        return work or Verdict(HOOK_REMOVED)

    def _refused(self, fire: Fire, why: Refusal) -> Verdict:
        """What becomes of a message that may not run here."""
        if why.fault != "unknown-task":
            return refuse(*why)
        if fire.job not in self.unknown:
            self.edges.emit("task-unknown", app=self.app, node=self.life, task=fire.job.partition(".")[2])
        return self.unknown.verdict(fire.job, why, self.edges.monotonic())

    def _is_message(self, fire: Fire) -> bool:
        """Is it one that we open, and not the fire of a job?"""
        return fire.origin == "push" and self.edges.desk is not None

    def _note_end(self, holding: Holding, gone: asyncio.Future[Went]) -> None:
        self._ended.append((holding, gone))
        self._end.ring()

    async def _judge_ends(self) -> float:
        if self._starts_come_first():
            return self.pace.gather_s
        ended, self._ended = self._ended, []
        for holding, gone in ended:
            if holding.settled or gone.cancelled():
                continue
            try:
                verdict, end = judge(holding.claim, gone.result(), self.edges.rng)
            except Exception as error:
                verdict, end = without_work(self._broken(holding.claim, error))
            self._settle(holding, verdict, end)
        return self.pace.idle_s

    def _starts_come_first(self) -> bool:
        """Not in a worker: what has ended there makes room for what waits in its queues."""
        return self.pace.plans and self._burst.comes_first(self.edges.monotonic(), bool(self._beginning))

    def _broken(self, claim: Claim, error: Exception) -> Verdict:
        """A bug of ours must not leave the fire open for ever."""
        text = f"{type(error).__name__}: {error}"
        self.edges.emit("internal-error", **fields_of(claim), error=text)
        return Verdict(Outcome("failed", "internal error", "internal"))

    def _settle(self, holding: Holding, verdict: Verdict, end: End) -> None:
        told = report(holding.claim, verdict, end, now := self.store_now())
        if verdict.again_in_s is None and (follow := self._what_follows(told, end.result, now)):
            told = told._replace(follow=told.follow + follow)
        self._done.append(told)
        holding.settled = True
        self._tell.ring()

    def _what_follows(self, told: Report, result: str, now: datetime) -> tuple[Fire, ...]:
        """The messages and the jobs that its end brings about."""
        fire, outcome, desk = told.claim.fire, told.verdict.outcome, self.edges.desk
        try:
            if fire.origin == "push":
                return desk.follow(fire, outcome, now, result) if desk else ()
            return self._followers.fires(fire, outcome, now)
        except Exception as error:  # it has ended all the same
            self._broken(told.claim, error)
            return ()

    # Keeping and settling.

    async def _renew(self) -> float:
        """Renew all that we hold, at work or not yet settled, in few calls."""
        now = self.edges.monotonic()
        if now < self._renew_by and not self._renew_now:
            return self._renew_by - now
        held = [holding for holding in self._held.values() if not holding.lost]
        self._renew_by = soonest = min((holding.renew_at for holding in held), default=math.inf)
        if not held or (now < soonest and not self._renew_now):
            return soonest - now
        self._renew_now = False
        for first in range(0, len(held), self.pace.renew_max):
            batch, sent = held[first : first + self.pace.renew_max], self.edges.monotonic()
            answers = await self._call("renew", self.edges.store.renew, [holding.claim for holding in batch])
            for holding, stop in zip(batch, answers, strict=True):
                self._heed(holding, stop, sent)
        self._renew_by = min((one.renew_at for one in self._held.values() if not one.lost), default=math.inf)
        return self._renew_by - self.edges.monotonic()

    def _heed(self, holding: Holding, stop: Outcome | None, sent: float) -> None:
        """The store's answer to a renewal: go on, or stop."""
        if stop and stop.kind == "lost":
            holding.lost = True
        else:
            holding.renew(sent)
        if stop and not holding.told and not holding.settled:
            if holding.lost:
                self.edges.emit(
                    "claim-lost", **fields_of(holding.claim), reason=stop.reason, cause=stop.cause
                )
            holding.stop(stop)

    async def _report(self) -> float:
        """Record the verdicts in one batch, however long the store is away; then say so."""
        if self._starts_come_first():
            return self.pace.gather_s
        if reports := self._done[: self.pace.report_max]:
            answers = await self._call("report", self.edges.store.finish, reports)
            del self._done[: len(reports)]
            self.settled += len(reports)
            for one, stands in zip(reports, answers, strict=True):
                self._let_go(one.claim)
                self.tell.end(one, stands)
                self._recollection.keep(one, stands)
                self._owes_hooks |= bool(one.follow) and one.claim.sentence is None and not self._is_closing
            self._settled.ring()
            is_due_again = any(stands and stands.again_in_s is not None for stands in answers)
            if self._full or is_due_again or (self.draining and self._owes_hooks):
                self._look.ring()  # there is room for more; or to learn when a retry is due
        return 0.0 if self._done else self.pace.idle_s

    # The end.

    async def drain(self, seconds: float) -> None:
        """Take no more; let what runs end; end the rest; have it all settled."""
        self.draining = True
        self.edges.recall()
        self._look.ring()
        if not await self._is_settled_within(seconds):
            self._is_closing, self._owes_hooks = True, False  # the next node calls the hooks of what we end
            self._stop_all(kill_after_s=0.0 if self._hurried.is_set() else None)
            if running := [held.running.gone for held in self._held.values() if held.running]:
                await asyncio.wait(running)
            self._hurried.clear()
            await self._is_settled_within(self.pace.settle_s)

    def running(self) -> list[str]:
        """The keys of the fires that run now."""
        return [holding.claim.fire.key for holding in self._held.values() if holding.running]

    def hurry(self) -> None:
        """End at once what still runs."""
        self._hurried.set()
        self._settled.ring()
        if self.draining:
            self._stop_all(kill_after_s=0.0)

    def _stop_all(self, kill_after_s: float | None) -> None:
        for holding in self._held.values():
            holding.stop(Outcome("lost", "shutdown", "shutdown"), kill_after_s)

    async def _is_settled_within(self, seconds: float) -> bool:
        until = self.edges.monotonic() + seconds
        while self._is_busy() and not self._hurried.is_set() and (left := until - self.edges.monotonic()) > 0:
            await self._settled.sleep(left)
        return not self._is_busy()

    def _is_busy(self) -> bool:
        """Is there something to settle, a hook to call, or an ask whose answer is not known?"""
        return bool(self._held) or self._owes_hooks or self._ask is not None
