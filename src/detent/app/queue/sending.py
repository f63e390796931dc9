"""Sends an app's messages to its store: stamped with the store's time, signed, and put in batches.

The store's time is read once a minute and extrapolated in between: with the sender's own clock, messages
could be expired when they arrive.  The secrets are resolved once a minute too: they may be in files.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import secrets
import threading
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from detent import clock
from detent.app.queue.handles import Handle
from detent.app.queue.options import PushSpec
from detent.errors import StoreUnavailable, UsageError
from detent.manifest.secret_refs import Secret
from detent.messages.message import PushContext, Task, messages
from detent.messages.trace_context import parse_trace
from detent.model import Fire
from detent.runners.call.trace import current_trace, pushing
from detent.stores.base import Store
from detent.stores.memory.store import MemoryStore
from detent.text import quote

if TYPE_CHECKING:
    from detent.app.app import Detent

REFRESH_S = 60.0
PUT_MAX = 2_000  # messages of one call: the store does nothing else meanwhile
_COUNT_BITS = 20


class Tokens:
    """Makes the tokens of messages: 48 bits of milliseconds, a count of 20 bits, and 60 random bits of this
    process.  Tokens of one process always grow; two processes never make the same one."""

    def __init__(self) -> None:
        self._lock, self._own, self._next = threading.Lock(), secrets.token_hex(8)[1:], 0

    def take(self, count: int, at: datetime) -> list[str]:
        with self._lock:
            first = max(int(at.timestamp() * 1000) << _COUNT_BITS, self._next)
            self._next = first + count
        return [f"{number:017x}{self._own}" for number in range(first, first + count)]


TOKENS = Tokens()
os.register_at_fork(after_in_child=TOKENS.__init__)  # type: ignore[misc]  # a child has random bits of its own


class PushUnknown(StoreUnavailable):
    """The store did not answer a push, so it may or may not have recorded the messages with these `keys`."""

    def __init__(self, why: str, fires: Sequence[Fire]) -> None:
        self.keys = [fire.key for fire in fires]
        label = self.keys[0].partition("#")[2]
        text = f"{why.rstrip('.')}; it is unknown whether it recorded the push of {self.keys[0]}"
        text += f" and {len(fires) - 1:,} others" if len(fires) > 1 else ""
        super().__init__(f'{text}: push each again with options(unique="{label}"), and it is recorded once')


class Sender:
    def __init__(self, app: Detent) -> None:
        self._app = app
        self._clock = clock.StoreClock()
        self._resolved_at, self._secrets = float("-inf"), tuple[Secret, ...]()

    def push(self, task: Task, texts: Sequence[str], spec: PushSpec) -> list[Handle[Any]]:
        """`texts` are the arguments of each message, in JSON."""
        with pushing(spec.options.queue or task.queue, len(texts)):
            return self._push(task, texts, spec)

    def _push(self, task: Task, texts: Sequence[str], spec: PushSpec) -> list[Handle[Any]]:
        if spec.connection is not None:
            put_in, connection = self._put_in(spec.connection, "put_in")
            fires, delay_s = self._signed_fires(task, texts, spec)
            return self._handles(task, fires, put_in(connection, fires, delay_s), is_in_transaction=True)
        store, (fires, delay_s) = self._app.open_store(), self._signed_fires(task, texts, spec)
        fresh: list[bool] = []
        while (done := len(fresh)) < len(fires):
            try:
                fresh += _put(store, fires[done : done + PUT_MAX], delay_s)
            except StoreUnavailable as error:
                raise PushUnknown(str(error), fires[done:]) from error
        return self._handles(task, fires, fresh)

    async def apush(self, task: Task, texts: Sequence[str], spec: PushSpec) -> list[Handle[Any]]:
        if spec.connection is None:
            return await asyncio.to_thread(self.push, task, texts, spec)
        put_in, connection = self._put_in(spec.connection, "aput_in")
        with pushing(spec.options.queue or task.queue, len(texts)):
            fires, delay_s = await asyncio.to_thread(self._signed_fires, task, texts, spec)
            fresh = await put_in(connection, fires, delay_s)
        return self._handles(task, fires, fresh, is_in_transaction=True)

    def now(self) -> datetime:
        """The store's time, extrapolated."""
        if isinstance(self._app.open_store(), MemoryStore):  # its clock may be a fake one
            return self.exact_now()
        if self._clock.age_s > REFRESH_S:
            self._clock.learn(self.exact_now())
        return self._clock.now()

    def exact_now(self) -> datetime:
        """The store's time, read from the store, for comparisons with its rows."""
        return self._app.open_store().advance(self._app.name, ()).now

    def secrets(self) -> tuple[Secret, ...]:
        if clock.monotonic() - self._resolved_at > REFRESH_S:
            self._resolved_at, self._secrets = clock.monotonic(), self._app.signing()
        return self._secrets

    def _signed_fires(self, task: Task, texts: Sequence[str], spec: PushSpec) -> tuple[list[Fire], float]:
        now, options = self.now(), spec.options
        if spec.at is not None:
            options = options._replace(delay_s=max(0.0, (spec.at - now).total_seconds()))
        bodies = zip(TOKENS.take(len(texts), now), texts, strict=True)
        trace = current_trace()
        context = PushContext(self._app.name, now, "", trace=trace if parse_trace(trace) else "")
        return messages(task, bodies, options, context, self.secrets()), options.delay_s

    def _handles(
        self, task: Task, fires: Sequence[Fire], fresh: Sequence[bool], is_in_transaction: bool = False
    ) -> list[Handle[Any]]:
        keeps = not task.policy.drop_result
        made = zip(fires, fresh, strict=True)
        return [Handle(self._app, fire.key, is_new, keeps, is_in_transaction) for fire, is_new in made]

    def _put_in(self, given: Any, verb: str) -> tuple[Any, Any]:
        """The store's method for pushing in the user's transaction, and the psycopg connection for it."""
        store = self._app.open_store()
        found = getattr(store, verb, None)
        if found is None:
            raise UsageError(
                "connection= is for apps whose store is PostgreSQL: "
                f"the store of {quote(self._app.name)} is a {type(store).__name__}"
            )
        connection = _psycopg_of(given)
        is_async = inspect.iscoroutinefunction(connection.commit)
        if is_async != (verb == "aput_in"):
            kind = "an async connection: use apush" if is_async else "not an async connection: use push"
            raise UsageError(f"connection= is {kind}")
        return found, connection


