"""Chooses how many messages a worker sends to one child process, from how long each task usually takes."""

from __future__ import annotations

from detent.model import Call

TARGET_BATCH_S = 0.02  # a batch should keep a child busy for about this long
BATCH_MAX = 100
STALLED_S = 1.0  # no message finished for this long: return the ones that have not started
SMOOTHING = 8  # weight of the running mean


class BatchSize:
    def __init__(self, at_once: int) -> None:
        self._at_once = at_once  # async messages in one child
        self._means: dict[str, float] = {}  # mean duration by function
        self._mean_s = TARGET_BATCH_S  # mean duration of all functions

    def learn(self, function: str, took_s: float) -> None:
        mean_s = self._means.get(function, took_s)
        self._means[function] = mean_s + (took_s - mean_s) / SMOOTHING
        self._mean_s += (took_s - self._mean_s) / SMOOTHING

    def size(self, call: Call) -> int:
        if call.is_async:
            return self._at_once
        return _fit(self._means.get(call.function, TARGET_BATCH_S))

    def prefetch_factor(self) -> int:
        """Messages to hold per slot: two batches, so that the next one is ready when the first ends."""
        batch = _fit(self._mean_s)
        return 2 * batch if batch > 1 else 1


def _fit(mean_s: float) -> int:
    return max(1, min(BATCH_MAX, int(TARGET_BATCH_S / max(mean_s, 1e-6))))
