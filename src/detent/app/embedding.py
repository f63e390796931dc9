"""A node within somebody else's process: when it begins there, what a fork means for it, how it ends.

1. `start` does not begin at once.  A server may load an app before it forks its workers: whoever forks while
   it waits has passed the node on, now and for every later child; its children begin theirs.  It waits until
   the modules that are being imported are there, and then a moment.
2. A node that has begun stays where it is: a child that is forked then has none, unless it starts one.  Nor
   do children of `multiprocessing` inherit one: they are workers of the program, not of its server.
3. It runs in threads of its own, on a loop of its own.  When the interpreter ends, it is stopped first.
4. Nothing begins in a process that only reads the app, nor in one that carries out a call of it.
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

from detent.app.daemon import check_queues, report_weakness
from detent.app.declarations import refuse_process_options
from detent.errors import DetentError, StoreUnavailable, UsageError
from detent.events import EVENTS
from detent.loading import module_app
from detent.loading.config import nodes_directory
from detent.manifest.check import Manifest
from detent.node.embedded import STOP_S, EmbeddedService, in_threads, tasks_in_threads
from detent.node.service import SYSTEMD, ServiceOptions, WorkerOptions, reach
from detent.observe.logs import format_event
from detent.observe.secrecy import masking_store
from detent.runners.call.in_process import capture_logging
from detent.text import quote

if TYPE_CHECKING:
    from detent.app.app import Detent

WAIT_S = 1.0  # for a fork
IMPORT_S = 0.02  # between two looks whether an import is done
AGAIN_S = 1.0  # after a node that broke, or while its store cannot be asked
PRIORITIES = {"DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARN": logging.WARNING, "ERROR": logging.ERROR}
CHILD = "detent.runners.call.child"  # imported in the processes of calls only
MEMORY = "memory:"
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
        """Where queues are named, their messages are served, too."""
        if module_app.is_reading_apps or CHILD in sys.modules:
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
        """Wait; then say whether it is still wanted."""
        while any(map(_is_importing, importing)) and not node.over.is_set():
            node.over.wait(IMPORT_S)
        node.over.wait(wait_s)
        with self._lock:
            if self._node is not node or node.over.is_set() or self._state != "waiting":
                return False
            self._state = "on"
            return True

    # Forks.

    def forked_here(self) -> None:
        """In the parent."""
        with self._lock:
            if self._state == "waiting" and self._node:
                self._state = "passed-on"
                self._node.over.set()

    def forked_away(self, is_ours: bool) -> None:
        """In the child, where no thread of the parent's is."""
        is_wanted = self._state in ("waiting", "passed-on") and is_ours
        manifest = self._node.manifest if self._node else None
        self._lock, self._node, self._state = threading.Lock(), None, "off"
        if is_wanted and manifest:
            self._state = "waiting"
            self._begin(manifest, [], WAIT_S)


class _NodeThread:
    """One node of a node in this process, in a thread of its own."""

    def __init__(self, app: Detent, manifest: Manifest, queues: tuple[str, ...]) -> None:
        self.manifest, self.over = manifest, threading.Event()
        self._app, self._queues = app, queues
        self._leave: Callable[[], object] = _nothing
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
        is_away = False
        while not self.over.is_set():
            try:
                asyncio.run(self._serve())
            except StoreUnavailable as error:
                if not is_away:
                    _emit("store-unavailable", app=self._app.name, error=str(error))
                is_away = True
            except DetentError as error:  # what is wrong stays wrong
                _emit("internal-error", app=self._app.name, error=str(error))
                return
            except Exception as error:  # a bug of ours must not leave the app without its node for ever
                _emit("internal-error", app=self._app.name, error=f"{type(error).__name__}: {error}")
            self.over.wait(AGAIN_S)

    async def _serve(self) -> None:
        store, url = self._app.new_store()
        env = {name: value for name, value in os.environ.items() if name not in SYSTEMD}
        worker = WorkerOptions(self._app.inbox(tasks_in_threads(self._app.tasks()))) if self._queues else None
        options = ServiceOptions(
            load=lambda: self.manifest,
            files=(),
            store=masking_store(store, self._app.mask),
            directory=_directory(url, env),
            env=env,
            emit=_emit,
            queues=self._queues or ("default",),
            waits=False,
            worker=worker,
        )
        try:
            self._reach(options, url)  # blocking: nothing else runs in this loop yet
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
        """First: a node that is seen before its store is there would be taken for one of a store that is
        lost."""
        reach(options, self._app.name)
        if not url.startswith(MEMORY):
            report_weakness(url, self.manifest, _emit)


def _refuse_queues(queues: tuple[str, ...], app: Detent) -> None:
    """Raise where a message of these queues cannot run within a process that is not ours."""
    check_queues([queue for queue in queues if queue != "default"], app)  # which has jobs in any case
    elsewhere = "and app.start(queues=…) runs messages within this process: serve it by `detent worker`"
    for one in app.declared_tasks:
        if one.asks_for_process and not {one.task.queue, *one.task.queues}.isdisjoint(queues):
            raise UsageError(
                f'{one.where}: task {quote(one.name)} asks for a process of its own (isolation="process"), '
                f"{elsewhere}, or leave that option out"
            )
    for queue in queues:
        may = app.allowed().get(queue)
        if may and (may.command or may.calls):
            kind = "commands" if may.command else "calls"
            raise UsageError(f"queue {quote(queue)}: app.allow lets its messages run {kind}, {elsewhere}")


def _emit(event: str, **fields: Any) -> None:
    """Our events are the host's log lines."""
    level = PRIORITIES[EVENTS[event].level]
    if log.isEnabledFor(level):
        line = format_event(event, "plain", **fields).partition(" ")[2]  # the host's log has the time itself
        log.log(level, "%s", line, extra={"detent": {"event": event, **fields}})


def _directory(url: str, env: dict[str, str]) -> Path:
    """Where nodes of this host find each other; where a server's user may write nowhere else, a temporary
    one of that user's own."""
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
    """There is nobody to tell."""


# What is under way when `start` is called.


def _importing() -> Iterator[str]:
    """The modules whose import led here."""
    frame = sys._getframe(1)
    while frame := frame.f_back:  # type: ignore[assignment]
        name = str(frame.f_globals.get("__name__", ""))
        if _is_importing(name):
            yield name


def _is_importing(module: str) -> bool:
    spec = getattr(sys.modules.get(module), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


# Forks and the end.

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
            one.forked_here()


def _after_in_child() -> None:
    is_ours = not _is_by_multiprocessing()
    for one in [*_EMBEDDINGS]:
        one.forked_away(is_ours)


os.register_at_fork(after_in_parent=_after_in_parent, after_in_child=_after_in_child)


def _stop_all() -> None:
    for one in [*_EMBEDDINGS]:
        one.stop()


def _stop_at_exit() -> None:
    """Before the interpreter ends the threads of executors, which the node needs to its end."""
    global _stops_at_exit
    if not _stops_at_exit:
        _stops_at_exit = True
        getattr(threading, "_register_atexit", atexit.register)(_stop_all)


_stops_at_exit = False
