"""The claims of one trigger: asked for, carried out, settled and told, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, cast

from detent.clock import StoreClock
from detent.errors import StoreUnavailable
from detent.events import Emit
from detent.model import Ask, Claim, End, Fire, Job, Outcome, Report, Verdict, Work
from detent.node.claim_session import ClaimSession
from detent.node.reporting import Reporter, fields_of
from detent.rules.outcomes import HOOK_REMOVED
from detent.rules.planning import HOOK_POLICY
from detent.rules.settling import admit, lane_busy, report, return_claim, settle
from detent.rules.trust import trigger_ttl_s
from detent.runners.running import LaneHeld, TooLate
from detent.stores.base import Store, app_of, is_hook
from detent.trigger.exit_codes import is_contention
from detent.trigger.locks import TriggerLocks
from detent.trigger.work import WorkRunner, stopped_by
from detent.warden.signals import Signals

if TYPE_CHECKING:
    from random import Random

PRUNE_EVERY = 50  # claims of an app
UNSTARTED_MAX = 5  # claims in a row that came too late to start anything
QUEUE = "trigger/"  # and the fire's key


def own_queue(key: str) -> str:
    """The queue on which triggers, and no nodes, find the fire of this key and its hooks."""
    return QUEUE + key


class Ports(NamedTuple):
    """Everything of the world that a trigger touches."""

    store: Store
    locks: TriggerLocks
    signals: Signals
    runner: WorkRunner
    emit: Emit
    boottime: Callable[[], float]


class TriggerClaims:
    def __init__(self, job: Job, scope: str, ports: Ports) -> None:
        self._job, self._scope, self._ports = job, scope, ports
        self._store, self._runner = ports.store, ports.runner
        self.locks, self.signals, self.emit = ports.locks, ports.signals, ports.emit
        self._reporter, self._chance = Reporter(ports.emit), cast("Random", Chance())
        self.clock = StoreClock(ports.boottime)
        ask = Ask(app_of(job.name), ports.locks.name, number=0)
        self._session = ClaimSession(ports.store, ask, self.clock, ports.signals.wait)
        self._sent, self._fence = 0.0, 0
        self.replaces = ""  # the key of the fire that has to end for ours

    def why_ended(self) -> str:
        return stopped_by(self.signals).reason

    def run_fire(self, fire: Fire, is_abandoned: bool = False) -> Outcome | None:
        """Carry a fire out, attempt after attempt, and call its hooks; how it ended, None: it is not ours.
        An abandoned one is only run again if its job wants that."""
        outcome: Outcome | None = None
        unstarted = 0
        queue = own_queue(fire.key)
        while claim := self._claim_fire(queue):
            told = self._report_of(claim, is_abandoned and outcome is None)
            stands = self._finish(told)
            if stands is None:
                return outcome
            outcome = stands.outcome
            if stands.again_in_s is None:
                if told.follow:
                    self.call_hooks(queue)
                return outcome
            unstarted = 0 if stands.counts else unstarted + 1
            if unstarted > UNSTARTED_MAX:
                raise StoreUnavailable(f"{fire.key} could not be started: {stands.outcome.reason}")
            if not self.signals.sleep(stands.again_in_s):
                self._give_up(claim)
                return outcome
        return outcome

    def call_hooks(self, queue: str) -> None:
        """One after the other, each for as long as it may."""
        while self.signals.count < 2 and (claims := self._ask(queue, for_hook=True)):
            for claim in claims:
                self._finish(self._report_of(claim))

    def prune(self, keep_days: int, keep_fires: int) -> None:
        """Forget old fires, once in a while: where there is no node, nobody else does."""
        if self._fence and self._fence % PRUNE_EVERY == 0:
            self._store.prune(app_of(self._job.name), keep_days * 86_400.0, keep_fires)

    # One claim.

    def _claim_fire(self, queue: str) -> Claim | None:
        """The fire of this queue.  Hooks that are only to be settled may come along."""
        own: Claim | None = None
        for claim in self._ask(queue):
            if is_hook(claim.fire):
                self._finish(self._report_of(claim))
            else:
                own = claim
        return own

    def _ask(self, queue: str, for_hook: bool = False) -> tuple[Claim, ...]:
        self.locks.begin()
        ask = self._session.ask._replace(
            limit=0 if for_hook else 1,
            hooks=1 if for_hook else 0,
            queues=(queue,),
            ttl_s=trigger_ttl_s((HOOK_POLICY if for_hook else self._job.policy).timeout_s),
            dead=self.locks.find_dead(),
        )
        grants, self._sent, _ = self._session.claim(ask)
        self.locks.remove_dead()
        self._fence = max((claim.fence for claim in grants.claims), default=self._fence)
        return grants.claims

    def _report_of(self, claim: Claim, is_abandoned: bool = False) -> Report:
        """What to tell the store of a claim, once it is carried out."""
        verdict, end = self._attempt(claim, is_abandoned)
        return report(claim, verdict, end, self.clock.now())

    def _attempt(self, claim: Claim, is_abandoned: bool) -> tuple[Verdict, End]:
        if verdict := admit(claim, self._chance):
            return _unstarted(verdict)
        if is_abandoned and claim.fire.policy.on_lost == "skip":
            return _unstarted(Verdict(Outcome("lost", "its trigger is gone", "node-lost"), counts=False))
        work = self._work(claim)
        if work is None:
            return _unstarted(Verdict(HOOK_REMOVED))
        self._reporter.start(claim, self.clock.now(), replaces=self.replaces)
        try:
            end = self._runner.carry_out(work, claim, self._sent)
        except LaneHeld as held:
            return _unstarted(lane_busy(claim, str(held)))
        except TooLate:
            return _unstarted(return_claim("the grant came too late", "claim-lost"))
        if end.outcome.cause == "no-secret":
            return Verdict(end.outcome), end  # another attempt would find none either
        return settle(end, claim, self._chance), end

    def _work(self, claim: Claim) -> Work | None:
        if claim.fire.origin != "hook":
            return self._job.work
        from json import loads

        return self._job.hooks.get(loads(claim.fire.payload)["hook"])

    # The end of one.

    def _finish(self, told: Report) -> Verdict | None:
        """Report it for as long as the claim may live, then emit the event."""
        stands = self._session.finish(told, give_up_at=self._sent + told.claim.ttl_s)
        self._say(told, stands)
        return stands

    def _say(self, told: Report, stands: Verdict | None) -> None:
        is_over = stands is not None and stands.again_in_s is None
        if stands and is_over and is_contention(stands.outcome) and told.claim.fire.origin != "hook":
            about = {"holder": stands.outcome.by, "outcome": stands.outcome.kind}
            self.emit(
                "lock-contended",
                **fields_of(told.claim),
                **about,
                scope=self._scope,
                reason=stands.outcome.reason,
                cause=stands.outcome.cause,
            )
        else:
            self._reporter.end(told, stands)

    def _give_up(self, claim: Claim) -> None:
        """A signal came while the next attempt was waited for: another trigger makes it, or nobody."""
        if claim.fire.policy.on_lost == "rerun":
            return
        why = {"reason": self.why_ended(), "cause": "shutdown"}
        self._store.cancel(claim.fire.key, self.why_ended(), "shutdown")
        self.emit("cancelled", **fields_of(claim), outcome="cancelled", **why)


class Chance:
    """Chance for the jitter of retries: few jobs have one, and the module takes long to load."""

    def uniform(self, low: float, high: float) -> float:
        from random import uniform

        return uniform(low, high)


def _unstarted(verdict: Verdict) -> tuple[Verdict, End]:
    return verdict, End(verdict.outcome)
