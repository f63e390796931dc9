"""Locks for an app's critical sections: `with app.lock("name") as held:`, or `async with`.

1. A lock is a fire.  The caller puts it with a unique key on a queue of its own, in the lane of the lock's
   name, which is one fire wide, and claims it as soon as the lane is free.
2. A thread renews the claim while the lock is held.  If the holder dies, the lock is free when the claim
   expires, at most `ttl_seconds` later.  A holder that cannot renew it learns so before another can have it.
3. The fence grows with every claim of the app, so storage can refuse writes with an older fence.
4. A waiting caller renews nothing: it replaces its fire before `start_by`.  Later callers settle the fires
   that dead processes left behind.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import os
import re
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from detent import clock
from detent.clock import StoreClock
from detent.errors import DetentError, StoreUnavailable, UsageError
from detent.model import Ask, Claim, End, Fire, Grants, Outcome, Policy, Query, Verdict
from detent.node.claim_session import ClaimSession, RenewalThread
from detent.rules.planning import run_id
from detent.rules.settling import report
from detent.rules.trust import CLAIM_MIN_S, trusted_by
from detent.runners.call.function import failure_of
from detent.runners.call.spec import SUCCEEDED, outcome_of
from detent.runners.lifeline import Lifeline
from detent.stores.base import Store
from detent.text import quote
from detent.warden.instances import instance_name

if TYPE_CHECKING:
    from detent.app.app import Detent

TTL_MAX_S = 86_400.0
GOOD_S, SPARE_S = 60.0, 5.0  # a waiting fire is valid this long, and is replaced this long before
LOOK_S = 0.5  # a wake-up can be lost: the longest time between two asks
RELEASE_S = 5.0  # how long a release is retried while the store is away
TIDY_EVERY, TIDY_MAX = 100, 50  # acquisitions between two searches for left fires, and rows of one search
ALLOWED = "letters, digits and _ . : -, a letter or digit first, 100 characters at most"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}")

T = TypeVar("T")
log = logging.getLogger("detent")


class LockTimeout(DetentError, TimeoutError):
    """The lock stayed held by another holder until the timeout."""


class LockLost(DetentError):
    """The lock could not be renewed in time: another holder may have it now."""


class LockOptions(NamedTuple):
    ttl_s: float
    timeout_s: float | None
    on_loss: Callable[[], object] | None


class HeldLock(Lifeline):
    """A lock that this process holds."""

    def __init__(self, name: str, claim: Claim, sent: float, on_loss: Callable[[], object]) -> None:
        super().__init__(trusted_by(sent, claim.ttl_s))
        self.name, self.fence = name, claim.fence
        self._on_loss, self._over = on_loss, threading.Event()
        threading.Thread(target=self._watch, name=f"detent-lock-{name}", daemon=True).start()

    @property
    def is_lost(self) -> bool:
        """True if another process may have had the lock since it was acquired."""
        return self.ended(clock.boottime()) is not None

    def check(self) -> None:
        """Raise `LockLost` if it is lost.  Call this before work that must not be done twice."""
        if self.is_lost:
            raise LockLost(f"the lock {quote(self.name)} could not be kept: another holder may have it")

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None:
        """End the trust at once: the store says that the claim is no longer valid."""
        super().stop(why, kill_after_s)
        self._over.set()

    def end(self) -> None:
        self._over.set()

    def _watch(self) -> None:
        """Call `on_loss` when trust ends.  This thread never calls the store, which may be away."""
        while not self._over.wait(max(0.0, self.trusted_by - clock.boottime())) and not self.is_lost:
            pass
        if self.is_lost:
            self._on_loss()


class Lock:
    """Returned by `Detent.lock`.  It can be entered again only after it was left."""

    def __init__(self, app: Detent, name: str, options: LockOptions) -> None:
        if not _NAME.fullmatch(name):
            raise UsageError(f"bad lock {quote(name)}: allowed are {ALLOWED}")
        if not CLAIM_MIN_S <= options.ttl_s <= TTL_MAX_S:
            raise UsageError(
                f"bad ttl_seconds {options.ttl_s:g} of the lock {quote(name)}: allowed are"
                f" {CLAIM_MIN_S:g} to {TTL_MAX_S:,.0f}"
            )
        self._app, self._name, self._options = app, name, options
        self._acquired: _Acquired | None = None

    def __enter__(self) -> HeldLock:
        self._refuse_twice()
        self._acquired = _enter(self._app, self._name, self._options, _Waiter())
        return self._acquired.held

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        acquired, self._acquired = self._acquired, None
        assert acquired is not None
        acquired.leave(error)
        if error is None:
            acquired.held.check()

    async def __aenter__(self) -> HeldLock:
        self._refuse_twice()
        waiter = _Waiter(asyncio.get_running_loop())
        entering = in_thread(partial(_enter, self._app, self._name, self._options, waiter))
        try:
            self._acquired = await asyncio.shield(entering)
        except asyncio.CancelledError:
            waiter.given_up.set()
            entering.add_done_callback(_leave_at_once)
            raise
        return self._acquired.held

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.shield(in_thread(partial(self.__exit__, kind, error, trace)))

    def _refuse_twice(self) -> None:
        if self._acquired:
            advice = "call app.lock() for each `with`"
            raise UsageError(f"the lock {quote(self._name)} is acquired already: {advice}")


def in_thread(call: Callable[[], T]) -> asyncio.Future[T]:
    """Run it in a new thread: an executor has few threads, and all of them could wait for the same lock."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(set_it: Callable[[], None]) -> None:
        if not future.done():
            set_it()

    def run() -> None:
        try:
            done = partial(future.set_result, call())
        except BaseException as error:
            done = partial(future.set_exception, error)
        with suppress(RuntimeError):  # the loop is closed: nothing waits for the result
            loop.call_soon_threadsafe(settle, done)

    threading.Thread(target=run, name="detent-lock", daemon=True).start()
    return future


