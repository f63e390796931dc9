"""A burst: more is due than one ask brings, and there is room for it.  Then starts come before ends."""

from __future__ import annotations


class Burst:
    def __init__(self, most_s: float) -> None:
        self._most_s = most_s  # what has ended can wait, but not for long
        self._since: float | None = None

    def goes_on(self, is_more: bool, now: float) -> bool:
        """Take what the newest ask brought: may there be more?"""
        self._since = (self._since or now) if is_more else None
        return is_more

    def comes_first(self, now: float) -> bool:
        """Has what ended to wait?"""
        return self._since is not None and now < self._since + self._most_s
