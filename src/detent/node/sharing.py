"""How the nodes of a fleet share what is due.

All of them wake at the same instant, and the first to ask could take as much as it has room for.  So a
node that is not alone asks in bites, a small one first and larger ones while there is more, and the others
get theirs in between.  One that had more than its share lately lets the others go first: they are awake,
so no fire waits for that.  Alone it does neither.  None of this decides who may run what: the store does.
"""

from __future__ import annotations

from collections.abc import Sequence

BITE = 2  # a fire that is due alone costs one ask, as ever
GROWTH = 2
BEHIND_S = 0.01  # how much later one asks that is ahead: longer than an ask takes, too short to be felt
AHEAD = 1.2  # times the mean: one is ahead
FORGET = 0.5  # of what it had, at each comparison


class Share:
    def __init__(self, is_worker: bool = False) -> None:
        self.is_alone, self.is_ahead, self._is_worker = True, False, is_worker
        self._bite, self._had = BITE, 0.0

    def compare(self, loads: Sequence[float], own: float) -> None:
        """Take the loads of all living nodes, and ours among them."""
        self.is_alone = len(loads) < 2
        self.is_ahead = not self.is_alone and own > AHEAD * sum(loads) / len(loads)

    def load(self, held: int) -> float:
        """What the others compare theirs with: what we hold, and what we had of late."""
        load = held + self._had
        self._had *= FORGET
        return load

    @property
    def delay_s(self) -> float:
        """How long to wait before asking; not between bites."""
        return BEHIND_S if self.is_ahead and self._bite == BITE else 0.0

    def bite(self, room: int) -> int:
        return room if self.is_alone else min(room, self._bite)

    def take(self, asked: int, got: int, room: int) -> bool:
        """So many were granted, and so much room is left.  Is it worth asking for more at once?  A bite grows
        while there is more; a worker's also where it has no room for more, as its queues are long then."""
        self._had += got
        is_more = not self.is_alone and got >= asked and room > 0
        if self.is_alone or got < asked or not (is_more or self._is_worker):
            self._bite = BITE
        elif asked >= self._bite:
            self._bite *= GROWTH
        return is_more
