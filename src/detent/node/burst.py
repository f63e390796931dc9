"""A burst: more is due than one ask brings, and there is room for it.  Then starts come before ends."""

from __future__ import annotations


class Burst:
    def __init__(self, most_s: float) -> None:
        self._most_s = most_s  # what has ended can wait, but not for long
        self._since: float | None = None
        self._is_more = False

    def goes_on(self, is_more: bool, now: float) -> bool:
        """Take what the newest ask brought: may there be more?"""
        self._is_more = is_more
        if is_more and self._since is None:
            self._since = now
        return is_more

    def comes_first(self, now: float, begins: bool) -> bool:
        """Has what ended to wait?  Also for the last of the burst that are being begun."""
        if not self._is_more and not begins:
            self._since = None
        return self._since is not None and now < self._since + self._most_s
