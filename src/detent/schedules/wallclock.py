"""The instants of a cron pattern in a time zone, with one of four rules for changes of the UTC offset.

A change of the offset skips some local times (the gap) or repeats them (the fold).

    rule     time in the gap                    time in the fold
    vixie    once, right after the gap          the first time
    skip     not at all                         the first time
    twice    once, right after the gap          both times
    utc      fields are read in UTC: there is no gap and no fold

These rules are for jobs at fixed times.  A job whose hour field starts with `*` follows real time under
every rule but `utc`: it fires whenever the wall clock shows a matching time.  Several times in one gap fire
once.
"""

from datetime import UTC, datetime
from typing import Literal

from detent.errors import UsageError
from detent.schedules.cron import Pattern
from detent.schedules.zones import FIRST_S, LAST_S, Window, Zone, open_zone
from detent.text import listed, quote

Dst = Literal["vixie", "skip", "twice", "utc"]
RULES: tuple[Dst, ...] = ("vixie", "skip", "twice", "utc")


def check_dst(rule: str) -> Dst:
    for known in RULES:
        if rule == known:
            return known
    raise UsageError(f"bad dst {quote(rule)}: it is not {listed(RULES)}")


class WallClock:
    """A pattern in a zone.  Instants are Unix seconds."""

    __slots__ = ("_fires_after_gap", "_follows_real_time", "_plain", "_repeats", "pattern", "rule", "zone")

    def __init__(self, pattern: Pattern, zone: Zone, rule: Dst) -> None:
        self.pattern = pattern
        self.rule = rule
        self.zone = open_zone("UTC") if rule == "utc" else zone
        self._follows_real_time = pattern.fields.hour.is_open
        self._repeats = self._follows_real_time or rule == "twice"
        self._fires_after_gap = not self._follows_real_time and rule in ("vixie", "twice")
        self._plain = (0, 0, 0)  # part of the last window without special cases: start, end, offset

    def next(self, after: int) -> int | None:
        instant = after + 1
        start, until, offset = self._plain
        if start <= instant < until:
            local = self.pattern.at_or_after(instant + offset)
            if local is not None and local - offset < until:
                return local - offset
        return self._walk_forward(max(instant, FIRST_S))

    def previous(self, before: int) -> int | None:
        instant = min(before - 1, LAST_S)
        while instant >= FIRST_S:
            window = self.zone.window(instant)
            local = self.pattern.at_or_before(instant + window.offset)
            if local is not None and local >= self._opens_at(window):
                return local - window.offset
            if self._skipped(window) is not None and self._fires_after_gap:
                return window.start
            instant = window.start - 1
        return None

    def note(self, instant: int) -> str:
        """Describe how a change of the offset affects this instant; "" if it does not."""
        window = self.zone.window(instant)
        local = instant + window.offset
        if self._follows_real_time or window.until > LAST_S:
            return ""
        if (
            instant == window.start
            and self._fires_after_gap
            and (skipped := self._skipped(window)) is not None
        ):
            return f"{self._names(skipped, 'does not exist')}; fires right after the gap"
        if local < window.high:
            return f"{self._names(local, 'happens twice')}; fires both times, this is the second"
        after = self.zone.window(window.until)
        if after.start + after.offset <= local:
            fires = "both times, this is the first" if self._repeats else "the first time only"
            return f"{self._names(local, 'happens twice')}; fires {fires}"
        return ""

    def _walk_forward(self, instant: int) -> int | None:
        while instant <= LAST_S:
            window = self.zone.window(instant)
            if instant == window.start and self._fires_after_gap and self._skipped(window) is not None:
                return instant
            opens_at = self._opens_at(window)
            self._plain = (max(opens_at - window.offset, window.start + 1), window.until, window.offset)
            local = self.pattern.at_or_after(max(instant + window.offset, opens_at))
            if local is not None and local - window.offset < window.until:
                return local - window.offset
            instant = window.until
        return None

    def _opens_at(self, window: Window) -> int:
        """Return the local time from which on this window counts."""
        opens_at = window.start + window.offset
        return opens_at if self._repeats else max(opens_at, window.high)

    def _skipped(self, window: Window) -> int | None:
        """Return the first matching time in the gap before this window."""
        gap_ends = window.start + window.offset
        if window.high >= gap_ends:
            return None
        local = self.pattern.at_or_after(window.high)
        return local if local is not None and local < gap_ends else None

    def _names(self, local: int, what: str) -> str:
        shown = datetime.fromtimestamp(local, UTC)
        time = f"{shown:%H:%M:%S}" if shown.second else f"{shown:%H:%M}"
        return f"{time} {what} on {shown:%Y-%m-%d} in {self.zone.name}"
