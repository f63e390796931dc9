"""Counts fires that ended: by interval, job, queue, kind of outcome, lateness and duration."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from math import ceil, inf
from typing import Any, Protocol

from detent.clock import instant
from detent.errors import UsageError
from detent.model import Fire, Outcome, Tally

BOUNDS_S = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 3600.0, inf)  # of lateness and duration
NEVER_RAN = -1  # stands for the bucket of a fire without an attempt
MINUTE_S = 60
INTERVALS_MAX = 1_500  # of one tally: a day has 1,440 minutes


class Ended(Protocol):
    """A record of a fire that is over."""

    @property
    def fire(self) -> Fire: ...
    @property
    def outcome(self) -> Outcome | None: ...
    @property
    def attempt(self) -> int: ...
    @property
    def run_at(self) -> float: ...
    @property
    def ran_at(self) -> float: ...
    @property
    def over_at(self) -> float: ...


Group = tuple[str, str, str, int, int]  # job, queue, kind, and the buckets of lateness and duration


def intervals(since: datetime, until: datetime, step_s: int) -> range:
    """The starts of the intervals between these instants, as Unix seconds.

    Intervals start at multiples of `step_s`, so the first may start before `since`, and the last may end
    after `until`."""
    if step_s < MINUTE_S or step_s % MINUTE_S:
        raise UsageError(f"cannot tally in steps of {step_s} s: use 60 s or a multiple of it, as step_s=300")
    first, last = int(since.timestamp() // step_s) * step_s, ceil(until.timestamp() / step_s) * step_s
    starts = range(first, last, step_s)
    if len(starts) > INTERVALS_MAX:
        raise UsageError(
            f"cannot tally {len(starts):,} intervals of {step_s} s in one call: at most {INTERVALS_MAX:,}; "
            "use a longer step_s, or several calls"
        )
    return starts


def group_of(one: Ended) -> Group:
    """What a fire that is over is counted by.

    Its lateness is how long after it was due, or due again, its last attempt started.  Its duration is the
    time from then to its end."""
    fire, late, took = one.fire, NEVER_RAN, NEVER_RAN
    if one.attempt:
        is_first = fire.origin == "schedule" and one.attempt == 1
        late = bucket(one.ran_at - (fire.due_at.timestamp() if is_first else one.run_at))
        took = bucket(one.over_at - one.ran_at)
    return fire.job, fire.queue, one.outcome.kind if one.outcome else "", late, took


def bucket(seconds: float) -> int:
    """The place of the first bound that these seconds do not exceed."""
    return bisect_left(BOUNDS_S, seconds)


def counted(records: Iterable[Ended], starts: range) -> list[Tally]:
    """Count those of these records that ended in the intervals."""
    counts: Counter[tuple[int, Group]] = Counter()
    for one in records:
        if starts.start <= one.over_at < starts.stop:
            counts[start_of(one.over_at, starts.step), group_of(one)] += 1
    return [tally_of(start, group, fires) for (start, group), fires in counts.items()]


def start_of(at: float, step_s: int) -> int:
    return int(at // step_s) * step_s


def tally_of(start: float, group: Sequence[Any], fires: int) -> Tally:
    job, queue, kind, late, took = group
    bounds = [None if place == NEVER_RAN else BOUNDS_S[place] for place in (late, took)]
    return Tally(instant(start), job, queue, kind, bounds[0], bounds[1], fires)


def in_order(tallies: Iterable[Tally]) -> list[Tally]:
    return sorted(tallies, key=lambda one: (*one[:4], one.late_le_s or 0.0, one.took_le_s or 0.0))
