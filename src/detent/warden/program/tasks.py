"""All work in the warden's care, and which of it needs a look now.

Most of it just runs: it is looked at when its time comes, and once a second.  What was stirred, as it has
ended, was told to stop or lost its node, is looked at in every round until it is gone.
"""

import math
from collections.abc import ValuesView

from .task import WardenTask

LOOK_S = 1.0  # the longest time without a look at all
STIRRED_LOOK_S = 0.05  # while something is about to be gone


class Tasks:
    def __init__(self) -> None:
        self._all: dict[str, WardenTask] = {}
        self._stirred: dict[str, WardenTask] = {}
        self._look_by = math.inf  # at all of it; not later than anything has to be done

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, task: WardenTask, now: float) -> None:
        self._all[task.id] = task
        task.stir = self._stir
        self._look_by = min(self._look_by, task.next_at(), now + LOOK_S)

    def get(self, id: str) -> WardenTask | None:
        return self._all.get(id)

    def values(self) -> ValuesView[WardenTask]:
        return self._all.values()

    def remove(self, task: WardenTask) -> None:
        del self._all[task.id]
        self._stirred.pop(task.id, None)

    def to_look_at(self, now: float) -> list[WardenTask]:
        return list(self._all.values() if now >= self._look_by else self._stirred.values())

    def looked(self, now: float) -> None:
        """All that was to be looked at is."""
        if now >= self._look_by:
            next_at = min((task.next_at() for task in self._all.values()), default=math.inf)
            next_at = next_at if next_at > now else now + STIRRED_LOOK_S
            self._look_by = min(next_at, now + LOOK_S) if self._all else math.inf

    def pause_s(self, now: float) -> float:
        """Until something is to be done; what should be over by now is looked at again and again."""
        if self._stirred:
            return STIRRED_LOOK_S
        return min(max(self._look_by - now, 0.0), LOOK_S)

    def _stir(self, task: WardenTask) -> None:
        self._stirred[task.id] = task
