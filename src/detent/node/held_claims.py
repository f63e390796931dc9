"""The claims that a node holds: how much room they leave, and when they must be renewed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from detent.model import Claim
from detent.node.attempt import HeldClaim
from detent.stores.base import is_hook


class HeldClaims:
    def __init__(self) -> None:
        self._by_fence: dict[int, HeldClaim] = {}
        self.hooks = 0
        self._decided = 0
        self._renew_by = math.inf  # no claim must be renewed before this time

    def add(self, claims: Sequence[HeldClaim]) -> None:
        self._by_fence.update((held.claim.fence, held) for held in claims)
        self.hooks += sum([is_hook(held.claim.fire) for held in claims])
        self._decided += sum([_is_decided(held.claim) for held in claims])
        self._renew_by = min(self._renew_by, *(held.renew_at for held in claims))

    def remove(self, claim: Claim) -> None:
        del self._by_fence[claim.fence]
        self.hooks -= is_hook(claim.fire)
        self._decided -= _is_decided(claim)

    @property
    def work(self) -> int:
        """The number of claims that take a place: hooks have their own, dispositions need none."""
        return len(self._by_fence) - self.hooks - self._decided

    def renew_in_s(self, now: float) -> float:
        """Return the time until the next renewal is due."""
        if now >= self._renew_by:
            self._renew_by = min((held.renew_at for held in self.to_renew()), default=math.inf)
        return self._renew_by - now

    def to_renew(self) -> list[HeldClaim]:
        return [held for held in self if not held.is_lost]

    def __contains__(self, fence: int) -> bool:
        return fence in self._by_fence

    def __iter__(self) -> Iterator[HeldClaim]:
        return iter(self._by_fence.values())

    def __len__(self) -> int:
        return len(self._by_fence)


def _is_decided(claim: Claim) -> bool:
    """The store decided that the fire must not run: the node only settles it."""
    return claim.disposition is not None and not is_hook(claim.fire)
