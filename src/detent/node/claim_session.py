"""Claims from blocking code: ask, run, renew in a thread, report the end.

Triggers, locks, messages claimed by hand, `drain` and the dry run claim this way.  A node claims
asynchronously and many at a time (`node/node.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from detent.clock import StoreClock, boottime
from detent.errors import DetentError, StoreUnavailable
from detent.model import Ask, Claim, Grants, Outcome, Report, Verdict
from detent.rules.trust import renew_s, trusted_by
from detent.stores.base import Store, app_of

RETRY_S = 0.5  # between two reports of an end, or two renewals, while the store is away
LISTEN_S = 2.0  # one wait for a wake-up of the store
LOOK_S = 10.0  # a wake-up can be lost: the longest time between two renewals


class Answer(NamedTuple):
    """The answer to an ask."""

    grants: Grants
    sent: float  # when it was sent: its claims are trusted from then on
    verdicts: list[Verdict | None]  # of the reports that went with it; None: the claim was not ours any more


class ClaimSession:
    """The asks and reports of one instance.  Any thread may use it, one ask at a time."""

    def __init__(
        self, store: Store, ask: Ask, clock: StoreClock, wait: Callable[[float], object] | None = None
    ) -> None:
        """`ask` says who asks, and what is asked for unless `claim` gets another; `wait` sleeps."""
        self.store, self.ask, self.clock = store, ask, clock
        self._wait = wait or threading.Event().wait
        self._lock, self._asks = threading.Lock(), 0

    def claim(self, ask: Ask | None = None, reports: Sequence[Report] = ()) -> Answer:
        """Send an ask, together with these reports.  The store ignores an ask that a newer one overtook."""
        with self._lock:
            self._asks += 1
            numbered, sent = (ask or self.ask)._replace(number=self._asks), self.clock.ticks()
            try:
                verdicts, grants = self._send(numbered, reports)
            except StoreUnavailable:  # it may have granted claims: the same ask gets the same answer
                verdicts, grants = self._send(numbered, reports)
            self.clock.learn(grants.now)
        return Answer(grants, sent, verdicts)

    def _send(self, ask: Ask, reports: Sequence[Report]) -> tuple[list[Verdict | None], Grants]:
        return self.store.finish_and_claim(reports, ask) if reports else ([], self.store.claim(ask))

    def finish(self, report: Report, give_up_at: float = 0.0) -> Verdict | None:
        """Report an end: twice, or until `give_up_at`, if the store does not answer.  Returns the verdict
        that stands.  None: the claim was not ours any more."""
        is_repeated = False
        while True:
            try:
                return self.store.finish([report])[0]
            except StoreUnavailable:
                if is_repeated and self.clock.ticks() >= give_up_at:
                    raise
            if is_repeated:
                self._wait(RETRY_S)
            is_repeated = True


class Stoppable(Protocol):
    """Work that ends when trust in its claim does."""

    def extend(self, trusted_by: float) -> None: ...

    def stop(self, why: Outcome) -> None: ...


class RenewalThread:
    """Renews a claim, and stops its work when the store says so.  `after_s`: when it looks first."""

    def __init__(self, store: Store, claim: Claim, running: Stoppable, after_s: float | None = None) -> None:
        self._store, self._claim, self._running = store, claim, running
        self._every_s = min(renew_s(claim.ttl_s), LOOK_S)
        self._after_s = renew_s(claim.ttl_s) if after_s is None else after_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="detent-renewal", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """The work is over.  The thread may still end a wait that is under way."""
        self._over.set()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        self._over.wait(self._after_s)
        while not self._over.is_set():
            sent = boottime()
            try:
                self._apply_renewal(self._store.renew([self._claim])[0], sent)
                self._listen()
            except DetentError:  # the store is away: work whose claim is not renewed in time is ended
                self._over.wait(min(self._every_s, RETRY_S))

    def _listen(self) -> None:
        """Wait for a wake-up of the store, or for the next renewal."""
        until = boottime() + self._every_s
        while (left_s := until - boottime()) > 0 and not self._over.is_set():
            if self._store.wait(app_of(self._claim.fire.job), min(left_s, LISTEN_S)):
                return

    def _apply_renewal(self, stop: Outcome | None, sent: float) -> None:
        if stop is None or stop.kind != "lost":
            self._running.extend(trusted_by(sent, self._claim.ttl_s))
        if stop and not self._over.is_set():
            self._running.stop(stop)
            self._over.set()
