"""A message that was claimed by hand: what it asks for, and the answers that its holder can give.

- Every answer carries the fence: one that comes too late, when another has the message, is refused.
- `with delivery:` renews the claim in a thread, and answers at the end: done, or failed by what was raised.
"""

from __future__ import annotations

import json
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from detent import clock
from detent.app.queue.manual_claims import Granted, ManualClaims
from detent.errors import DetentError, UsageError
from detent.model import End, Outcome, Report, Verdict
from detent.node.claim_session import RenewalThread
from detent.rules.settling import settle
from detent.rules.trust import trusted_by
from detent.runners.call.function import exit_status, failure_of, returned
from detent.runners.call.spec import outcome_of
from detent.runners.lifeline import Lifeline
from detent.text import quote

if TYPE_CHECKING:
    from detent.stores.base import Store


_DONE = Verdict(Outcome("succeeded"))
_LOST = "lost"  # the answer that another gave for us


class ClaimLost(DetentError):
    """The message is no longer ours: another may have it by now."""


class Delivery:
    """Made by `Queue.claim`."""

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
        """Its name."""
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
        """It is done.  A result, as JSON, is kept where the task says so."""
        text, why_not = returned(result)
        if why_not:
            raise UsageError(f"{self.key}: {why_not}")
        self._finish("acked", _DONE, text)

    def nack(self, delay: float = 0.0, reason: str = "nacked") -> None:
        """It failed: due again in `delay` seconds or, where no attempt is left, dead."""
        if not 0 <= delay <= 366 * 86_400:
            raise UsageError(f"bad delay {delay:g}: allowed are 0 seconds to a year")
        outcome = Outcome("failed", reason)
        is_last = self.attempt >= self._claim.fire.policy.retries.max_attempts
        self._finish("nacked", Verdict(outcome, again_in_s=None if is_last else delay))

    def abandon(self, reason: str) -> None:
        """It is not worth another attempt: dead at once."""
        self._finish("abandoned", Verdict(Outcome("rejected", reason)))

    def renew(self) -> None:
        """It takes longer: the claim lives for another ttl from now.  Raises `ClaimLost`: stop."""
        self._refuse_answered("renewed")
        sent = clock.boottime()
        told = self._store.renew([self._claim])[0]
        if told is None:
            self._lifeline.extend(trusted_by(sent, self._claim.ttl_s))
            return
        self._lifeline.stop(told)
        raise ClaimLost(
            f"{self.key} is not ours any more: {told.kind}{': ' + told.reason if told.reason else ''}"
        )

    @property
    def is_lost(self) -> bool:
        """Was it told to stop, or may another have it by now?"""
        if self._answer:
            return self._answer == _LOST
        return self._ended is not None

    @property
    def _ended(self) -> Outcome | None:
        return self._lifeline.ended(clock.boottime())

    # For who answers it together with the next ask.

    def done_report(self) -> Report:
        self._refuse_answered("acked")
        took_s = clock.monotonic() - self._began
        return self._claims.report(self._claim, _DONE, End(_DONE.outcome, took_s=took_s))

    def answered(self, answer: str, stands: Verdict | None) -> None:
        self._answer = answer if stands else _LOST
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
        if (stopped := self._ended) and stopped.kind != "lost":  # it was cancelled
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
        except ClaimLost:  # what was raised tells more
            return

    def _finish(self, answer: str, verdict: Verdict, result: str = "") -> None:
        self._refuse_answered(answer)
        took_s = clock.monotonic() - self._began
        stands = self._claims.finish(self._claim, verdict, End(verdict.outcome, took_s=took_s, result=result))
        self.answered(answer, stands)
        if stands is None:
            self._refuse_answered(answer)

    def _close(self) -> None:
        if self._renewal:
            self._renewal.close()

    def _refuse_answered(self, wanted: str) -> None:
        if self._answer == _LOST:
            raise ClaimLost(f"{self.key} cannot be {wanted}: another has it by now")
        if self._answer:
            raise UsageError(f"{quote(self.key)} cannot be {wanted}: it was {self._answer} before")
