"""What a chaos run leaves to its judge: what the kernel saw, what the store remembers, what was done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.chaos.faults import Fault

from detent.model import Row


class Seen(NamedTuple):
    """One line of the witness."""

    what: str  # start | end | stay | hook
    at: float  # CLOCK_MONOTONIC
    pid: int
    place: int  # in its lane; -1: there was none
    status: int
    node: str  # a life
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
    """The store's wall clock, as it was set."""

    offset: float  # an honest wall clock less the monotonic one
    history: tuple[tuple[float, float], ...]  # when, and how far ahead from then on

    def latest(self, at: float, within_s: float) -> float:
        """The latest that it showed in the seconds before `at`."""
        shown = [at + self.offset + self._ahead(at)]
        for begins, ahead_s in self.history:
            if at - within_s <= begins <= at:
                shown.append(begins + self.offset + max(ahead_s, self._ahead(begins - 1e-6)))
        return max(shown)

    def when(self, wall: float) -> float:
        """A moment of the monotonic clock at which it showed this; the last, if there are several."""
        ends = [*(begins for begins, _ in self.history[1:]), float("inf")]
        for (begins, ahead_s), end in zip(reversed(self.history), reversed(ends), strict=True):
            at = wall - self.offset - ahead_s
            if begins <= at < end:
                return at
        return wall - self.offset - self.history[-1][1]  # it was leapt over

    def _ahead(self, at: float) -> float:
        return next((ahead_s for begins, ahead_s in reversed(self.history) if begins <= at), 0.0)


class Evidence(NamedTuple):
    seen: tuple[Seen, ...]
    rows: tuple[Row, ...]
    faults: tuple[Fault, ...]
    clock: Clock
    began_at: float  # by the store's clock; all jobs are in force
    calm_at: float  # by the store's clock: what was due until then must be over
    hooks: bool = False  # there are hooks
    events: tuple[dict[str, Any], ...] = ()  # of all lives of all nodes
    broken: tuple[str, ...] = ()  # what was noticed on the way

    def starts(self) -> Iterator[Seen]:
        return (one for one in self.seen if one.what == "start")
