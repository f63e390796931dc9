"""The work of one attempt, as nodes and triggers see it: how to start, extend and stop it, and how it
ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from detent.model import Claim, End, Outcome, Work

if TYPE_CHECKING:  # a trigger has no event loop
    import asyncio


class LaneHeld(Exception):
    """Processes of an earlier fire still hold its lane on this host, whatever the store knows of them."""

    def __init__(self, pids: Sequence[int]) -> None:
        named = f" {', '.join(map(str, pids[:5]))}" if pids else ""
        super().__init__(f"a process of an earlier fire still runs on this host{named and ':' + named}")


class TooLate(Exception):
    """The claim is no longer trusted: nothing was started."""


AttemptEnd = End | LaneHeld | None  # None: nothing was started, as it was too late


class Running(Protocol):
    @property
    def gone(self) -> asyncio.Future[AttemptEnd]:
        """Resolved when no part of the work runs any more."""

    def extend(self, trusted_by: float) -> None: ...

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None: ...


class Starter(Protocol):
    def start(self, work: Work, claim: Claim, trusted_by: float) -> Running:
        """Have the work started, to be gone by `trusted_by`."""
