"""`Detent`: an app whose jobs are Python functions.

`detent run -f module:app` and `app.run()` run it as a process of its own; `app.start()` and `app.lifespan`
run it within a web process.  All of these processes together are one fleet.
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

from detent.app.declarations import MAIN, Declared, JobOptions, declare, location_of, plain, with_locations
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
    from detent.app.queue.deliveries import ManualClaims
    from detent.app.queue.drain import Drained
    from detent.app.queue.limits import Breaker
    from detent.app.queue.options import TaskOptions
    from detent.app.queue.queues import Queue
    from detent.app.queue.sending import Sender
    from detent.app.queue.tasks import Declare, TaskFunction
    from detent.manifest.secret_refs import Secret
    from detent.messages.ad_hoc import Allowed
    from detent.messages.masking import Mask
    from detent.messages.message import Task
    from detent.observe.listeners import Listener
    from detent.worker.inbox import Inbox

MEMORY = "memory:"
VERSION = 2
_P = ParamSpec("_P")
_R = TypeVar("_R")
_F = TypeVar("_F", bound=Callable[..., Any])
_NOTHING: Mapping[str, Any] = {}


class Detent:
    """An app: its name, its store, its jobs and its tasks."""

    def __init__(
        self,
        name: str,
        *,
        store: str | Mapping[str, Any] | Store | None = None,
        node: Mapping[str, Any] = _NOTHING,
        defaults: Mapping[str, Any] = _NOTHING,
        secrets: Mapping[str, str] = _NOTHING,
        signing: str | Sequence[str] = (),
        dashboard_url: str = "",
        clock: FakeClock | None = None,
    ) -> None:
        """The arguments are the fields of a manifest; `store` may also be an open store.  `signing` names the
        secrets of messages: the first one signs, and signatures by any of them are valid.  `clock` is for
        tests; `fire_due` advances it."""
        self.name = name
        self._where = location_of(sys._getframe(1))
        if isinstance(store, str) and not store.strip():
            raise UsageError(f"{self._where}: store {EMPTY_STORE}")
        self._given_store = _store_of(store)
        settings = {"store": store if self._given_store is None else None, "node": node}
        settings |= {"defaults": defaults, "secrets": secrets, "dashboard_url": dashboard_url}
        self._settings = {field: plain(value) for field, value in settings.items() if value}
        self._signing = (signing,) if isinstance(signing, str) else tuple(signing)
        self.declared: list[Declared] = []
        self.listeners: list[Listener] = []
        self.changes = 0  # counts changes of its tasks and of what its queues allow
        self._allowed: dict[str, Allowed] = {}
        self.task_functions: dict[str, TaskFunction[..., Any, Any]] = {}
        self._opened: dict[int, Store] = {}  # by process id: a forked child must not use its parent's store
        self._clock = clock

    def __repr__(self) -> str:
        return f"Detent({self.name!r}, jobs={[one.document['name'] for one in self.declared]})"

    # Declaring.

    def job(self, *schedules: str, **options: Unpack[JobOptions]) -> Callable[[_F], _F]:
        """Declare the decorated function, sync or async, as a job.  The function itself is unchanged."""
        where = location_of(sys._getframe(1))

        def declared(function: _F) -> _F:
            made = declare(self.name, function, schedules, options, where)
            if "enqueue" in made.document and self._signing:
                made.document.setdefault("auth", {"secret_refs": [*self._signing]})
            self.declared.append(made)
            return function

        return declared

    def on(self, *names: str) -> Callable[[_F], _F]:
        """Call the decorated function with each event of these names, or each end of a fire with one of these
        outcomes.  It gets the fields of the log line as a mapping.  It runs in a thread of its own, in each
        process that runs a node of the app."""
        from detent.app.declarations import checked_listener

        where = location_of(sys._getframe(1))

        def listening(function: _F) -> _F:
            self.listeners.append(checked_listener(function, names, where))
            return function

        return listening

    def source(self) -> Source:
        """The manifest of the app, before it is checked."""
        jobs = [one.document for one in self.declared]
        document = {"version": VERSION, "app": self.name, **self._settings, "jobs": jobs}
        lines = {f"jobs/{i}": one.where.line for i, one in enumerate(self.declared)}
        least = 0 if self.task_functions or self._allowed else 1
        return Source(
            document, lines, (), lambda error: with_locations(error, self._where, self.declared), least
        )

    def manifest(self, env: Mapping[str, str] | None = None) -> Manifest:
        """The manifest of the app, checked like a file."""
        env = environment() if env is None else env
        return check_source(self.source(), self.name, env, load_machine(env))

    # Running.

    def run(self, *, queues: Sequence[str] = ()) -> None:
        """Run a node until a signal ends it, like `detent run -f module:app`.  It serves these queues or, by
        default, the queue `default` and the queues of the app's tasks."""
        from detent.app.daemon import DaemonOptions, run, style_of, with_tasks
        from detent.loading.sources import single_use

        env = _env_of_children()
        try:
            options = DaemonOptions(
                self.name, single_use(self.manifest(env), self.name), env, queues=tuple(queues)
            )
            code = run(with_tasks(options, self), style_of("", env))
        except DetentError as error:
            raise SystemExit(f"detent: {error}") from None
        if code:
            raise SystemExit(code)

    def start(self, *, queues: Sequence[str] = ()) -> None:
        """Start a node within this process and return at once.  It runs the jobs of the queue `default` or,
        with `queues`, the jobs and messages of those queues.  If the process forks soon after, as servers do
        that preload an app, the children start the node instead."""
        self._embedding.start(tuple(queues))

    def stop(self) -> None:
        """Stop the node that `start` started; running work has `drain_seconds` to finish."""
        if "_embedding" in vars(self):
            self._embedding.stop()

    @asynccontextmanager
    async def lifespan(self, server: object = None, *, queues: Sequence[str] = ()) -> AsyncIterator[None]:
        """Start and stop a node with an ASGI app: `FastAPI(lifespan=app.lifespan)`, or within your own
        lifespan.  `queues` is the same as for `start`."""
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
        """A lock shared by all processes of the app: `with app.lock("name") as held:`, or `async with`.
        `timeout` is in seconds; None: no limit."""
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
        """Declare the decorated function, sync or async, as a task: `function.push(…)` sends a message that
        runs it.  A call still calls the function."""
        from detent.app.queue.tasks import declare_task

        where = location_of(sys._getframe(1))

        def declared(function: Any) -> Any:
            made = declare_task(self, function, options, where)
            if before := self.task_functions.get(made.name):
                raise UsageError(f"{where}: the task {quote(made.name)} exists already, at {before.where}")
            self.task_functions[made.name], self.changes = made, self.changes + 1
            return made

        return declared if function is None else declared(function)

    def tasks(self) -> Mapping[str, Task]:
        return {name: one.task for name, one in self.task_functions.items()}

    def allow(
        self, queue: str, *, command: bool = False, call: Sequence[str] = (), request: Sequence[str] = ()
    ) -> None:
        """Allow ad hoc messages on this queue: commands, functions that match these patterns
        (`reports.*:build_*`), requests to these hosts (`*`: all public hosts)."""
        from detent.app.queue.ad_hoc import allowed_of

        self._allowed[queue] = allowed_of(command, call, request, str(location_of(sys._getframe(1))))
        self.changes += 1

    def allowed(self) -> Mapping[str, Allowed]:
        return self._allowed

    def inbox(self, tasks: Mapping[str, Task] | None = None) -> Inbox:
        """An inbox that verifies messages of these tasks (None: all tasks of the app).  It refuses messages
        that are older than the history is kept."""
        from detent.worker.inbox import Inbox

        max_age_s = self._settings_manifest().node.keep_days * 86_400.0
        tasks = self.tasks() if tasks is None else tasks
        return Inbox(tasks, self.signing(), dict(self._allowed), max_age_s)

    def task_named(self, name: str) -> TaskFunction[..., Any, Any]:
        if name not in self.task_functions:
            near = did_you_mean(name, self.task_functions)
            raise UsageError(
                f"{self.name} has no task {quote(name)}{near or f'; it has {[*self.task_functions]}'}"
            )
        return self.task_functions[name]

    def signing(self) -> tuple[Secret, ...]:
        """The secrets of its messages; none if messages are not signed."""
        from detent.runners.secrets import resolve

        found = resolve(self._signing, self._settings.get("secrets", {}), os.environ)
        if self._signing and not found.secrets:
            raise UsageError(f"{self._where}: no secret for signing messages: {'; '.join(found.warnings)}")
        for warning in found.warnings:
            logging.getLogger("detent").warning("%s: %s", self.name, warning)
        return found.secrets

    def queue(self, name: str) -> Queue:
        from detent.app.queue.queues import Queue

        return Queue(self, name)

    def breaker(self, name: str) -> Breaker:
        from detent.app.queue.limits import Breaker

        return Breaker(self, name)

    def throttle(self, name: str, most: int, *, per: float = 60.0, smooth: bool = False) -> None:
        """Count one call under this name; raise `RateLimited` after `most` calls in `per` seconds."""
        from detent.app.queue.limits import checked_rate, throttle

        throttle(self, name, checked_rate(name, most=most, per=per, smooth=smooth))

    @cached_property
    def sender(self) -> Sender:
        from detent.app.queue.sending import Sender

        return Sender(self)

    @cached_property
    def mask(self) -> Mask:
        """Masks the app's secrets and the password of its store in everything that is stored."""
        from detent.messages.masking import Mask
        from detent.observe.secrecy import secrets_of

        return Mask([*secrets_of(self._settings_manifest(), environment()), *self.sender.secrets()])

    @cached_property
    def claims(self) -> ManualClaims:
        from detent.app.queue.deliveries import ManualClaims

        return ManualClaims(self)

    # Testing.

    def drain(self) -> list[Drained]:
        """Run all due messages in this thread, and those that follow; return how each attempt ended."""
        from detent.app.queue.drain import drain

        return drain(self)

    def fire_due(self, at: str | datetime, *, since: str | datetime | None = None) -> list[Fired]:
        """Run the jobs that are due at this instant, or after `since` and until then, in this thread; return
        how each ended.  Uses a store in memory, and runs retries at once."""
        from detent.app.dry_run import DryRun, with_task_call

        manifest, tasks = self.manifest(), self.tasks()
        jobs = tuple(with_task_call(job, tasks) for job in manifest.jobs)
        return DryRun(manifest._replace(jobs=jobs), self._clock).fire_due(at, since)

    # The store.

    def open_store(self) -> Store:
        """The store of this process."""
        if self._given_store is not None and self._node_store() is None:
            return self._given_store
        pid = os.getpid()
        if pid not in self._opened:
            self._opened.setdefault(pid, self.new_store()[0])  # if several threads open it, one of them wins
        return self._opened[pid]

    def new_store(self) -> tuple[Store, str]:
        """Open another store, which the caller closes; return it and its URL."""
        if node := self._node_store():
            return open_store(node.url, **node.options), node.url
        if self._given_store is not None:
            return self._given_store, MEMORY
        env, settings = environment(), self._settings_manifest()
        url = store_url(settings, None, env)
        return open_store(url, **store_options(settings, env)), url

    def _node_store(self) -> NodeStore | None:
        """In a child process that runs this app's functions: the store of its node."""
        node = current_store()
        if node is None or node.app != self.name:
            return None
        if node.url == MEMORY:
            raise UsageError(
                f"{self.name}: the node's store is in its memory, which its child processes cannot reach; "
                "give the node another store, like sqlite:///PATH"
            )
        if not node.url:
            raise UsageError(
                f"{self.name}: a job with `user` does not get the store of its node; name the store in the "
                f"app, as in Detent({self.name!r}, store=…), or remove `user`"
            )
        return node

    def _settings_manifest(self) -> Manifest:
        """The manifest without jobs, as an app may have none."""
        stand_in = {"name": "none", "at": "2020-01-01T00:00Z", "call": "none:none"}
        source = self.source()
        return check_source(
            source._replace(document={**source.document, "jobs": [stand_in]}, lines={}),
            self.name,
            environment(),
            load_machine(environment()),
        )


def _store_of(store: object) -> Store | None:
    """The given open store, or a store in memory, which all of the app shares; else None."""
    if store == MEMORY:
        return open_store(MEMORY)
    return None if store is None or isinstance(store, str | Mapping) else store  # type: ignore[return-value]


def environment() -> Mapping[str, str]:
    """The environment and, in a child process of a node, the node's variables for its store."""
    node = current_store()
    return {**os.environ, **node.env} if node else os.environ


def _env_of_children() -> dict[str, str]:
    """Let child processes import the running program from its folder."""
    env, file = dict(os.environ), getattr(sys.modules[MAIN], "__file__", None)
    folder = str(Path(file).resolve().parent) if file and not sys.modules[MAIN].__spec__ else ""
    path = [part for part in (folder, env.get("PYTHONPATH", "")) if part]
    return {**env, "PYTHONPATH": os.pathsep.join(path)} if path else env
