"""The schedule of the simulator's jobs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from detent.clock import instant


class Every:
    """A schedule with a fixed period, counted from the Unix epoch."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds

    def after(self, at: datetime) -> datetime:
        return instant((int(at.timestamp() // self.seconds) + 1) * self.seconds)

    def before(self, at: datetime) -> datetime:
        return instant(-int(-at.timestamp() // self.seconds + 1) * self.seconds)

    def between(self, since: datetime, until: datetime) -> Iterator[datetime]:
        while (since := self.after(since)) <= until:
            yield since
