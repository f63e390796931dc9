"""Claims from blocking code: ask, run, renew in a thread, report the end.

Triggers, locks, manual message claims, `drain` and the dry run claim this way.  A node claims asynchronously
and many at a time (`node/node.py`).
"""

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from detent.clock import StoreClock, boottime
from detent.errors import DetentError, StoreUnavailable
from detent.model import Ask, Claim, Grants, Outcome, Report, Verdict
from detent.rules.trust import renew_s, trusted_by
from detent.stores.base import Store, app_of

RETRY_S = 0.5  # between two tries while the store is away
LISTEN_S = 2.0  # one wait for a wake-up of the store
LOOK_S = 10.0  # the longest time between two renewals, because a wake-up can be lost


class Answer(NamedTuple):
    grants: Grants
    sent: float  # when the ask was sent: trust in its claims counts from here
    verdicts: list[Verdict | None]  # of the reports sent with it; None: the claim was no longer ours


class ClaimSession:
    """The asks and reports of one instance.  Thread-safe: sends one ask at a time."""

    def __init__(
        self, store: Store, ask: Ask, clock: StoreClock, wait: Callable[[float], object] | None = None
    ) -> None:
        """`ask` is the default of `claim`.  `wait` sleeps."""
        self.store, self.ask, self.clock = store, ask, clock
        self._wait = wait or threading.Event().wait
        self._lock, self._asks = threading.Lock(), 0

    def claim(self, ask: Ask | None = None, reports: Sequence[Report] = ()) -> Answer:
        """Send an ask together with these reports.  The store ignores an ask that arrives after a newer
        one."""
        with self._lock:
            self._asks += 1
            numbered, sent = (ask or self.ask)._replace(number=self._asks), self.clock.ticks()
            try:
                verdicts, grants = self._send(numbered, reports)
            except StoreUnavailable:  # it may have granted claims: the same number gets the same grants
                verdicts, grants = self._send(numbered, reports)
            self.clock.learn(grants.now)
        return Answer(grants, sent, verdicts)

    def _send(self, ask: Ask, reports: Sequence[Report]) -> tuple[list[Verdict | None], Grants]:
        return self.store.finish_and_claim(reports, ask) if reports else ([], self.store.claim(ask))

    def finish(self, report: Report, give_up_at: float = 0.0) -> Verdict | None:
        """Report an end.  Try twice, or until `give_up_at`, while the store does not answer.  Return the
        verdict that counts, or None if the claim was no longer ours."""
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
    """Work that stops when trust in its claim ends."""

    def extend(self, trusted_by: float) -> None: ...

    def stop(self, why: Outcome) -> None: ...


class RenewalThread:
    """Renews a claim, first after `after_s`, and stops its work when the store says so."""

    def __init__(self, store: Store, claim: Claim, running: Stoppable, after_s: float | None = None) -> None:
        self._store, self._claim, self._running = store, claim, running
        self._every_s = min(renew_s(claim.ttl_s), LOOK_S)
        self._after_s = renew_s(claim.ttl_s) if after_s is None else after_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="detent-renewal", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop renewing.  The thread ends after its current wait."""
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
            except DetentError:  # the store is away: work stops when its claim is not renewed in time
                self._over.wait(min(self._every_s, RETRY_S))

    def _listen(self) -> None:
        """Wait until the next renewal is due, or a wake-up of the store."""
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