def _psycopg_of(given: Any) -> Any:
    """The given psycopg connection, or the one that SQLAlchemy or Django wraps."""
    from psycopg import AsyncConnection, Connection

    if hasattr(given, "ensure_connection"):  # Django connects on first use
        given.ensure_connection()
    elif hasattr(given, "exec_driver_sql") and not given.in_transaction():
        given.exec_driver_sql("SELECT 1")  # SQLAlchemy begins its transaction
    inner = getattr(given, "connection", None)
    drivers = [getattr(one, "driver_connection", None) for one in (given, inner)]
    for one in (given, inner, *drivers):
        if isinstance(one, Connection | AsyncConnection):
            return one
    kind = type(given)
    raise UsageError(
        f"connection= is of type {kind.__module__}.{kind.__qualname__}, which cannot be used: give a "
        "connection of psycopg 3, of SQLAlchemy (postgresql+psycopg; of a session, session.connection()), or "
        "Django's django.db.connection with psycopg 3"
    )


def _put(store: Store, fires: Sequence[Fire], delay_s: float) -> list[bool]:
    """Put them; try once more if the store did not answer.  If the store has them after the second try, they
    are ours, because no other process makes these keys.  The key of a unique message may be another's."""
    try:
        return store.put(fires, delay_s)
    except StoreUnavailable:
        if fires[0].policy.unique_s:
            raise
        store.put(fires, delay_s)
        return [True] * len(fires)
