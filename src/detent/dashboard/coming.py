"""The next instant of each job of a manifest, computed again only for jobs whose instant has passed."""

from __future__ import annotations

import heapq
from datetime import UTC, datetime

from detent.manifest.check import Manifest
from detent.model import Schedule

_START = datetime(1970, 1, 2, tzinfo=UTC)


class Coming:
    def __init__(self, manifest: Manifest | None) -> None:
        self._schedules: dict[str, Schedule] = {}
        self._next: dict[str, datetime | None] = {}
        self._queue: list[tuple[datetime, str]] = []
        for job in manifest.jobs if manifest else ():
            self._schedules[job.name] = job.schedule
            self._queue.append((_START, job.name))
        self._now = _START

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

    def first(self, count: int) -> list[tuple[datetime, str]]:
        return heapq.nsmallest(count, self._queue)
