"""How long an attempt may go on, for runners without a process.

- The end of trust only ever moves later.  Once it has passed, the attempt stays over.
- The first stop counts, and it counts before trust.
"""

from __future__ import annotations

import threading

from detent.model import Outcome
from detent.rules.outcomes import CLAIM_EXPIRED

TAIL_MAX = 65_536  # bytes of output that are kept of an attempt


class Lifeline:
    """May be used by several threads."""

    def __init__(self, trusted_by: float) -> None:
        self._lock = threading.Lock()
        self._trusted_by = trusted_by
        self._why: Outcome | None = None

    @property
    def trusted_by(self) -> float:
        """The end of trust, in seconds of `clock.boottime`."""
        return self._trusted_by

    def extend(self, trusted_by: float) -> None:
        """The claim was renewed: trust ends later."""
        with self._lock:
            self._trusted_by = max(self._trusted_by, trusted_by)

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None:
        """End the attempt with this outcome.  There is no process to kill."""
        with self._lock:
            self._why = self._why or why

    def ended(self, now: float) -> Outcome | None:
        """Return why the attempt must be over by now; None: it may go on."""
        with self._lock:
            if self._why is None and now >= self._trusted_by:
                self._why = CLAIM_EXPIRED
            return self._why
