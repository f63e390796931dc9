"""The claims of one trigger: it claims a fire, runs it, settles it and reports it, one at a time."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from detent.clock import StoreClock
from detent.errors import StoreUnavailable
from detent.events import Emit
from detent.model import Ask, Claim, End, Fire, Job, Outcome, Report, Verdict
from detent.node.attempt import judge_end, not_started, work_of
from detent.node.claim_session import ClaimSession
from detent.node.reporting import Reporter, fields_of
from detent.rules.outcomes import HOOK_REMOVED
from detent.rules.planning import HOOK_POLICY
from detent.rules.settling import admit, report
from detent.rules.trust import trigger_ttl_s
from detent.runners.running import AttemptEnd, LaneHeld, TooLate
from detent.stores.base import Store, app_of, is_hook
from detent.trigger.exit_codes import is_contention
from detent.trigger.locks import TriggerLocks
from detent.trigger.work import WorkRunner, stopped_by
from detent.warden.signals import Signals

PRUNE_EVERY = 50  # claims of an app
UNSTARTED_MAX = 5  # claims in a row that came too late to start the work
QUEUE = "trigger/"  # the prefix of a fire's own queue


def own_queue(key: str) -> str:
    """Return the queue of this fire and its hooks.  Triggers claim from it, nodes never do."""
    return QUEUE + key


class Ports(NamedTuple):
    """Everything outside the process that a trigger uses."""

    store: Store
    locks: TriggerLocks
    signals: Signals
    runner: WorkRunner
    emit: Emit
    boottime: Callable[[], float]


class TriggerClaims:
    def __init__(self, job: Job, scope: str, ports: Ports) -> None:
        self._job, self._scope = job, scope
        self._store, self._runner = ports.store, ports.runner
        self.locks, self.signals, self.emit = ports.locks, ports.signals, ports.emit
        self._reporter, self._rng = Reporter(ports.emit), Random()
        self.clock = StoreClock(ports.boottime)
        ask = Ask(app_of(job.name), ports.locks.name, number=0)
        self._session = ClaimSession(ports.store, ask, self.clock, ports.signals.wait)
        self._sent = 0.0  # when the newest ask was sent
        self._fence = 0  # of the newest claim
        self.replaces = ""  # the key of the fire that ours replaces

    def run_fire(self, fire: Fire, is_abandoned: bool = False) -> Outcome | None:
        """Make all attempts of a fire and call its hooks.  Return its outcome, or None if it is not ours.  An
        abandoned fire runs again only if its job wants that."""
        outcome: Outcome | None = None
        unstarted = 0
        queue = own_queue(fire.key)
        while claim := self._claim_fire(queue):
            settled, verdict = self._attempt_and_finish(claim, is_abandoned and outcome is None)
            if verdict is None:
                return outcome
            outcome = verdict.outcome
            if verdict.again_in_s is None:
                if settled.follow:
                    self.call_hooks(queue)
                return outcome
            unstarted = 0 if verdict.counts else unstarted + 1
            if unstarted > UNSTARTED_MAX:
                raise StoreUnavailable(f"{fire.key} could not be started: {outcome.reason}")
            if not self.signals.sleep(verdict.again_in_s):
                self._give_up(claim)
                return outcome
        return outcome

    def call_hooks(self, queue: str) -> None:
        """Call the hooks of this queue one after the other, until a second signal."""
        while self.signals.count < 2 and (claims := self._ask(queue, for_hook=True)):
            for claim in claims:
                self._attempt_and_finish(claim)

    def prune(self, keep_days: int, keep_fires: int) -> None:
        """Delete old fires once in a while: an app without nodes has no other process that does."""
        if self._fence and self._fence % PRUNE_EVERY == 0:
            self._store.prune(app_of(self._job.name), keep_days * 86_400.0, keep_fires)

    def stop_reason(self) -> str:
        return stopped_by(self.signals).reason

    # One claim.

    def _claim_fire(self, queue: str) -> Claim | None:
        """Claim the fire of this queue.  Settle hooks that come along and must not run."""
        own: Claim | None = None
        for claim in self._ask(queue):
            if is_hook(claim.fire):
                self._attempt_and_finish(claim)
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

    def _attempt_and_finish(self, claim: Claim, is_abandoned: bool = False) -> tuple[Report, Verdict | None]:
        """Make one attempt and record its verdict.  Return what was reported, and the verdict that counts."""
        settled = report(claim, *self._attempt(claim, is_abandoned), self.clock.now())
        return settled, self._finish(settled)

    def _attempt(self, claim: Claim, is_abandoned: bool) -> tuple[Verdict, End]:
        if verdict := admit(claim, self._rng):
            return not_started(verdict)
        if is_abandoned and claim.fire.policy.on_lost == "skip":
            return not_started(Verdict(Outcome("lost", "its trigger is gone", "node-lost"), counts=False))
        work = work_of(self._job, claim)
        if work is None:
            return not_started(Verdict(HOOK_REMOVED))
        self._reporter.start(claim, self.clock.now(), replaces=self.replaces)
        end: AttemptEnd = None
        try:
            end = self._runner.run(work, claim, self._sent)
        except LaneHeld as held:
            end = held
        except TooLate:
            pass
        if isinstance(end, End) and end.outcome.cause == "no-secret":
            return Verdict(end.outcome), end  # another attempt would not find the secret either
        return judge_end(claim, end, self._rng)

    def _finish(self, settled: Report) -> Verdict | None:
        """Report the verdict for as long as the claim can live, then emit the event."""
        verdict = self._session.finish(settled, give_up_at=self._sent + settled.claim.ttl_s)
        is_over = verdict is not None and verdict.again_in_s is None
        if verdict and is_over and is_contention(verdict.outcome) and not is_hook(settled.claim.fire):
            outcome = verdict.outcome
            about = {"holder": outcome.by, "outcome": outcome.kind, "reason": outcome.reason}
            about |= {"cause": outcome.cause, "scope": self._scope}
            self.emit("lock-contended", **fields_of(settled.claim), **about)
        else:
            self._reporter.end(settled, verdict)
        return verdict

    def _give_up(self, claim: Claim) -> None:
        """A signal arrived before the next attempt.  Cancel the fire, unless another trigger may rerun it."""
        if claim.fire.policy.on_lost == "rerun":
            return
        reason = self.stop_reason()
        self._store.cancel(claim.fire.key, reason, "shutdown")
        about = {"outcome": "cancelled", "reason": reason, "cause": "shutdown"}
        self.emit("cancelled", **fields_of(claim), **about)
