"""Measures how long the job of each second had no launch, with and without the time that faults of the store
explain.

The limit is one claim and five seconds: a node that dies between a claim and its launch keeps the lane
until the claim expires, and the other nodes need a moment to notice.  Time in which no node could launch
anything does not count: the store was down, stopped, locked or in quarantine, its clock was set back, the
machine stalled, or all nodes were dead, stopped or cut off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.chaos.evidence import Evidence
from tests.chaos.faults import Fault
from tests.chaos.jobs import CLAIM_S, TICK

BUDGET_S = CLAIM_S + 5.0
QUARANTINE = "quarantine"
OF_ALL = frozenset({"restart store", "stop store", "lock store", "stall", QUARANTINE})
OF_A_NODE = frozenset({"kill node", "kill both", "stop node", "end node", "cut", "black hole"})
Span = tuple[float, float]


class Gap(NamedTuple):
    """Between two launches of the job of each second."""

    since: float  # of the monotonic clock
    until: float
    beyond_s: float  # its length without the time in which no node could launch anything
    faults: tuple[Fault, ...]

    @property
    def length_s(self) -> float:
        return self.until - self.since


def gaps(evidence: Evidence) -> list[Gap]:
    excused = union([*_without_store(evidence), *_without_nodes(evidence.faults)])
    launches = [one.at for one in evidence.starts() if one.job == TICK]
    return [_gap(evidence.faults, span, excused) for span in pairwise(launches)]


def union(spans: Iterable[Span]) -> list[Span]:
    """Merge overlapping spans, in order."""
    found: list[Span] = []
    for since, until in sorted(spans):
        if found and since <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], until)
        else:
            found.append((since, until))
    return found


def _gap(faults: Sequence[Fault], span: Span, excused: Sequence[Span]) -> Gap:
    since, until = span
    excused_s = sum(max(0.0, min(until, end) - max(since, begin)) for begin, end in excused)
    meanwhile = tuple(one for one in faults if one.until > since and one.at < until)
    return Gap(since, until, until - since - excused_s, meanwhile)


def _without_store(evidence: Evidence) -> Iterator[Span]:
    yield from ((one.at, one.until) for one in evidence.faults if one.kind in OF_ALL)
    for (_, before_s), (at, after_s) in pairwise(evidence.clock.history):
        if after_s < before_s:
            yield at, at + before_s - after_s  # until it shows the same time again


def _without_nodes(faults: Sequence[Fault]) -> list[Span]:
    """Return when each node was dead, stopped or cut off."""
    spans = [(float("-inf"), float("inf"))]
    for name in "abc":
        down = union((one.at, one.until) for one in faults if one.target == name and one.kind in OF_A_NODE)
        spans = [(max(a, c), min(b, d)) for a, b in spans for c, d in down if max(a, c) < min(b, d)]
    return spans
