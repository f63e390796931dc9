"""A task of the warden, as the node sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from detent.model import End, Outcome
from detent.rules.trust import overdue_at, term_by
from detent.runners.call.spec import CallSpec, GuardSpec
from detent.runners.command import Spec
from detent.runners.running import AttemptEnd
from detent.warden.wire import Gone, end_of_task

if TYPE_CHECKING:
    from detent.warden.client import WardenClient

AnySpec = Spec | CallSpec | GuardSpec
Begun = Callable[[], None]


def nothing(*_: object) -> None:
    """Ignores a notification."""


class TaskHandle:
    pid = 0  # of the main process, once started
    on_part: Callable[[str | int], None] = staticmethod(nothing)  # see `wire.Part`
    _stopped: Outcome | None = None

    def __init__(
        self, client: WardenClient, spec: AnySpec, trusted_by: float, begun: Begun = nothing
    ) -> None:
        self.gone = self.new_future()
        self.id, self.spec, self.trusted_by = spec.id, spec, trusted_by
        self._begun, self._client = begun, client

    def new_future(self) -> asyncio.Future[AttemptEnd]:
        return asyncio.get_running_loop().create_future()

    @property
    def overdue_at(self) -> float:
        return overdue_at(self.trusted_by, self.spec.ttl_s)

    @property
    def term_by(self) -> float:
        return term_by(self.trusted_by, self.spec.ttl_s, self.spec.kill_after_s)

    def begun(self) -> None:
        """Called when the warden has started the task, or guards it."""
        self._begun()

    def extend(self, trusted_by: float) -> None:
        """The claim was renewed: trust ends later."""
        if trusted_by > self.trusted_by:
            self.trusted_by = trusted_by
            self._client.extend(self)

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None:
        """End the task with this outcome, unless it has ended.  The outcome of the first stop counts; a
        further stop can only shorten the time until SIGKILL."""
        self._stopped = self._stopped or why
        if not self.gone.done():
            self._client.stop(self.id, kill_after_s)

    def release(self) -> None:
        """A guarded call, which runs in this process, has ended."""
        self._client.release(self)

    def end(self, gone: Gone) -> None:
        self.resolve(end_of_task(self.spec, gone, self._stopped))

    def lose(self, why: Outcome) -> None:
        self.resolve(End(self._stopped or why))

    def resolve(self, end: AttemptEnd) -> None:
        if not self.gone.done():
            self.gone.set_result(end)
