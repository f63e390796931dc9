"""How many messages go to a child together, by what their functions took before."""

from __future__ import annotations

from detent.model import Call

TARGET_BATCH_S = 0.02
BATCH_MAX = 100
STALLED_S = 1.0  # nothing was heard of those at work for so long: who waits for them waits in vain
SMOOTHING = 8  # how many calls it takes to believe another duration


class BatchSize:
    """How many messages go together."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once  # async ones, in one child
        self._means: dict[str, float] = {}  # what a function takes
        self._mean_s = TARGET_BATCH_S  # what any of them takes

    def learn(self, function: str, took_s: float) -> None:
        mean_s = self._means.get(function, took_s)
        self._means[function] = mean_s + (took_s - mean_s) / SMOOTHING
        self._mean_s += (took_s - self._mean_s) / SMOOTHING

    def size(self, call: Call) -> int:
        if call.is_async:
            return self._at_once
        return _fit(self._means.get(call.function, TARGET_BATCH_S))

    def prefetch_factor(self) -> int:
        """For how many messages at once there is use, in the place of one."""
        together = _fit(self._mean_s)
        return 2 * together if together > 1 else 1  # the next are at hand when the first have ended


def _fit(mean_s: float) -> int:
    return max(1, min(BATCH_MAX, int(TARGET_BATCH_S / max(mean_s, 1e-6))))
