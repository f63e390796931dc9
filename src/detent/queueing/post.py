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
from detent.core.messages import Stamp, Task, messages
from detent.core.secrets import Secret
from detent.core.text import quote
from detent.errors import StoreUnavailable, UsageError
from detent.model import Fire
from detent.queueing.handles import Handle
from detent.queueing.options import Pushed
from detent.queueing.tokens import TOKENS
from detent.stores.base import Store
from detent.stores.memory import MemoryStore

if TYPE_CHECKING:
    from detent.app import Detent

AGAIN_S = 60.0
PUT_MAX = 2_000  # messages with one call of the store, which does nothing else meanwhile


class Post:
    """That of one app."""

    def __init__(self, app: Detent) -> None:
        self._app = app
        self._asked_at, self._ahead_s = float("-inf"), 0.0  # the store's wall clock less our monotonic one
        self._resolved_at, self._secrets = float("-inf"), tuple[Secret, ...]()

    def push(self, task: Task, texts: Sequence[str], pushed: Pushed) -> list[Handle[Any]]:
        """`texts` are the arguments of each message, in JSON."""
        store, (fires, delay_s) = self._app.open_store(), self._sealed(task, texts, pushed)
        if pushed.connection is not None:
            fresh = self._put_in(pushed.connection, "put_in")(pushed.connection, fires, delay_s)
        else:
            parts = [fires[i : i + PUT_MAX] for i in range(0, len(fires), PUT_MAX)]
            fresh = [one for part in parts for one in _put(store, part, delay_s)]
        return self._handles(task, fires, fresh)

    async def apush(self, task: Task, texts: Sequence[str], pushed: Pushed) -> list[Handle[Any]]:
        if pushed.connection is None:
            return await asyncio.to_thread(self.push, task, texts, pushed)
        put_in = self._put_in(pushed.connection, "aput_in")
        fires, delay_s = await asyncio.to_thread(self._sealed, task, texts, pushed)
        return self._handles(task, fires, await put_in(pushed.connection, fires, delay_s))

    def now(self) -> datetime:
        """By the store's clock, reckoned."""
        if isinstance(self._app.open_store(), MemoryStore):  # its clock may be a fake one
            return self.asked_now()
        if clock.monotonic() - self._asked_at > AGAIN_S:
            looks = [self._look(), self._look()]  # the first may have had to connect
            _, self._ahead_s = min(looks)
            self._asked_at = clock.monotonic()
        return clock.instant(clock.monotonic() + self._ahead_s)

    def asked_now(self) -> datetime:
        """By the store's clock, for whoever compares it with what the store says."""
        return self._app.open_store().advance(self._app.name, ()).now

    def _look(self) -> tuple[float, float]:
        """How long it took to ask, and how far the store's clock is ahead of our monotonic one."""
        before = clock.monotonic()
        told, after = self.asked_now().timestamp(), clock.monotonic()
        return after - before, told - (before + after) / 2

    def secrets(self) -> tuple[Secret, ...]:
        if clock.monotonic() - self._resolved_at > AGAIN_S:
            self._resolved_at, self._secrets = clock.monotonic(), self._app.signing()
        return self._secrets

    def _sealed(self, task: Task, texts: Sequence[str], pushed: Pushed) -> tuple[list[Fire], float]:
        now, wish = self.now(), pushed.wish
        if pushed.at is not None:
            wish = wish._replace(delay_s=max(0.0, (pushed.at - now).total_seconds()))
        letters = zip(TOKENS.take(len(texts), now), texts, strict=True)
        stamp = Stamp(self._app.name, now, "")
        return messages(task, letters, wish, stamp, self.secrets()), wish.delay_s

    def _handles(self, task: Task, fires: Sequence[Fire], fresh: Sequence[bool]) -> list[Handle[Any]]:
        keeps = not task.policy.drop_result
        return [Handle(self._app, fire.key, new, keeps) for fire, new in zip(fires, fresh, strict=True)]

    def _put_in(self, connection: Any, verb: str) -> Any:
        store = self._app.open_store()
        found = getattr(store, verb, None)
        if found is None:
            raise UsageError(
                "connection= is for apps whose store is PostgreSQL: "
                f"that of {quote(self._app.name)} is a {type(store).__name__}"
            )
        is_async = inspect.iscoroutinefunction(getattr(connection, "commit", None))
        if is_async != (verb == "aput_in"):
            kind = "an async connection, which is for apush" if is_async else "no async connection: use push"
            raise UsageError(f"connection= is {kind}")
        return found


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
