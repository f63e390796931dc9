"""Claims messages without a worker, and answers them: `queue.claim()`, `with delivery:`.

- Messages that must not run are settled in the same way as by a worker.
- Every answer includes the fence: an answer that arrives after another claim is refused.
- `with delivery:` renews the claim in a thread, and answers at the end: done, or failed if it raised.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Sequence
from functools import cached_property
from operator import attrgetter
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from detent import clock
from detent.clock import StoreClock
from detent.errors import DetentError, UsageError
from detent.manifest.secret_refs import Secret
from detent.messages.envelope import Refusal
from detent.model import Ask, Call, Claim, End, Outcome, Report, Verdict
from detent.node.claim_session import ClaimSession, RenewalThread
from detent.observe.secrecy import mask_report
from detent.rules.settling import admit, refuse, report, return_claim, settle
from detent.rules.trust import trusted_by
from detent.runners.call.function import exit_status, failure_of, returned
from detent.runners.call.spec import outcome_of
from detent.runners.lifeline import Lifeline
from detent.text import quote
from detent.warden.instances import instance_name
from detent.worker.inbox import Inbox

if TYPE_CHECKING:
    from detent.app.app import Detent
    from detent.stores.base import Store

DELAY_MAX_S = 366 * 86_400
_DONE = Verdict(Outcome("succeeded"))
_LOST = "lost"  # another process claimed the message, and answers it


class Granted(NamedTuple):
    """A claimed message that may run."""

    claim: Claim
    call: Call
    sent: float  # when the claim was requested: its trust counts from then


class ClaimResult(NamedTuple):
    granted: list[Granted]
    settled: list[tuple[Claim, Verdict]]  # claims that must not run, or whose worker is gone
    next_in_s: float  # when to ask again
    verdicts: list[Verdict | None]  # the accepted verdict of each report; None: another process has the claim


class _Own(threading.local):
    """The session of one thread.  Threads do not share one: a store ignores an ask that arrives after a newer
    one of the same instance."""

    pid = 0
    session: ClaimSession | None = None


class ManualClaims:
    """The claims of one app in this process."""

    def __init__(self, app: Detent) -> None:
        self._app, self.rng = app, Random()
        self._own = _Own()
        self._unknown: set[str] = set()  # tasks, as app.task, that messages name and the app does not have
        self._made, self._made_of = Inbox({}), (-1, tuple[Secret, ...]())

    def claim(
        self, queues: Sequence[str], limit: int, ttl_s: float = 0.0, reports: Sequence[Report] = ()
    ) -> ClaimResult:
        """Send the reports and claim at most `limit` due messages; settle those that must not run."""
        inbox, session, without = self._inbox(), self._session(), tuple(sorted(self._unknown))
        ask = session.ask._replace(queues=tuple(queues), limit=limit, ttl_s=ttl_s, without=without)
        grants, sent, verdicts = session.claim(ask, reports)
        taken = ClaimResult([], [], grants.next_in_s, verdicts)
        for claim in sorted(grants.claims, key=attrgetter("fence")):  # in the order of the grants
            verdict, call = admit(claim, self.rng), None
            if verdict is None:
                opened = inbox.open(claim.fire, grants.now)
                call = opened if isinstance(opened, Call) else None
                if isinstance(opened, Refusal):
                    verdict = self._refused(claim, opened)
                elif call is None:
                    verdict = return_claim("only workers run ad hoc messages", "not-here")
            if verdict:
                self.finish(claim, verdict, End(verdict.outcome))
                taken.settled.append((claim, verdict))
            elif call:
                taken.granted.append(Granted(claim, call, sent))
        return taken

    def _refused(self, claim: Claim, why: Refusal) -> Verdict:
        """Leave a message of an unknown task to a worker that has the task."""
        if why.fault != "unknown-task":
            return refuse(*why)
        self._unknown.add(claim.fire.job)
        return return_claim(why.detail, "not-here")

    def finish(self, claim: Claim, verdict: Verdict, end: End) -> Verdict | None:
        """Return the verdict that the store accepted; None if another process has the claim."""
        return self._session().finish(self.report(claim, verdict, end))

    def report(self, claim: Claim, verdict: Verdict, end: End) -> Report:
        """Build the report, with the messages that follow."""
        now = self._app.sender.now()
        made = report(claim, verdict, end, now)
        if verdict.again_in_s is None:
            made = made._replace(follow=self._inbox().follow(claim.fire, verdict.outcome, now, end.result))
        return mask_report(self._app.mask, made)

    def _inbox(self) -> Inbox:
        """Make a new inbox if the tasks, what queues allow, or the secrets have changed."""
        made_of = self._app.changes, self._app.sender.secrets()
        if self._made_of != made_of:
            self._made_of, self._made = made_of, self._app.inbox()
            self._unknown.clear()
        return self._made

    def _session(self) -> ClaimSession:
        """The session of this thread; a new one after a fork or with another store."""
        own, store = self._own, self._app.open_store()
        if own.session is None or own.session.store is not store or own.pid != os.getpid():
            ask = Ask(self._app.name, instance_name(socket.gethostname(), "hand"), number=0, hooks=0)
            own.pid, own.session = os.getpid(), ClaimSession(store, ask, StoreClock())
        return own.session


class ClaimLost(DetentError):
    """The claim has ended: another process may have claimed the message."""


class Delivery:
    """A claimed message, returned by `Queue.claim`."""

    def __init__(self, claims: ManualClaims, store: Store, granted: Granted) -> None:
        self._claims, self._store, self._granted = claims, store, granted
        claim = granted.claim
        self._claim, self._began = claim, clock.monotonic()
        self._lifeline = Lifeline(trusted_by(granted.sent, claim.ttl_s))
        self._renewal: RenewalThread | None = None
        self._answer = ""
        self.key, self.fence, self.attempt = claim.fire.key, claim.fence, claim.attempt
        self.run_id, self.queue = claim.fire.run_id, claim.fire.queue

    @cached_property
    def task(self) -> str:
        return str(json.loads(self._claim.fire.payload)["task"])

    @cached_property
    def args(self) -> list[Any] | dict[str, Any]:
        """A list of positions, or an object of names."""
        found: list[Any] | dict[str, Any] = json.loads(self._granted.call.args)
        return found

    def __repr__(self) -> str:
        return f"Delivery({self.key!r}, attempt={self.attempt}{self._answer and ', ' + self._answer})"

    # Answers.

    def ack(self, result: Any = None) -> None:
        """Report success.  The result is kept as JSON if the task keeps results."""
        text, why_not = returned(result)
        if why_not:
            raise UsageError(f"{self.key}: {why_not}")
        self._finish("acked", _DONE, text)

    def nack(self, delay: float = 0.0, reason: str = "nacked") -> None:
        """Report a failure: the message is due again in `delay` seconds or, without attempts left, dead."""
        if not 0 <= delay <= DELAY_MAX_S:
            raise UsageError(f"bad delay {delay:g}: allowed are 0 seconds to a year")
        outcome = Outcome("failed", reason)
        is_last = self.attempt >= self._claim.fire.policy.retries.max_attempts
        self._finish("nacked", Verdict(outcome, again_in_s=None if is_last else delay))

    def abandon(self, reason: str) -> None:
        """Report a failure that no further attempt can fix: the message is dead at once."""
        self._finish("abandoned", Verdict(Outcome("rejected", reason)))

    def renew(self) -> None:
        """Extend the claim by its ttl from now.  Raises `ClaimLost` if the work must stop."""
        self._refuse_answered("renewed")
        sent = clock.boottime()
        stop = self._store.renew([self._claim])[0]
        if stop is None:
            self._lifeline.extend(trusted_by(sent, self._claim.ttl_s))
            return
        self._lifeline.stop(stop)
        raise ClaimLost(f"the claim of {self.key} has ended: {': '.join(filter(None, stop[:2]))}")

    @property
    def is_lost(self) -> bool:
        """True if the work must stop, or if another process may have claimed the message."""
        if self._answer:
            return self._answer == _LOST
        return self._ended is not None

    @property
    def _ended(self) -> Outcome | None:
        return self._lifeline.ended(clock.boottime())

    # For `Queue.claim(done=…)`, which answers deliveries in the same call as the next claim.

    def done_report(self) -> Report:
        self._refuse_answered("acked")
        took_s = clock.monotonic() - self._began
        return self._claims.report(self._claim, _DONE, End(_DONE.outcome, took_s=took_s))

    def answered(self, answer: str, accepted: Verdict | None) -> None:
        self._answer = answer if accepted else _LOST
        self._close()

    def __enter__(self) -> Self:
        self._refuse_answered("entered")
        self._renewal = RenewalThread(self._store, self._claim, self._lifeline)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._close()
        if self._answer:
            return
        if (stopped := self._ended) and stopped.kind != "lost":  # cancelled
            self._finish("stopped", Verdict(stopped))
        elif error is None:
            self.ack()
        else:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        status, reason = failure_of(error)
        outcome = outcome_of(status, reason)
        if isinstance(error, SystemExit):
            status = exit_status(error)[0]
            outcome = outcome if status else _DONE.outcome
        verdict = settle(End(outcome, status), self._claim, self._claims.rng)
        try:
            self._finish("failed", verdict)
        except ClaimLost:  # the raised error says more
            return

    def _finish(self, answer: str, verdict: Verdict, result: str = "") -> None:
        self._refuse_answered(answer)
        end = End(verdict.outcome, took_s=clock.monotonic() - self._began, result=result)
        accepted = self._claims.finish(self._claim, verdict, end)
        self.answered(answer, accepted)
        if accepted is None:
            self._refuse_answered(answer)

    def _close(self) -> None:
        if self._renewal:
            self._renewal.close()

    def _refuse_answered(self, wanted: str) -> None:
        if self._answer == _LOST:
            raise ClaimLost(f"{self.key} cannot be {wanted}: another has claimed it")
        if self._answer:
            raise UsageError(f"{quote(self.key)} cannot be {wanted}: it was {self._answer} before")
