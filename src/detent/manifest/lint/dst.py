"""The lint of clock changes: fire times that a wall clock skips or shows twice in the next year.  Pure.

It only concerns expressions with fixed hours: one whose hour starts with `*` follows real time.  The caller
drops this lint if the manifest sets `policy.dst`.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from detent.manifest.problems import Problem
from detent.schedules.cron import Pattern
from detent.schedules.timetable import floor
from detent.schedules.wallclock import Dst
from detent.schedules.zones import LAST_S, Window, Zone
from detent.text import quote

CODE = "dst-change"
AHEAD = timedelta(days=366)
_IN_GAP = {"vixie": "fires at {} instead", "twice": "fires at {} instead", "skip": "does not fire that day"}
_IN_FOLD = {"vixie": "fires the first time only", "skip": "fires the first time only", "twice": "fires twice"}


class LintSpan:
    """The zone and the period that a lint examines."""

    def __init__(self, zone: Zone, since: datetime, until: datetime | None = None) -> None:
        end = min(since + AHEAD, until) if until else since + AHEAD
        self.zone, self.since, self.until = zone, floor(since), min(floor(end), LAST_S)

    def changes(self) -> Iterator[Window]:
        at = self.zone.window(self.since).until
        while at < self.until:
            window = self.zone.window(at)
            yield window
            at = window.until


def lint_dst(text: str, pattern: Pattern, path: str, rule: Dst, span: LintSpan) -> Problem | None:
    if rule == "utc" or pattern.fields.hour.is_open:
        return None
    effects = [effect for window in span.changes() if (effect := _effect(pattern, window, rule))]
    if not effects:
        return None
    message = f"clock changes in {span.zone.name} affect {quote(text)}: {'; '.join(effects)}"
    advice = "move it to another hour, or set policy.dst (vixie, skip, twice or utc) to confirm the rule"
    return Problem(path, message, code=CODE, advice=advice)


def _effect(pattern: Pattern, window: Window, rule: Dst) -> str:
    """Describe what the change at the window's start does; empty if it does nothing."""
    before, after = window.high, window.start + window.offset
    low, high = min(before, after), max(before, after)
    local = pattern.at_or_after(low)
    if local is None or local >= high:
        return ""
    if before < after:
        return f"{_shown(local)} does not exist, it {_IN_GAP[rule].format(_time(after))}"
    return f"{_shown(local)} happens twice, it {_IN_FOLD[rule]}"


def _shown(local: int) -> str:
    return f"on {datetime.fromtimestamp(local, UTC):%Y-%m-%d} {_time(local)}"


def _time(local: int) -> str:
    shown = datetime.fromtimestamp(local, UTC)
    return f"{shown:%H:%M:%S}" if shown.second else f"{shown:%H:%M}"
