"""The coming instants of the jobs of a manifest: the next one of each job, and all of the next minutes."""

import heapq
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import islice

from detent import clock
from detent.manifest.check import Manifest
from detent.model import Schedule
from detent.schedules.timetable import fires_at_boot

AHEAD_S = 120  # instants within this time are all shown
BLOCK_S = 60  # they are computed once in each period of this length
SOON_MAX = 2_000  # instants of all jobs together; the jobs that are due first have all of theirs
_START = datetime(1970, 1, 2, tzinfo=UTC)
Runs = list[list[int]]  # [first instant in Unix seconds, step in seconds, number of instants]


class Coming:
    """The next instant of a job is computed again only when it has passed."""

    def __init__(self, manifest: Manifest | None) -> None:
        self._schedules: dict[str, Schedule] = {}
        self._next: dict[str, datetime | None] = {}
        self._queue: list[tuple[datetime, str]] = []
        for job in manifest.jobs if manifest else ():
            self._schedules[job.name] = job.schedule
            self._queue.append((_START, job.name))
        self._now = _START
        self._block, self._soon = 0, dict[str, Runs]()

    def move_to(self, now: datetime) -> None:
        if now < self._now:  # the store's clock was set back
            self._queue = [(_START, name) for name in self._schedules]
        self._now = now
        while self._queue and self._queue[0][0] <= now:
            _, name = heapq.heappop(self._queue)
            self._next[name] = due_at = self._schedules[name].after(now)
            if due_at:
                heapq.heappush(self._queue, (due_at, name))

    def of(self, name: str) -> datetime | None:
        return self._next.get(name)

    def fires_at_boot(self, name: str) -> bool:
        return name in self._schedules and fires_at_boot(self._schedules[name], self._now)

    def first(self, count: int) -> list[tuple[datetime, str]]:
        return heapq.nsmallest(count, self._queue)

    def soon(self) -> dict[str, Runs]:
        """All instants of the next two minutes or a little more, by job.  It changes once a minute."""
        block = int(self._now.timestamp()) // BLOCK_S * BLOCK_S
        if block != self._block:
            self._block, self._soon, left = block, {}, SOON_MAX
            since, until = clock.instant(block), clock.instant(block + BLOCK_S + AHEAD_S)
            for due_at, name in sorted(self._queue):
                if due_at > until or left <= 0:
                    break
                found = [*islice(self._schedules[name].between(since, until), left)]
                self._soon[name] = runs_of(int(one.timestamp()) for one in found)
                left -= len(found)
        return self._soon


def runs_of(instants: Iterable[int]) -> Runs:
    """Growing instants as runs of equal steps, which are much shorter for most schedules."""
    found: Runs = []
    for at in instants:
        if found and found[-1][2] == 1:
            found[-1][1:] = [at - found[-1][0], 2]
        elif found and at == found[-1][0] + found[-1][1] * found[-1][2]:
            found[-1][2] += 1
        else:
            found.append([at, 0, 1])
    return found
