"""Runs a node as a process of its own, for `detent run`, `detent worker` and `Detent.run`."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.errors import DetentError, UsageError
from detent.events import Emit
from detent.loading.config import call_store, nodes_directory
from detent.manifest.check import Manifest
from detent.manifest.problems import format_problem
from detent.messages.masking import Mask
from detent.node.service import Service, ServiceOptions, WorkerOptions, reach
from detent.observe.background_writer import BackgroundWriter
from detent.observe.listeners import Listener, Listeners
from detent.observe.logs import Style, format_event, log_later
from detent.observe.secrecy import learn_on_load, masking_store, password_of
from detent.observe.telemetry import Telemetry, TelemetryOptions, open_telemetry
from detent.observe.watched_store import watched_store
from detent.runners.call.store import set_store
from detent.stores.registry import open_store, promise_of
from detent.text import did_you_mean, listed, quote

if TYPE_CHECKING:
    from detent.app.app import Detent

LAST_LINES_S = 2.0  # how long the reader of the log has for the last lines
GC_THRESHOLD = 300_000  # objects: more than a burst of ten thousand fires allocates


class DaemonOptions(NamedTuple):
    name: str  # of the source of the jobs, for error messages
    load: Callable[[], Manifest]  # called again for a reload
    env: Mapping[str, str]
    files: tuple[Path, ...] = ()  # a change of one of them reloads the jobs
    store: str | None = None  # a URL that overrides the manifest's
    queues: tuple[str, ...] = ("default",)
    waits: bool = True  # for a store that is away at the start
    worker: WorkerOptions | None = None  # set if it processes messages
    warn: Callable[[Manifest], Iterable[str]] | None = None  # finds warnings; None: those of the checker
    hint: str = ""  # shown on a terminal after the start
    telemetry: TelemetryOptions = TelemetryOptions()
    listeners: Sequence[Listener] = ()


def with_tasks(options: DaemonOptions, app: Detent) -> DaemonOptions:
    """Add the app's listeners, and its messages if it has tasks or allows ad hoc messages.  Without named
    queues, the node serves `default` and the queues of those messages."""
    tasks, allowed = app.tasks(), app.allowed()
    own = ["default", *(task.queue for task in tasks.values()), *allowed]
    worker = WorkerOptions(app.inbox()) if tasks or allowed else None
    queues = options.queues or tuple(dict.fromkeys(own))
    return options._replace(queues=queues, worker=worker, listeners=app.listeners)


def check_queues(queues: Sequence[str], app: Detent) -> None:
    """Refuse a queue that no task and no job uses: its name is probably misspelt."""
    known = {job.queue for job in app.manifest().jobs} | {*app.allowed()}
    for task in app.tasks().values():
        known |= {task.queue, *task.queues}
    for queue in queues:
        if queue not in known:
            near = did_you_mean(queue, known) or f"; it has {listed(sorted(known), 'and')}"
            raise UsageError(f"no task and no job of {quote(app.name)} uses queue {quote(queue)}{near}")


def run(options: DaemonOptions, style: Style) -> int:
    """Run the node until a signal ends it; return the exit code."""
    log = BackgroundWriter(
        sys.stderr.fileno(), lambda lines: format_event("log-dropped", style, lines=lines) + "\n"
    )
    try:
        mask = Mask(password_of(options.store or ""))
        mask.learn(options.worker.inbox.secrets if options.worker else ())
        load = learn_on_load(options.load, mask, options.env)
        emit = log_later(log.write, style, mask=mask)

        def emit_with_hint(event: str, **fields: Any) -> None:
            emit(event, **fields)
            if event == "started" and options.hint and style != "json":
                log.write(lambda: options.hint)

        listeners = Listeners(options.listeners, lambda: mask, emit_with_hint)
        try:
            return _run(options._replace(load=load), listeners.emit, mask)
        finally:
            listeners.close(LAST_LINES_S)
    finally:
        set_store(None)
        log.close(LAST_LINES_S)


def _run(options: DaemonOptions, emit: Emit, mask: Mask) -> int:
    manifest, env = options.load(), options.env
    own = [format_problem(one, options.name) for one in manifest.warnings]
    # Before the store is opened: a warning may be about it.
    for warning in options.warn(manifest) if options.warn else own:
        emit("manifest-warning", app=manifest.app, error=warning)
    telemetry = open_telemetry(options.telemetry, manifest.app, env, emit)
    try:
        return _serve(options, manifest, telemetry, mask)
    finally:
        telemetry.close()


def _serve(options: DaemonOptions, manifest: Manifest, telemetry: Telemetry, mask: Mask) -> int:
    env, emit, running_max = options.env, telemetry.emit, options.worker and options.worker.concurrency
    store = call_store(manifest, options.store, env)
    set_store(store)
    url = store.url

    def load() -> Manifest:
        loaded = options.load()
        telemetry.set_slots(options.queues, running_max or loaded.node.max_running)
        return loaded

    telemetry.set_slots(options.queues, running_max or manifest.node.max_running)
    service = ServiceOptions(
        load=load,
        files=options.files,
        store=masking_store(watched_store(open_store(url, **store.options), *telemetry.watches), mask),
        directory=nodes_directory(url, env),
        env=env,
        emit=emit,
        queues=options.queues,
        waits=options.waits,
        worker=options.worker,
        call_store=store,
        trace=telemetry.trace,
    )
    try:
        if url.startswith("sqlite:"):  # checked by its disk, before the file is created
            report_weakness(url, manifest, emit)
            reach(service, manifest.app)
        else:  # the server has to answer first
            reach(service, manifest.app)
            report_weakness(url, manifest, emit)
    except DetentError:
        service.store.close()  # a pool that is not closed prints a traceback when Python 3.14 exits
        raise

    _spare_what_stays()

    async def serve() -> int:
        return await Service(service, manifest).run()

    return asyncio.run(serve())


def report_weakness(url: str, manifest: Manifest, emit: Emit) -> None:
    """Report how the store may lose data or, if `store.require` is `full`, refuse it."""
    weak = [one for one in promise_of(url, manifest.store.wait_replicas) if one.state != "ok"]
    text = "; ".join(f"{one.found}: {one.consequence}; {one.advice}" for one in weak)
    if weak and manifest.store.require == "full":
        raise UsageError(f"the store is too weak for `store.require: full`: {text}")
    if weak:
        emit("store-weak", app=manifest.app, error=text)


def _spare_what_stays() -> None:
    """Exclude the loaded jobs, which may be a hundred thousand, from garbage collection, and collect less
    often: fires leave little garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)


def style_of(output: str, env: Mapping[str, str]) -> Style:
    """Lines for people on a terminal; JSON elsewhere, or if it was requested."""
    if output == "json" or not sys.stderr.isatty():
        return "json"
    return "plain" if env.get("NO_COLOR") else "coloured"