def _leave_at_once(entering: asyncio.Future[_Acquired]) -> None:
    """Release a lock whose caller was cancelled."""
    if not entering.cancelled() and entering.exception() is None:
        threading.Thread(target=entering.result().leave, name="detent-lock", daemon=True).start()


class _Waiter:
    """A caller that waits for a lock, on a loop or in a thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop, self.given_up = loop, threading.Event()

    def report_loss(self, on_loss: Callable[[], object] | None) -> None:
        if on_loss and self._loop:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(_call, on_loss)
        elif on_loss:
            _call(on_loss)


_TASKS: set[asyncio.Future[object]] = set()  # a loop keeps only weak references to its tasks


def _call(on_loss: Callable[[], object]) -> None:
    try:
        made = on_loss()
        if inspect.isawaitable(made):
            task = asyncio.ensure_future(made)
            _TASKS.add(task)
            task.add_done_callback(_TASKS.discard)
    except Exception:
        log.exception("the on_loss of a lock failed")


class _Acquired:
    def __init__(self, session: ClaimSession, claim: Claim, held: HeldLock) -> None:
        self._session, self._claim, self.held = session, claim, held
        self._pid, self._began = os.getpid(), clock.monotonic()
        self._renewal = RenewalThread(session.store, claim, held)

    def leave(self, error: BaseException | None = None) -> None:
        if os.getpid() != self._pid:
            return  # in a forked child: the lock belongs to the parent
        self._renewal.close()
        self.held.end()
        outcome = outcome_of(*failure_of(error)) if error else SUCCEEDED
        took_s = clock.monotonic() - self._began
        end = report(self._claim, Verdict(outcome), End(outcome, took_s=took_s), self._claim.expires_at)
        try:
            self._session.finish(end, min(self.held.trusted_by, clock.boottime() + RELEASE_S))
        except StoreUnavailable as away:
            name, ttl_s = self.held.name, self._claim.ttl_s
            log.warning("the lock %s was not released, and is free in %g s: %s", name, ttl_s, away)


def _enter(app: Detent, name: str, options: LockOptions, waiter: _Waiter) -> _Acquired:
    client = _client_of(app)
    granted = client.wait(name, options, waiter.given_up)
    if granted is None:
        waited = f"timed out after {options.timeout_s or 0:g} s"
        raise LockTimeout(f"the lock {quote(name)} of {app.name} is held by another caller: {waited}")
    claim, sent = granted
    held = HeldLock(name, claim, sent, partial(waiter.report_loss, options.on_loss))
    return _Acquired(client.session, claim, held)


class _LockClient:
    """Claims the locks of one app for this process."""

    def __init__(self, app: str, store: Store) -> None:
        self.store, self._app, self._waits = store, app, 0
        ask = Ask(app, instance_name(socket.gethostname(), "lock"), number=0, hooks=0)
        self.session = ClaimSession(store, ask, StoreClock())

    def wait(self, name: str, options: LockOptions, given_up: threading.Event) -> tuple[Claim, float] | None:
        """Return the claim and when it was requested; None after the timeout or a cancellation."""
        until = math.inf if options.timeout_s is None else clock.boottime() + options.timeout_s
        fire, good_until = self._put(name, options.ttl_s)
        self._waits += 1
        left_by_others = self._left_by_others(fire) if self._waits % TIDY_EVERY == 1 else ()
        while True:
            ask = self.session.ask._replace(queues=(fire.queue, *left_by_others))
            grants, sent, _ = self.session.claim(ask)
            own = self._settle(grants, fire)
            if own and not own.disposition:
                return own, sent
            if own or clock.boottime() >= good_until:
                self.store.cancel(fire.key, "replaced by a newer request for the lock")
                fire, good_until = self._put(name, options.ttl_s)
            if own and own.disposition and own.disposition.kind == "missed":
                continue  # the store's clock was set; the new fire uses the new time
            left_s = until - clock.boottime()
            if left_s <= 0 or given_up.is_set():
                self.store.cancel(fire.key, "the caller stopped waiting for the lock")
                return None
            left_by_others = left_by_others or self._left_by_others(fire)
            self.store.wait(self._app, min(left_s, LOOK_S))

    def _put(self, name: str, ttl_s: float) -> tuple[Fire, float]:
        """Put a new fire; return it, and until when it may wait."""
        if self.session.clock.age_s > GOOD_S:
            self.session.clock.learn(self.store.look(self._app).now)
        good_until = clock.boottime() + GOOD_S - SPARE_S
        now, token = self.session.clock.now(), secrets.token_hex(8)
        job = f"{self._app}.lock-{name}"
        key = f"{job}#{token}"
        fire = Fire(
            key=key,
            job=job,
            due_at=now,
            run_id=run_id(now, key),
            queue=f"lock/{token}",
            lane=job,
            start_by=now + timedelta(seconds=GOOD_S),
            policy=Policy(concurrency="Queue", claim_s=ttl_s),
            origin="push",
        )
        self.store.put([fire])
        return fire, good_until

    def _settle(self, grants: Grants, fire: Fire) -> Claim | None:
        """Settle what must not run as its disposition says; return the claim of our own fire."""
        for claim in grants.claims:
            if claim.disposition:
                verdict, end = Verdict(claim.disposition), End(claim.disposition)
                self.store.finish([report(claim, verdict, end, grants.now)])
        return next((claim for claim in grants.claims if claim.fire.key == fire.key), None)

    def _left_by_others(self, fire: Fire) -> tuple[str, ...]:
        """The queues of the lock's other fires that may only need to be settled: claimed ones, which are
        granted only if expired, and waiting ones past their `start_by`."""
        claimed = self.store.find(Query(job=fire.job, state="claimed", limit=TIDY_MAX))
        pending = self.store.find(Query(job=fire.job, state="pending", limit=TIDY_MAX))
        late = [row for row in pending if row.fire.start_by and row.fire.start_by < fire.due_at]
        return tuple(row.fire.queue for row in (*claimed, *late) if row.fire.key != fire.key)


_CLIENTS: dict[tuple[int, str, int], _LockClient] = {}


def _client_of(app: Detent) -> _LockClient:
    key = (os.getpid(), app.name, id(store := app.open_store()))
    return _CLIENTS.setdefault(key, _LockClient(app.name, store))
