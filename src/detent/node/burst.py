"""Recognizes a burst: more fires are due than one ask grants, and the node has room for them.

In a burst the node starts attempts before it judges and reports ends.  The first ask is small, so that its
attempts start while the next ones are claimed.  Each following ask is larger, because every ask has a cost.
"""

from __future__ import annotations

FIRST_LIMIT, GROWTH = 250, 2


class Burst:
    def __init__(self, most_s: float, ask_max: int) -> None:
        self._most_s = most_s  # ends wait no longer than this
        self._ask_max = ask_max
        self._since: float | None = None
        self._is_more = False
        self.limit = min(FIRST_LIMIT, ask_max)  # of the next ask

    def goes_on(self, is_full: bool, asked: int, now: float) -> bool:
        """Note the answer to an ask.  Return whether there may be more fires."""
        self._is_more = is_full and asked >= self.limit
        self.limit = min(self.limit * GROWTH if self._is_more else FIRST_LIMIT, self._ask_max)
        if self._is_more and self._since is None:
            self._since = now
        return self._is_more

    def comes_first(self, now: float, is_starting: bool) -> bool:
        """Return whether ends must wait for starts, including the last starts of the burst."""
        if not self._is_more and not is_starting:
            self._since = None
        return self._since is not None and now < self._since + self._most_s
