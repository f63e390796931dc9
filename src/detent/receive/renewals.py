"""Keeps the leases of running fires alive, from a thread that exists only while there are any."""

from __future__ import annotations

import logging
import threading

from detent.errors import DetentError
from detent.receive.receipts.base import Arrival, ReceiptOptions, Receipts

SHARE = 3  # renewals in the time of one lease: two may fail

log = logging.getLogger("detent.receive")


class Renewals:
    def __init__(self, receipts: Receipts, options: ReceiptOptions) -> None:
        self._receipts, self._options = receipts, options
        self._lock = threading.Lock()
        self._held: set[Arrival] = set()
        self._thread: threading.Thread | None = None

    def hold(self, arrival: Arrival) -> None:
        with self._lock:
            self._held.add(arrival)
            # A thread does not survive a fork; its child starts one of its own.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._renew, name="detent-receive", daemon=True)
                self._thread.start()

    def drop(self, arrival: Arrival) -> None:
        with self._lock:
            self._held.discard(arrival)

    def _renew(self) -> None:
        while True:
            threading.Event().wait(self._options.lease_s / SHARE)
            with self._lock:
                held = list(self._held)
                if not held:
                    self._thread = None
                    return
            try:
                self._receipts.renew(held, self._options)
            except DetentError as error:
                log.warning("%d running fires could not be renewed: %s", len(held), error)
