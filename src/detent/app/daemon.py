"""A node as a whole process, as `detent run` and `Detent.run` start it: its log, its store, its service."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from detent.errors import UsageError
from detent.events import Emit
from detent.loading.config import call_store, nodes_directory
from detent.manifest.check import Manifest
from detent.manifest.problems import format_problem
from detent.messages.ad_hoc import Allowed
from detent.messages.masking import Mask
from detent.messages.message import Task
from detent.node.service import Service, ServiceOptions, WorkerOptions, reach
from detent.observe.background_writer import BackgroundWriter
from detent.observe.logs import Style, format_event, log_later
from detent.observe.secrecy import learn_on_load, masking_store, password_of
from detent.runners.call.store import set_store
from detent.stores.registry import open_store, promise_of
from detent.text import did_you_mean, listed, quote
from detent.worker.inbox import Inbox

LAST_LINES_S = 2.0  # so long is a reader given at the end
GARBAGE_LEAST = 300_000  # objects, before it is looked for: more than a burst of ten thousand fires makes


class DaemonOptions(NamedTuple):
    """What a node is to run."""

    name: str  # of the place where its jobs come from, as messages name it
    load: Callable[[], Manifest]  # called again when it is told to reload
    env: Mapping[str, str]
    files: tuple[Path, ...] = ()  # when one of them changes, the jobs are loaded again
    store: str | None = None  # a URL that wins over the manifest's
    queues: tuple[str, ...] = ("default",)
    waits: bool = True  # for a store that is away when the node starts
    worker: WorkerOptions | None = None  # the messages of an app's tasks
    warn: Callable[[Manifest], Iterable[str]] | None = None  # finds warnings; None: those of the checker
    hint: str = ""  # for a person at a terminal, once the node has started


class App(Protocol):
    """An app in code, as far as it has tasks."""

    name: str

    def manifest(self) -> Manifest: ...

    def tasks(self) -> Mapping[str, Task]: ...

    def allowed(self) -> Mapping[str, Allowed]: ...

    def inbox(self) -> Inbox: ...


def with_tasks(options: DaemonOptions, app: App) -> DaemonOptions:
    """The same, and the messages of the app's tasks, if it has any.  Where no queues are named, it is the
    default one and those of the messages."""
    tasks, allowed = app.tasks(), app.allowed()
    own = ["default", *(task.queue for task in tasks.values()), *allowed]
    worker = WorkerOptions(app.inbox()) if tasks or allowed else None
    return options._replace(queues=options.queues or tuple(dict.fromkeys(own)), worker=worker)


def check_queues(queues: Sequence[str], app: App) -> None:
    """Refuse a queue that no task and no job uses: its name may be misspelt, and the right one not served."""
    known = {job.queue for job in app.manifest().jobs} | {*app.allowed()}
    for task in app.tasks().values():
        known |= {task.queue, *task.queues}
    for queue in queues:
        if queue not in known:
            near = did_you_mean(queue, known) or f"; it has {listed(sorted(known), 'and')}"
            raise UsageError(f"no task and no job of {quote(app.name)} uses queue {quote(queue)}{near}")


def run(options: DaemonOptions, style: Style) -> int:
    """Run it until a signal ends it; the exit code."""
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

        return _run(options._replace(load=load), emit_with_hint, mask)
    finally:
        set_store(None)
        log.close(LAST_LINES_S)


def _run(options: DaemonOptions, emit: Emit, mask: Mask) -> int:
    manifest, env = options.load(), options.env
    found = (
        options.warn(manifest)
        if options.warn
        else [format_problem(one, options.name) for one in manifest.warnings]
    )
    for warning in found:  # before the store is opened: one may be about it
        emit("manifest-warning", app=manifest.app, error=warning)
    store = call_store(manifest, options.store, env)
    set_store(store)
    url = store.url
    service = ServiceOptions(
        load=options.load,
        files=options.files,
        store=masking_store(open_store(url, **store.options), mask),
        directory=nodes_directory(url, env),
        env=env,
        emit=emit,
        queues=options.queues,
        waits=options.waits,
        worker=options.worker,
        call_store=store,
    )
    if url.startswith("sqlite:"):  # its disk tells; a file that is refused is not created
        report_weakness(url, manifest, emit)
        reach(service, manifest.app)
    else:  # it tells itself, once it is there
        reach(service, manifest.app)
        report_weakness(url, manifest, emit)

    _spare_what_stays()

    async def serve() -> int:
        return await Service(service, manifest).run()

    return asyncio.run(serve())


def report_weakness(url: str, manifest: Manifest, emit: Emit) -> None:
    """Say what a store may forget or, where `store.require` is `full`, refuse it."""
    weak = [one for one in promise_of(url, manifest.store.wait_replicas) if one.state != "ok"]
    told = "; ".join(f"{one.found}: {one.consequence}; {one.advice}" for one in weak)
    if weak and manifest.store.require == "full":
        raise UsageError(f"the store is too weak for `store.require: full`: {told}")
    if weak:
        emit("store-weak", app=manifest.app, error=told)


def _spare_what_stays() -> None:
    """Jobs are loaded once, and may be a hundred thousand: no search for garbage has to go through them.
    Nor is it worth one after every few fires, of which few leave any."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_LEAST)


def style_of(output: str, env: Mapping[str, str]) -> Style:
    """Lines for people on a terminal, JSON elsewhere and where that is asked for."""
    if output == "json" or not sys.stderr.isatty():
        return "json"
    return "plain" if env.get("NO_COLOR") else "coloured"
