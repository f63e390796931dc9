"""The work of one attempt in the warden's task, as the node knows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from detent.model import End, Outcome
from detent.rules.trust import overdue_at, term_by
from detent.runners.call.spec import CallSpec, GuardSpec, outcome_of
from detent.runners.command import ProcessExit, Spec, end_of
from detent.runners.running import AttemptEnd

AnySpec = Spec | CallSpec | GuardSpec
Begun = Callable[[], None]


class TaskClient(Protocol):
    """Who speaks with the warden."""

    def send(self, message: dict[str, Any]) -> None: ...

    def extend(self, work: TaskHandle) -> None: ...

    def release(self, work: TaskHandle) -> None: ...


def nothing(*_: object) -> None:
    """Nobody wants to know."""


class TaskHandle:
    pid = 0  # of the main process, once started
    parted: Callable[[Any], None] = staticmethod(nothing)  # of several messages one has ended
    _stopped: Outcome | None = None

    def __init__(
        self, processes: TaskClient, spec: AnySpec, trusted_by: float, begun: Begun = nothing
    ) -> None:
        self.gone = self.new_future()
        self.id, self.spec, self.trusted_by = spec.id, spec, trusted_by
        self._begun, self._processes = begun, processes

    def new_future(self) -> asyncio.Future[AttemptEnd]:
        return asyncio.get_running_loop().create_future()

    @property
    def overdue_at(self) -> float:
        return overdue_at(self.trusted_by, self.spec.ttl_s)

    @property
    def term_by(self) -> float:
        return term_by(self.trusted_by, self.spec.ttl_s, self.spec.kill_after_s)

    def begun(self) -> None:
        """The warden has started it, or guards it."""
        self._begun()

    def extend(self, trusted_by: float) -> None:
        """The claim was renewed: trust ends later."""
        if trusted_by > self.trusted_by:
            self.trusted_by = trusted_by
            self._processes.extend(self)

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None:
        """End it, with this outcome if it did not end before.  The first reason stands; another stop
        can only leave it less time."""
        self._stopped = self._stopped or why
        if not self.gone.done():
            self._processes.send({"do": "stop", "id": self.id, "kill_after_s": kill_after_s})

    def release(self) -> None:
        """What is only guarded, as it runs in the node, has ended."""
        self._processes.release(self)

    def end(self, gone: ProcessExit, result: str = "") -> None:
        end = end_of(gone, self.spec.timeout_s, self._stopped)
        if gone.cause == "error" and isinstance(self.spec, CallSpec):
            end = end._replace(outcome=outcome_of(gone.status or 0, gone.error))
        self.resolve(end._replace(result=result) if result else end)

    def lose(self, why: Outcome) -> None:
        self.resolve(End(self._stopped or why))

    def resolve(self, went: AttemptEnd) -> None:
        if not self.gone.done():
            self.gone.set_result(went)
