"""A burst: more is due than one ask brings, and there is room for it.  Then starts come before ends.

The first ask is small, so that its fires are begun while the next are claimed; each full one is followed by a
larger one, as an ask costs something by itself.
"""

from __future__ import annotations

FIRST_LIMIT, GROWTH = 250, 2


class Burst:
    def __init__(self, most_s: float, ask_max: int) -> None:
        self._most_s = most_s  # what has ended can wait, but not for long
        self._ask_max = ask_max
        self._since: float | None = None
        self._is_more = False
        self.limit = min(FIRST_LIMIT, ask_max)  # what to ask for

    def goes_on(self, is_full: bool, asked: int, now: float) -> bool:
        """Take what the newest ask brought: may there be more?"""
        self._is_more = is_full and asked >= self.limit
        self.limit = min(self.limit * GROWTH if self._is_more else FIRST_LIMIT, self._ask_max)
        if self._is_more and self._since is None:
            self._since = now
        return self._is_more

    def comes_first(self, now: float, begins: bool) -> bool:
        """Has what ended to wait?  Also for the last of the burst that are being begun."""
        if not self._is_more and not begins:
            self._since = None
        return self._since is not None and now < self._since + self._most_s
