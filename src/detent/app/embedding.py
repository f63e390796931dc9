"""Runs a node within a web process: `app.start()` and `app.lifespan`.

1. `start` waits until the current imports are done, and then `WAIT_S` more.  A server may load an app before
   it forks its workers: if the process forks meanwhile, its children start nodes, and the process does not.
2. A running node stays in its process: children that are forked later have none.  Children of
   `multiprocessing` never inherit a node, because they are not workers of the server.
3. The node runs on a loop of its own, in its own threads.  It is stopped before the interpreter exits.
4. No node starts in a process that only reads the app, or in a child process that runs its functions.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from detent.app.daemon import LAST_LINES_S, check_queues, report_weakness
from detent.app.declarations import refuse_process_options
from detent.errors import DetentError, StoreUnavailable, UsageError
from detent.events import EVENTS, Emit
from detent.loading import module_app
from detent.loading.config import nodes_directory
from detent.manifest.check import Manifest
from detent.node.embedded import STOP_S, EmbeddedService, in_threads, tasks_in_threads
from detent.node.service import SYSTEMD, ServiceOptions, WorkerOptions, reach
from detent.observe.listeners import Listeners
from detent.observe.logs import format_event
from detent.observe.secrecy import masking_store, secrets_of
from detent.observe.telemetry import Telemetry, process_telemetry
from detent.observe.watched_store import watched_store
from detent.runners.call import store as call_store
from detent.runners.call.in_process import capture_logging
from detent.text import quote

if TYPE_CHECKING:
    from detent.app.app import Detent
    from detent.messages.masking import Mask

WAIT_S = 1.0  # for a fork
IMPORT_S = 0.02  # between two checks whether the imports are done
AGAIN_S = 1.0  # before a restart after an error of the node or its store
PRIORITIES = {"DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARN": logging.WARNING, "ERROR": logging.ERROR}
MEMORY = "memory:"
DEFAULT = ("default",)  # queues
FORKER = "multiprocessing.popen_fork"

State = Literal["off", "waiting", "on", "passed-on"]
log = logging.getLogger("detent")


class Embedding:
    """The node of one app in this process."""

    def __init__(self, app: Detent) -> None:
        self._app = app
        self._state: State = "off"
        self._queues: tuple[str, ...] = ()
        self._node: _NodeThread | None = None
        self._lock = threading.Lock()
        _EMBEDDINGS.add(self)

    def start(self, queues: tuple[str, ...] = (), *, at_once: bool = False) -> None:
        """With `queues`, the node processes their messages too."""
        if module_app.is_reading_apps or call_store.is_child:
            return
        manifest = self._app.manifest()
        refuse_process_options(self._app.declared)
        _refuse_queues(queues, self._app)
        with self._lock:
            if self._state != "off":
                return
            _stop_at_exit()
            self._state, self._queues = "waiting", queues
            self._begin(in_threads(manifest), [] if at_once else [*_importing()], 0.0 if at_once else WAIT_S)

    def stop(self) -> None:
        with self._lock:
            node, self._node, self._state = self._node, None, "off"
        if node:
            node.end()

    def _begin(self, manifest: Manifest, importing: list[str], wait_s: float) -> None:
        self._node = _NodeThread(self._app, manifest, self._queues)
        self._node.begin(partial(self._is_time, self._node, importing, wait_s))

    def _is_time(self, node: _NodeThread, importing: list[str], wait_s: float) -> bool:
        """Wait, then return whether the node should still start."""
        while any(map(_is_importing, importing)) and not node.over.is_set():
            node.over.wait(IMPORT_S)
        node.over.wait(wait_s)
        with self._lock:
            if self._node is not node or node.over.is_set() or self._state != "waiting":
                return False
            self._state = "on"
            return True

    # Forks.

    def after_fork_in_parent(self) -> None:
        with self._lock:
            if self._state == "waiting" and self._node:
                self._state = "passed-on"
                self._node.over.set()

    def after_fork_in_child(self, is_ours: bool) -> None:
        """Start over: no thread of the parent exists here."""
        is_wanted = self._state in ("waiting", "passed-on") and is_ours
        manifest = self._node.manifest if self._node else None
        self._lock, self._node, self._state = threading.Lock(), None, "off"
        if is_wanted and manifest:
            self._state = "waiting"
            self._begin(manifest, [], WAIT_S)


class _NodeThread:
    """A run of the node in this process, in a thread of its own."""

    def __init__(self, app: Detent, manifest: Manifest, queues: tuple[str, ...]) -> None:
        self.manifest, self.over = manifest, threading.Event()
        self._app, self._queues = app, queues
        self._leave: Callable[[], object] = _nothing
        self._mask = app.mask
        self._mask.learn(secrets_of(manifest, os.environ))
        self._emit: Emit = partial(_log, self._mask)
        self._telemetry = Telemetry(self._emit)
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=_nothing)

    def begin(self, is_time: Callable[[], bool]) -> None:
        self._thread = threading.Thread(
            target=self._live, args=(is_time,), name=f"detent-{self._app.name}", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        with self._lock:
            self.over.set()
            self._leave()
        if threading.current_thread() is not self._thread:
            self._thread.join(self.manifest.node.drain_s + 2 * STOP_S)

    def _live(self, is_time: Callable[[], bool]) -> None:
        if not is_time():
            return
        capture_logging(is_guest=True)
        listeners = Listeners(self._app.listeners, lambda: self._mask, self._emit)
        try:
            self._telemetry = process_telemetry(self._app.name, listeners.emit)
            self._telemetry.set_slots(self._queues or DEFAULT, self.manifest.node.max_running)
            self._emit = self._telemetry.emit
            self._serve_again()
        finally:
            listeners.close(LAST_LINES_S)

    def _serve_again(self) -> None:
        is_away = False
        while not self.over.is_set():
            try:
                asyncio.run(self._serve())
            except StoreUnavailable as error:
                if not is_away:
                    self._emit("store-unavailable", app=self._app.name, error=str(error))
                is_away = True
            except DetentError as error:  # a restart would fail in the same way
                self._emit("internal-error", app=self._app.name, error=str(error))
                return
            except Exception as error:  # a bug: start the node again
                self._emit("internal-error", app=self._app.name, error=f"{type(error).__name__}: {error}")
            self.over.wait(AGAIN_S)

    async def _serve(self) -> None:
        store, url = self._app.new_store()
        env = {name: value for name, value in os.environ.items() if name not in SYSTEMD}
        worker = WorkerOptions(self._app.inbox(tasks_in_threads(self._app.tasks()))) if self._queues else None
        options = ServiceOptions(
            load=lambda: self.manifest,
            files=(),
            store=masking_store(watched_store(store, *self._telemetry.watches), self._mask),
            directory=_directory(url, env),
            env=env,
            emit=self._emit,
            queues=self._queues or DEFAULT,
            waits=False,
            worker=worker,
            trace=self._telemetry.trace,
        )
        try:
            self._reach(options, url)  # it blocks, but nothing else runs on this loop yet
        except DetentError:
            store.close()
            raise
        service, loop = EmbeddedService(options, self.manifest), asyncio.get_running_loop()
        with self._lock:
            self._leave = partial(loop.call_soon_threadsafe, service.leave)
            if self.over.is_set():
                service.leave()
        try:
            await service.run()
        finally:
            with self._lock:
                self._leave = _nothing

    def _reach(self, options: ServiceOptions, url: str) -> None:
        """Connect before the node becomes visible: other nodes would take it for a node without a store."""
        reach(options, self._app.name)
        if not url.startswith(MEMORY):
            report_weakness(url, self.manifest, self._emit)


def _refuse_queues(queues: tuple[str, ...], app: Detent) -> None:
    """Raise if a message of these queues needs a process of its own."""
    check_queues([queue for queue in queues if queue != "default"], app)
    elsewhere = "and app.start(queues=…) runs messages within this process: use `detent worker` for it"
    for one in app.task_functions.values():
        if one.asks_for_process and not {one.task.queue, *one.task.queues}.isdisjoint(queues):
            raise UsageError(
                f'{one.where}: task {quote(one.name)} needs a process of its own (isolation="process"), '
                f"{elsewhere}, or remove that option"
            )
    for queue in queues:
        may = app.allowed().get(queue)
        if may and (may.command or may.calls):
            kind = "commands" if may.command else "calls"
            raise UsageError(f"queue {quote(queue)}: app.allow lets its messages run {kind}, {elsewhere}")


def _log(mask: Mask, event: str, **fields: Any) -> None:
    """Log the event with the logging of the web process."""
    level = PRIORITIES[EVENTS[event].level]
    if log.isEnabledFor(level):
        fields = mask.fields(fields)
        line = format_event(event, "plain", **fields).partition(" ")[2]  # the log has the time already
        log.log(level, "%s", line, extra={"detent": {"event": event, **fields}})


def _directory(url: str, env: dict[str, str]) -> Path:
    """The directory where the nodes of this host find each other; if the user may not write there, a
    temporary directory of that user."""
    directory = nodes_directory(url, env)
    try:
        if url.startswith(MEMORY):
            raise PermissionError
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return directory
    except OSError:
        own = Path(tempfile.gettempdir()) / f"detent-{os.geteuid()}"
        own.mkdir(mode=0o700, exist_ok=True)
        return own if own.stat().st_uid == os.geteuid() else Path(tempfile.mkdtemp(prefix="detent-"))


def _nothing() -> None:
    """Do nothing."""


# Imports.


def _importing() -> Iterator[str]:
    """The modules that are being imported by the callers of `start`."""
    frame = sys._getframe(1)
    while frame := frame.f_back:  # type: ignore[assignment]
        name = str(frame.f_globals.get("__name__", ""))
        if _is_importing(name):
            yield name


def _is_importing(module: str) -> bool:
    spec = getattr(sys.modules.get(module), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


# Forks and exit.

_EMBEDDINGS: weakref.WeakSet[Embedding] = weakref.WeakSet()


def _is_by_multiprocessing() -> bool:
    frame = sys._getframe(1)
    while frame := frame.f_back:  # type: ignore[assignment]
        if frame.f_globals.get("__name__") == FORKER:
            return True
    return False


def _after_in_parent() -> None:
    if not _is_by_multiprocessing():
        for one in [*_EMBEDDINGS]:
            one.after_fork_in_parent()


def _after_in_child() -> None:
    is_ours = not _is_by_multiprocessing()
    for one in [*_EMBEDDINGS]:
        one.after_fork_in_child(is_ours)


os.register_at_fork(after_in_parent=_after_in_parent, after_in_child=_after_in_child)


def _stop_all() -> None:
    for one in [*_EMBEDDINGS]:
        one.stop()


def _stop_at_exit() -> None:
    """Stop nodes before the interpreter ends the threads of executors, which a node needs."""
    global _stops_at_exit
    if not _stops_at_exit:
        _stops_at_exit = True
        getattr(threading, "_register_atexit", atexit.register)(_stop_all)


_stops_at_exit = False
