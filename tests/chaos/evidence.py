"""The evidence of a chaos run: what the kernel saw, what the store recorded, and the injected faults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.chaos.faults import Fault

from detent.model import Row


class Seen(NamedTuple):
    """One line that the witness wrote."""

    what: str  # start | end | stay | hook
    at: float  # CLOCK_MONOTONIC
    pid: int
    place: int  # in its lane; -1: the lane was full
    status: int
    node: str  # the instance
    fence: int
    attempt: int
    run_id: str
    key: str

    @property
    def job(self) -> str:
        return self.key.partition("@")[0]

    @property
    def member(self) -> str:
        return self.node.partition(".")[0]


def read_seen(path: Path) -> list[Seen]:
    *lines, _ = path.read_text().split("\n")
    return [_seen(line) for line in lines]


def _seen(line: str) -> Seen:
    what, at, pid, place, status, node, fence, attempt, run_id, key = line.split(" ")
    numbers = int(pid), int(place), int(status)
    return Seen(what, int(at) / 1e9, *numbers, node, int(fence), int(attempt), run_id, key)


class Clock(NamedTuple):
    """The store's wall clock, with its steps."""

    offset: float  # the real wall clock minus the monotonic clock
    history: tuple[tuple[float, float], ...]  # times, and how far ahead the clock is from then on

    def latest(self, at: float, within_s: float) -> float:
        """Return the latest time that it showed in the seconds before `at`."""
        shown = [at + self.offset + self._ahead(at)]
        for begins, ahead_s in self.history:
            if at - within_s <= begins <= at:
                shown.append(begins + self.offset + max(ahead_s, self._ahead(begins - 1e-6)))
        return max(shown)

    def when(self, wall: float) -> float:
        """Return the last monotonic time at which it showed this."""
        ends = [*(begins for begins, _ in self.history[1:]), float("inf")]
        for (begins, ahead_s), end in zip(reversed(self.history), reversed(ends), strict=True):
            at = wall - self.offset - ahead_s
            if begins <= at < end:
                return at
        return wall - self.offset - self.history[-1][1]  # a step skipped it

    def _ahead(self, at: float) -> float:
        return next((ahead_s for begins, ahead_s in reversed(self.history) if begins <= at), 0.0)


class Evidence(NamedTuple):
    seen: tuple[Seen, ...]
    rows: tuple[Row, ...]
    faults: tuple[Fault, ...]
    clock: Clock
    began_at: float  # by the store's clock; all jobs are deployed
    faults_ended_at: float  # by the store's clock; fires due before this must be over
    hooks: bool = False  # whether the jobs have hooks
    events: tuple[dict[str, Any], ...] = ()  # of all instances of all nodes
    broken: tuple[str, ...] = ()  # problems during the run
    viewed: Mapping[str, int] = {}  # what open pages of the dashboard received

    def starts(self) -> Iterator[Seen]:
        return (one for one in self.seen if one.what == "start")
