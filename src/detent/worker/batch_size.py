"""How many messages go to a child together, by what their functions took before."""

from __future__ import annotations

from detent.model import Call

TOGETHER_S = 0.02
TOGETHER_MAX = 100
SLOW_S = 1.0  # nothing was heard of those at work for so long: who waits for them waits in vain
LEARN = 8  # how many calls it takes to believe another duration


class Pacing:
    """How many messages go together."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once  # async ones, in one child
        self._means: dict[str, float] = {}  # what a function takes
        self._mean_s = TOGETHER_S  # what any of them takes

    def learn(self, function: str, took_s: float) -> None:
        mean_s = self._means.get(function, took_s)
        self._means[function] = mean_s + (took_s - mean_s) / LEARN
        self._mean_s += (took_s - self._mean_s) / LEARN

    def size(self, call: Call) -> int:
        if call.is_async:
            return self._at_once
        return _fit(self._means.get(call.function, TOGETHER_S))

    def stretch(self) -> int:
        """For how many messages at once there is use, in the place of one."""
        together = _fit(self._mean_s)
        return 2 * together if together > 1 else 1  # the next are at hand when the first have ended


def _fit(mean_s: float) -> int:
    return max(1, min(TOGETHER_MAX, int(TOGETHER_S / max(mean_s, 1e-6))))
