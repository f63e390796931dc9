"""The handle of a pushed message: its state and its result."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from detent import clock
from detent.errors import DetentError, UsageError
from detent.model import Kind, Outcome, Query, Row
from detent.text import quote

if TYPE_CHECKING:
    from detent.app.app import Detent

T = TypeVar("T")
State = Literal["pending", "delayed", "running", "unknown"] | Kind
FORGOTTEN = (
    "is no longer stored: it was removed by keep_fires or keep_days, or by hand; result_ttl= of its task "
    "keeps results for longer"
)
NOT_COMMITTED = (
    "is not stored: the transaction that it was pushed in is not committed yet, or was rolled back; commit "
    "before you call get()"
)
POLL_MIN_S, POLL_MAX_S = 0.005, 0.25  # stores send no notification when a message ends


class TaskFailed(DetentError):
    """The message ended without a result."""

    def __init__(self, key: str, outcome: Outcome, attempts: int) -> None:
        super().__init__(key, outcome, attempts)
        self.key, self.outcome, self.attempts = key, outcome.kind, attempts
        self.reason, self.cause = outcome.reason, outcome.cause

    def __str__(self) -> str:
        runs = f" after {self.attempts} attempts" if self.attempts > 1 else ""
        return f"{self.key}: {self.outcome}{runs}{': ' + self.reason if self.reason else ''}"


class ResultUnknown(DetentError):
    """The store does not have the message, so its outcome is unknown."""


class ResultTimeout(DetentError, TimeoutError):
    """The message did not end within the timeout."""


class Handle(Generic[T]):
    """Returned by `push`."""

    __slots__ = ("_app", "_is_in_transaction", "_keeps", "is_new", "key")

    def __init__(
        self, app: Detent, key: str, is_new: bool, keeps: bool, is_in_transaction: bool = False
    ) -> None:
        self._app, self._keeps, self._is_in_transaction = app, keeps, is_in_transaction
        self.key = key
        self.is_new = is_new  # False: the store already had a message with the same `unique` label

    def __repr__(self) -> str:
        return f"Handle({self.key!r})"

    def state(self) -> State:
        """The state of the message or, once it has ended, its outcome; "unknown" if it is not stored."""
        row = self._row()
        return state_of(row, self._app.sender.exact_now()) if row else "unknown"

    def get(self, timeout: float | None = None) -> T:
        """Wait until the message has ended and return the task's result.  `timeout` is in seconds; None:
        no limit.  Raises `TaskFailed`, `ResultTimeout` or `ResultUnknown`."""
        for wait_s in self._waits(timeout):
            if row := self._ended():
                return self._result(row)
            threading.Event().wait(wait_s)
        raise ResultTimeout(f"{self.key} has not ended after {timeout:g} s")

    async def aget(self, timeout: float | None = None) -> T:
        """Like `get`, for async code."""
        for wait_s in self._waits(timeout):
            if row := await asyncio.to_thread(self._ended):
                return self._result(row)
            await asyncio.sleep(wait_s)
        raise ResultTimeout(f"{self.key} has not ended after {timeout:g} s")

    def _waits(self, timeout: float | None) -> Iterator[float]:
        """Yield how long to wait after each poll; the last poll is at the end of the timeout."""
        until, wait_s = clock.monotonic() + (timeout or 0.0), POLL_MIN_S
        while timeout is None or (left_s := until - clock.monotonic()) > 0:
            yield wait_s if timeout is None else min(wait_s, left_s)
            wait_s = min(wait_s * 1.5, POLL_MAX_S)
        yield 0.0

    def _ended(self) -> Row | None:
        """The message's row once it has ended, else None."""
        if not self._keeps:
            raise UsageError(
                f"the results of task {quote(self._task)} are not kept: declare it with keep_result=True"
            )
        row = self._row()
        if row is None:
            raise ResultUnknown(f"{self.key} {NOT_COMMITTED if self._is_in_transaction else FORGOTTEN}")
        return row if row.state == "over" else None

    @property
    def _task(self) -> str:
        return self.key.partition("#")[0].partition(".")[2]

    def _row(self) -> Row | None:
        return next(iter(self._app.open_store().find(Query(key=self.key, limit=1))), None)

    def _result(self, row: Row) -> T:
        assert row.outcome is not None
        if row.outcome.kind != "succeeded":
            raise TaskFailed(self.key, row.outcome, row.attempt)
        text = row.attempts[-1].result if row.attempts else ""
        result: Any = json.loads(text) if text else None
        if result is not None and self._task in self._app.tasks():
            result = self._app.task_named(self._task).parameters.result(result)
        return result  # type: ignore[no-any-return]


def state_of(row: Row, now: datetime) -> State:
    if row.state == "over":
        return row.outcome.kind if row.outcome else "unknown"
    if row.state == "claimed":
        return "running"
    return "delayed" if row.run_at and row.run_at > now else "pending"
