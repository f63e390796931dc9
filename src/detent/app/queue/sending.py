"""The way of an app's messages into its store: stamped by the store's clock, sealed, put in one call.

- The store's clock is asked for once a minute, and reckoned in between: a sender whose clock is wrong must
  not make messages that are too late before they are there.
- So are the secrets: they may be in files.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from detent import clock
from detent.app.queue.handles import Handle
from detent.app.queue.options import PushSpec
from detent.app.queue.tokens import TOKENS
from detent.errors import StoreUnavailable, UsageError
from detent.manifest.secret_refs import Secret
from detent.messages.message import PushContext, Task, messages
from detent.model import Fire
from detent.stores.base import Store
from detent.stores.memory.store import MemoryStore
from detent.text import quote

if TYPE_CHECKING:
    from detent.app.app import Detent

AGAIN_S = 60.0
PUT_MAX = 2_000  # messages with one call of the store, which does nothing else meanwhile


class PushUnknown(StoreUnavailable):
    """The store did not answer a push: whether it recorded the messages is unknown.  `keys` are theirs."""

    def __init__(self, why: str, fires: Sequence[Fire]) -> None:
        self.keys = [fire.key for fire in fires]
        label = self.keys[0].partition("#")[2]
        told = f"{why.rstrip('.')}; it is unknown whether it recorded the push of {self.keys[0]}"
        told += f" and {len(fires) - 1:,} others" if len(fires) > 1 else ""
        super().__init__(f'{told}: push each again with options(unique="{label}"), and it is recorded once')


class Sender:
    """That of one app."""

    def __init__(self, app: Detent) -> None:
        self._app = app
        self._clock = clock.StoreClock()
        self._resolved_at, self._secrets = float("-inf"), tuple[Secret, ...]()

    def push(self, task: Task, texts: Sequence[str], spec: PushSpec) -> list[Handle[Any]]:
        """`texts` are the arguments of each message, in JSON."""
        if spec.connection is not None:
            put_in, connection = self._put_in(spec.connection, "put_in")
            fires, delay_s = self._sealed(task, texts, spec)
            return self._handles(task, fires, put_in(connection, fires, delay_s), is_in_transaction=True)
        store, (fires, delay_s) = self._app.open_store(), self._sealed(task, texts, spec)
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
        fires, delay_s = await asyncio.to_thread(self._sealed, task, texts, spec)
        fresh = await put_in(connection, fires, delay_s)
        return self._handles(task, fires, fresh, is_in_transaction=True)

    def now(self) -> datetime:
        """By the store's clock, reckoned."""
        if isinstance(self._app.open_store(), MemoryStore):  # its clock may be a fake one
            return self.asked_now()
        if self._clock.age_s > AGAIN_S:
            self._clock.learn(self.asked_now())
        return self._clock.now()

    def asked_now(self) -> datetime:
        """By the store's clock, for whoever compares it with what the store says."""
        return self._app.open_store().advance(self._app.name, ()).now

    def secrets(self) -> tuple[Secret, ...]:
        if clock.monotonic() - self._resolved_at > AGAIN_S:
            self._resolved_at, self._secrets = clock.monotonic(), self._app.signing()
        return self._secrets

    def _sealed(self, task: Task, texts: Sequence[str], spec: PushSpec) -> tuple[list[Fire], float]:
        now, options = self.now(), spec.options
        if spec.at is not None:
            options = options._replace(delay_s=max(0.0, (spec.at - now).total_seconds()))
        letters = zip(TOKENS.take(len(texts), now), texts, strict=True)
        context = PushContext(self._app.name, now, "")
        return messages(task, letters, options, context, self.secrets()), options.delay_s

    def _handles(
        self, task: Task, fires: Sequence[Fire], fresh: Sequence[bool], is_in_transaction: bool = False
    ) -> list[Handle[Any]]:
        keeps = not task.policy.drop_result
        return [
            Handle(self._app, fire.key, new, keeps, is_in_transaction)
            for fire, new in zip(fires, fresh, strict=True)
        ]

    def _put_in(self, given: Any, verb: str) -> tuple[Any, Any]:
        """The store's method for a transaction of the user's, and the psycopg connection for it."""
        store = self._app.open_store()
        found = getattr(store, verb, None)
        if found is None:
            raise UsageError(
                "connection= is for apps whose store is PostgreSQL: "
                f"that of {quote(self._app.name)} is a {type(store).__name__}"
            )
        connection = _psycopg_of(given)
        is_async = inspect.iscoroutinefunction(connection.commit)
        if is_async != (verb == "aput_in"):
            kind = "an async connection, which is for apush" if is_async else "no async connection: use push"
            raise UsageError(f"connection= is {kind}")
        return found, connection


def _psycopg_of(given: Any) -> Any:
    """The psycopg connection behind what was given: itself, or what SQLAlchemy or Django wraps."""
    from psycopg import AsyncConnection, Connection

    if hasattr(given, "ensure_connection"):  # Django connects late
        given.ensure_connection()
    elif hasattr(given, "exec_driver_sql") and not given.in_transaction():
        given.exec_driver_sql("SELECT 1")  # so that SQLAlchemy knows of the transaction, and commits it
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
    """Once more where the store did not answer: if it has them already, they are ours, for nobody else makes
    such keys.  Of a unique one nobody could tell whose it is."""
    try:
        return store.put(fires, delay_s)
    except StoreUnavailable:
        if fires[0].policy.unique_s:
            raise
        store.put(fires, delay_s)
        return [True] * len(fires)
