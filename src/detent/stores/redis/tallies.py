"""The numbers of records that ended: for each minute a hash `tally:MINUTE`, which commits add to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from detent.model import Tally
from detent.rules.tallies import MINUTE_S, Group, start_of, tally_of
from detent.stores.redis.indexes import decoded, encoded

TALLY_S = 48 * 3600  # how long the numbers of a minute are kept
MINUTES = 20  # that one call reads


def tally_name(over_at: float) -> str:
    return f"tally:{start_of(over_at, MINUTE_S) // MINUTE_S}"


def tally_field(group: Group) -> str:
    job, queue, kind, late, took = group
    return f"{encoded(job)} {encoded(queue)} {kind} {late} {took}"


def slices(starts: range, now: float) -> Iterator[range]:
    """The minutes of these intervals that may be kept, a few at a time."""
    first = max(starts.start, int(now) - TALLY_S) // MINUTE_S
    last = min(starts.stop, int(now) + MINUTE_S) // MINUTE_S  # with the minute that has begun
    for minute in range(first, last, MINUTES):
        yield range(minute, min(minute + MINUTES, last))


def summed(minutes: Iterable[tuple[int, list[bytes]]], step_s: int) -> list[Tally]:
    """The numbers of these minutes, in intervals of `step_s`."""
    counts: Counter[tuple[int, bytes]] = Counter()
    for minute, words in minutes:
        for field, number in zip(words[::2], words[1::2], strict=True):
            counts[start_of(minute * MINUTE_S, step_s), field] += int(number)
    return [tally_of(start, _group(field), fires) for (start, field), fires in counts.items()]


def _group(field: bytes) -> Group:
    job, queue, kind, late, took = field.decode().split(" ")
    return decoded(job), decoded(queue), kind, int(late), int(took)
