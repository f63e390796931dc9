"""`Detent`: an app in code.  Its jobs are functions; all else is as from a manifest.

The same app can be run by `detent run -f module:app`, by `app.run()`, or within a web process by
`app.start()` or `app.lifespan`; many of these at once are one fleet.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, overload

from detent.app.declarations import MAIN, Declared, JobOptions, declare, location_of, with_locations
from detent.errors import DetentError, UsageError
from detent.loading.config import EMPTY_STORE, check_source, load_machine, store_options, store_url
from detent.loading.foreign import Source
from detent.manifest.check import Manifest
from detent.runners.call.store import NodeStore, current_store
from detent.stores.base import Store
from detent.stores.registry import open_store
from detent.text import did_you_mean, quote

if TYPE_CHECKING:
    from detent.app.dry_run import FakeClock, Fired
    from detent.app.embedding import Embedding
    from detent.app.locks import Lock
    from detent.app.queue.breakers import Breaker
    from detent.app.queue.drain import Drained
    from detent.app.queue.manual_claims import ManualClaims
    from detent.app.queue.options import TaskOptions
    from detent.app.queue.queues import Queue
    from detent.app.queue.sending import Sender
    from detent.app.queue.tasks import Declare, TaskFunction
    from detent.manifest.secret_refs import Secret
    from detent.messages.ad_hoc import Allowed
    from detent.messages.masking import Mask
    from detent.messages.message import Task
    from detent.worker.inbox import Inbox

MEMORY = "memory:"
VERSION = 2
_P = ParamSpec("_P")
_R = TypeVar("_R")
_F = TypeVar("_F", bound=Callable[..., Any])
_NOTHING: Mapping[str, Any] = {}


class Detent:
    """An app: its name, its store and its jobs."""

    def __init__(
        self,
        name: str,
        *,
        store: str | Mapping[str, Any] | Store | None = None,
        node: Mapping[str, Any] = _NOTHING,
        defaults: Mapping[str, Any] = _NOTHING,
        secrets: Mapping[str, str] = _NOTHING,
        signing: str | Sequence[str] = (),
        clock: FakeClock | None = None,
    ) -> None:
        """All is as in a manifest; `store` may also be one that is open.  `signing` names the secrets of its
        messages: the first one signs, each of them is believed.  `clock` is for tests: it is moved by
        `fire_due`."""
        self.name = name
        self._where = location_of(sys._getframe(1))
        if isinstance(store, str) and not store.strip():
            raise UsageError(f"{self._where}: store {EMPTY_STORE}")
        self._given_store = _store_of(store)
        settings = {"store": store if self._given_store is None else None, "node": node}
        settings |= {"defaults": defaults, "secrets": secrets}
        self._settings = {field: _plain(value) for field, value in settings.items() if value}
        self._signing = (signing,) if isinstance(signing, str) else tuple(signing)
        self._jobs: list[Declared] = []
        self.changes = 0  # of its tasks, and of what its queues allow
        self._allowed: dict[str, Allowed] = {}
        self._tasks: dict[str, TaskFunction[..., Any, Any]] = {}
        self._opened: dict[int, Store] = {}  # by process: a fork must not use, nor close, what it inherits
        self._clock = clock

    def __repr__(self) -> str:
        return f"Detent({self.name!r}, jobs={[one.document['name'] for one in self._jobs]})"

    # Declaring.

    def job(self, *schedules: str, **options: Unpack[JobOptions]) -> Callable[[_F], _F]:
        """A decorator: the function below, sync or async, is this job.  It stays as it is."""
        where = location_of(sys._getframe(1))

        def declared(function: _F) -> _F:
            made = declare(self.name, function, schedules, options, where)
            if "enqueue" in made.document and self._signing:
                made.document.setdefault("auth", {"secret_refs": [*self._signing]})
            self._jobs.append(made)
            return function

        return declared

    @property
    def declared(self) -> Sequence[Declared]:
        """Its jobs, as their decorators have them."""
        return self._jobs

    def source(self) -> Source:
        """The jobs as a document, before it is checked."""
        jobs = [one.document for one in self._jobs]
        document = {"version": VERSION, "app": self.name, **self._settings, "jobs": jobs}
        lines = {f"jobs/{i}": one.where.line for i, one in enumerate(self._jobs)}
        least = 0 if self._tasks or self._allowed else 1
        return Source(
            document, lines, (), lambda error: with_locations(error, self._where, self._jobs), least
        )

    def manifest(self, env: Mapping[str, str] | None = None) -> Manifest:
        """The jobs, checked as those of a file are."""
        env = environment() if env is None else env
        return check_source(self.source(), self.name, env, load_machine(env))

    # Running.

    def run(self, *, queues: Sequence[str] = ()) -> None:
        """A node for its jobs and tasks, until a signal ends it; as `detent run -f module:app`.  It serves
        these queues or, where none is named, the default one and those of its tasks."""
        from detent.app.daemon import DaemonOptions, run, style_of, with_tasks

        env = _env_of_children()
        try:
            options = DaemonOptions(self.name, self._load_once(env), env, queues=tuple(queues))
            code = run(with_tasks(options, self), style_of("", env))
        except DetentError as error:
            raise SystemExit(f"detent: {error}") from None
        if code:
            raise SystemExit(code)

    def _load_once(self, env: Mapping[str, str]) -> Callable[[], Manifest]:
        from detent.loading.sources import single_use

        return single_use(self.manifest(env), self.name)

    def start(self, *, queues: Sequence[str] = ()) -> None:
        """Run a node within this process, and return at once.  It runs the jobs of the default queue or, with
        `queues`, the jobs and the messages of those queues.  If this process forks right after, as servers
        do that load an app first, its children start the node instead."""
        self._embedding.start(tuple(queues))

    def stop(self) -> None:
        """End what `start` began: what runs may end, for as long as `drain_seconds` says."""
        if "_embedding" in vars(self):
            self._embedding.stop()

    @asynccontextmanager
    async def lifespan(self, server: object = None, *, queues: Sequence[str] = ()) -> AsyncIterator[None]:
        """For ASGI apps: `FastAPI(lifespan=app.lifespan)`, or within a lifespan of your own.  `queues` is as
        for `start`."""
        import asyncio

        self._embedding.start(tuple(queues), at_once=True)
        try:
            yield
        finally:
            await asyncio.to_thread(self.stop)

    @cached_property
    def _embedding(self) -> Embedding:
        from detent.app.embedding import Embedding

        return Embedding(self)

    # Locking.

    def lock(
        self,
        name: str,
        *,
        timeout: float | None = None,
        ttl_seconds: float = 30.0,
        on_loss: Callable[[], object] | None = None,
    ) -> Lock:
        """`with app.lock("name") as held:`, or `async with`: nobody else of the app is in there meanwhile.
        It waits for `timeout` seconds; None: for as long as it takes."""
        from detent.app.locks import Lock, LockOptions

        return Lock(self, name, LockOptions(ttl_seconds, timeout, on_loss))

    # Tasks and their queues.

    @overload
    def task(
        self, function: Callable[_P, Coroutine[Any, Any, _R]], /
    ) -> TaskFunction[_P, Coroutine[Any, Any, _R], _R]: ...

    @overload
    def task(self, function: Callable[_P, _R], /) -> TaskFunction[_P, _R, _R]: ...

    @overload
    def task(self, **options: Unpack[TaskOptions]) -> Declare: ...

    def task(self, function: Any = None, /, **options: Any) -> Any:  # type: ignore[misc]  # it does, by name
        """A decorator: the function below, sync or async, can be asked for by messages: `function.push(…)`.
        Called, it is the function."""
        from detent.app.queue.tasks import declare_task

        where = location_of(sys._getframe(1))

        def declared(function: Any) -> Any:
            made = declare_task(self, function, options, where)
            if before := self._tasks.get(made.name):
                raise UsageError(f"{where}: there is a task {quote(made.name)} already, at {before.where}")
            self._tasks[made.name], self.changes = made, self.changes + 1
            return made

        return declared if function is None else declared(function)

    def tasks(self) -> Mapping[str, Task]:
        """Its tasks, as a worker needs them."""
        return {name: one.task for name, one in self._tasks.items()}

    def allow(
        self, queue: str, *, command: bool = False, call: Sequence[str] = (), request: Sequence[str] = ()
    ) -> None:
        """Let messages of this queue describe their work themselves: commands, functions whose names fit
        these patterns (`reports.*:build_*`), requests to these hosts (`*`: all public ones)."""
        from detent.app.queue.ad_hoc import allowed_of

        self._allowed[queue] = allowed_of(command, call, request, str(location_of(sys._getframe(1))))
        self.changes += 1

    def allowed(self) -> Mapping[str, Allowed]:
        """What its queues allow, as a worker needs it."""
        return self._allowed

    @property
    def declared_tasks(self) -> Sequence[TaskFunction[..., Any, Any]]:
        """Its tasks, as their decorators have them."""
        return [*self._tasks.values()]

    def inbox(self, tasks: Mapping[str, Task] | None = None) -> Inbox:
        """Where its messages are opened, for these tasks (None: all of its own).  What is older than history
        is kept is not believed any more."""
        from detent.worker.inbox import Inbox

        max_age_s = self._settings_manifest().node.keep_days * 86_400.0
        tasks = self.tasks() if tasks is None else tasks
        return Inbox(tasks, self.signing(), dict(self._allowed), max_age_s)

    def task_named(self, name: str) -> TaskFunction[..., Any, Any]:
        """The task of this name."""
        if name not in self._tasks:
            near = did_you_mean(name, self._tasks)
            raise UsageError(f"{self.name} has no task {quote(name)}{near or f'; it has {[*self._tasks]}'}")
        return self._tasks[name]

    def signing(self) -> tuple[Secret, ...]:
        """The secrets of its messages; none: they are not signed."""
        from detent.runners.secrets import resolve

        found = resolve(self._signing, self._settings.get("secrets", {}), os.environ)
        if self._signing and not found.secrets:
            raise UsageError(f"{self._where}: no secret to sign messages with: {'; '.join(found.warnings)}")
        for warning in found.warnings:
            logging.getLogger("detent").warning("%s: %s", self.name, warning)
        return found.secrets

    def queue(self, name: str) -> Queue:
        """The queue of this name: its rate, what is on it, its dead letters."""
        from detent.app.queue.queues import Queue

        return Queue(self, name)

    def breaker(self, name: str) -> Breaker:
        """The circuit breaker of this name."""
        from detent.app.queue.breakers import Breaker

        return Breaker(self, name)

    def throttle(self, name: str, most: int, *, per: float = 60.0, smooth: bool = False) -> None:
        """Count one more under this name; raises `RateLimited` where in `per` seconds there were `most`."""
        from detent.app.queue import rates

        rates.throttle(self, name, rates.rate_of(name, most=most, per=per, smooth=smooth))

    @cached_property
    def sender(self) -> Sender:
        """The way of its messages into its store."""
        from detent.app.queue.sending import Sender

        return Sender(self)

    @cached_property
    def mask(self) -> Mask:
        """What is to be left out of all that is kept: its secrets, and the password of its store."""
        from detent.messages.masking import Mask
        from detent.observe.secrecy import secrets_of

        return Mask([*secrets_of(self._settings_manifest(), environment()), *self.sender.secrets()])

    @cached_property
    def claims(self) -> ManualClaims:
        """What this process claims of its messages by hand."""
        from detent.app.queue.manual_claims import ManualClaims

        return ManualClaims(self)

    # Testing.

    def drain(self) -> list[Drained]:
        """Run here and now what is due on its queues, and what follows from it; how each attempt ended."""
        from detent.app.queue.drain import drain

        return drain(self)

    def fire_due(self, at: str | datetime, *, since: str | datetime | None = None) -> list[Fired]:
        """Run here and now what would fire at this instant, or after `since` and until then; how each ended.
        No store of yours is touched, and nothing is waited for: a retry follows at once."""
        from detent.app.dry_run import DryRun, with_task_call

        manifest, tasks = self.manifest(), self.tasks()
        jobs = tuple(with_task_call(job, tasks) for job in manifest.jobs)
        return DryRun(manifest._replace(jobs=jobs), self._clock).fire_due(at, since)

    # The store.

    def open_store(self) -> Store:
        """This process' own."""
        if self._given_store is not None and self._node_store() is None:
            return self._given_store
        pid = os.getpid()
        if pid not in self._opened:
            self._opened.setdefault(pid, self.new_store()[0])  # of threads that open it at once, one wins
        return self._opened[pid]

    def new_store(self) -> tuple[Store, str]:
        """Another one, for whoever closes it; and its URL."""
        if node := self._node_store():
            return open_store(node.url, **node.options), node.url
        if self._given_store is not None:
            return self._given_store, MEMORY
        env, settings = environment(), self._settings_manifest()
        url = store_url(settings, None, env)
        return open_store(url, **store_options(settings, env)), url

    def _node_store(self) -> NodeStore | None:
        """In a process that runs its calls, the store of their node, wherever that was named."""
        node = current_store()
        if node is None or node.app != self.name:
            return None
        if node.url == MEMORY:
            raise UsageError(
                f"{self.name}: the store of the node is in its memory, where calls cannot reach it; "
                "give the node another one, like sqlite:///PATH"
            )
        if not node.url:
            raise UsageError(
                f"{self.name}: a call with `user` does not get the store of its node; name the store in the "
                f"app, as in Detent({self.name!r}, store=…), or leave `user` out"
            )
        return node

    def _settings_manifest(self) -> Manifest:
        """What is said besides jobs: an app may have none."""
        stand_in = {"name": "none", "at": "2020-01-01T00:00Z", "call": "none:none"}
        source = self.source()
        return check_source(
            source._replace(document={**source.document, "jobs": [stand_in]}, lines={}),
            self.name,
            environment(),
            load_machine(environment()),
        )


def _store_of(store: object) -> Store | None:
    """The store, where it is open; one in memory is one for all of an app."""
    if store == MEMORY:
        return open_store(MEMORY)
    return None if store is None or isinstance(store, str | Mapping) else store  # type: ignore[return-value]


def environment() -> Mapping[str, str]:
    """Our variables and, in a process that runs calls, those that say where its node finds the store."""
    node = current_store()
    return {**os.environ, **node.env} if node else os.environ


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _env_of_children() -> dict[str, str]:
    """They import the program that runs as we do: from its folder."""
    env, file = dict(os.environ), getattr(sys.modules[MAIN], "__file__", None)
    folder = str(Path(file).resolve().parent) if file and not sys.modules[MAIN].__spec__ else ""
    path = [part for part in (folder, env.get("PYTHONPATH", "")) if part]
    return {**env, "PYTHONPATH": os.pathsep.join(path)} if path else env
