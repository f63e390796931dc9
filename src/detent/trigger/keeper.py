"""Keeps a claim while its attempt goes on, and hears whether it is to stop; in a thread of its own.

It is started for attempts that are not over at once.  A claim that outlives the attempt's timeout needs no
renewal: there it only listens.  One of an attempt without a timeout is short, and renewed.
"""

from __future__ import annotations

import threading
from typing import Protocol

from detent import clock
from detent.errors import DetentError
from detent.model import Claim, Outcome
from detent.stores.base import Store, app_of

LISTEN_S = 2.0  # one wait for the store's bell
LOOK_S = 10.0  # between two looks, should the bell be lost
RETRY_S = 1.0


class Stoppable(Protocol):
    def extend(self, trusted_by: float) -> None: ...

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None: ...


class Keeper:
    def __init__(
        self, store: Store, claim: Claim, running: Stoppable, margin_s: float, after_s: float
    ) -> None:
        self._store, self._claim, self._running = store, claim, running
        self._margin_s, self._after_s = margin_s, after_s
        self._over = threading.Event()
        self.lost: Outcome | None = None  # the store says that the claim is no longer ours
        self._thread = threading.Thread(target=self._keep, name="detent-keeper", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """The attempt is over.  A wait that is under way may be left behind."""
        self._over.set()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def join(self) -> None:
        self._thread.join()

    def _keep(self) -> None:
        self._over.wait(self._after_s)
        every_s = min(self._claim.ttl_s / 6, LOOK_S)
        while not self._over.is_set():
            sent = clock.boottime()
            try:
                self._heed(self._store.renew([self._claim])[0], sent)
                self._listen(every_s)
            except DetentError:  # it is away: what is not renewed in time, the warden ends
                self._over.wait(min(every_s, RETRY_S))

    def _listen(self, seconds: float) -> None:
        """Until somebody rings, or it is time to look."""
        until = clock.boottime() + seconds
        while (left := until - clock.boottime()) > 0 and not self._over.is_set():
            if self._store.wait(app_of(self._claim.fire.job), min(left, LISTEN_S)):
                return

    def _heed(self, stop: Outcome | None, sent: float) -> None:
        if stop is None or stop.kind != "lost":
            self._running.extend(sent + self._claim.ttl_s - self._margin_s)
        if stop and not self._over.is_set():
            self.lost = stop if stop.kind == "lost" else None
            self._running.stop(stop)
            self._over.set()
