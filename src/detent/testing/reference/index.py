"""The entries of the in-memory store with their indexes, the graces of lanes, and the wake-up of waiters."""

from __future__ import annotations

import threading
from collections.abc import Callable

from detent.model import Fire
from detent.testing.reference.record import Entry


class Index:
    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.open: dict[str, Entry] = {}  # not finished
        self.lanes: dict[str, dict[str, Entry]] = {}  # lane -> its open entries
        self.jobs: dict[str, dict[str, Entry]] = {}  # job -> its open scheduled entries

    def add(self, entry: Entry) -> None:
        fire = entry.fire
        self.entries[fire.key] = self.open[fire.key] = entry
        if fire.lane:
            self.lanes.setdefault(fire.lane, {})[fire.key] = entry
        if fire.origin == "schedule":
            self.jobs.setdefault(fire.job, {})[fire.key] = entry

    def close(self, entry: Entry) -> None:
        key = entry.fire.key
        del self.open[key]
        self.lanes.get(entry.fire.lane, {}).pop(key, None)
        self.jobs.get(entry.fire.job, {}).pop(key, None)

    def remove(self, entry: Entry) -> None:
        if entry.fire.key in self.open:
            self.close(entry)
        del self.entries[entry.fire.key]

    def drop_late_hooks(self, fire: Fire) -> None:
        """Delete the pending `on_late` hooks of a fire that started or ended."""
        for hook in fire.policy.hooks:
            entry = self.open.get(f"{fire.key}/{hook}") if hook.startswith("on_late") else None
            if entry and entry.state == "pending":
                self.remove(entry)


class Graces:
    """Places of lanes that stay taken for a while after their fire ended."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self.all_ends: dict[str, list[float]] = {}  # lane -> when its places become free

    def keep(self, lane: str, seconds: float) -> None:
        self.all_ends[lane] = [*self.ends(lane), self._monotonic() + seconds]

    def ends(self, lane: str) -> list[float]:
        return [until for until in self.all_ends.get(lane, ()) if until > self._monotonic()]


class Wakeups:
    def __init__(self) -> None:
        self.lock = threading.Condition(threading.RLock())
        self._count, self._heard = 0, -1  # -1: nobody has waited yet

    def wake(self) -> None:
        self._count += 1
        self.lock.notify_all()

    def wait(self, seconds: float) -> bool:
        with self.lock:
            seen = self._count if self._heard < 0 else self._heard
            is_awake = self.lock.wait_for(lambda: self._count != seen, seconds)
            self._heard = self._count
            return is_awake
