"""`detent run`: a node for the jobs of a manifest."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from detent.cli.context import add_named_file
from detent.config import find_manifest, nodes_directory, store_options, store_url
from detent.core.findings import worded
from detent.core.manifest import Manifest
from detent.core.text import quote
from detent.errors import UsageError
from detent.events import Emit
from detent.foreign_files import files_behind
from detent.node.service import Service, Setting, reach
from detent.observe.logs import Style, log_later, word_of
from detent.observe.unblocking import Unblocking
from detent.sources import is_url, read_manifest
from detent.stores.opening import open_store, promise_of

LAST_LINES_S = 2.0  # so long is a reader given at the end
GARBAGE_LEAST = 20_000  # objects, before it is looked for
EXAMPLE = "detent run detent.yaml --queues default,db"


def options(parser: argparse.ArgumentParser) -> None:
    add_named_file(parser, "the manifest: a file or a directory (default: ./detent.yaml)")
    parser.add_argument("--store", metavar="URL", help="where fires are kept (default: the manifest's)")
    parser.add_argument("--queues", default="default", metavar="A,B", help="serve these queues only")
    parser.add_argument("--no-wait", action="store_true", help="fail at once if the store does not answer")


def main(given: argparse.Namespace) -> int:
    style = _style(given.output, os.environ)
    log = Unblocking(sys.stderr.fileno(), lambda lines: word_of("log-dropped", style, lines=lines) + "\n")
    try:
        return _run(given, log_later(log.write, style))
    finally:
        log.close(LAST_LINES_S)


def _run(given: argparse.Namespace, emit: Emit) -> int:
    file, env = _file(given.file), dict(os.environ)
    manifest = read_manifest(file, env)
    for warning in manifest.warnings:  # before the store is opened: one may be about it
        emit("manifest-warning", app=manifest.app, error=worded(warning, str(file)))
    url = store_url(manifest, given.store, env)
    setting = Setting(
        load=lambda: read_manifest(file, env),
        files=files_behind(file),
        store=open_store(url, **store_options(manifest, env)),
        directory=nodes_directory(url, env),
        env=env,
        emit=emit,
        queues=tuple(given.queues.split(",")),
        waits=not given.no_wait,
    )
    if url.startswith("sqlite:"):  # its disk tells; a file that is refused is not created
        _tell_weakness(url, manifest, emit)
        reach(setting, manifest.app)
    else:  # it tells itself, once it is there
        reach(setting, manifest.app)
        _tell_weakness(url, manifest, emit)

    _spare_what_stays()

    async def serve() -> int:
        return await Service(setting, manifest).run()

    return asyncio.run(serve())


def _file(given: str | Path | None) -> Path:
    """A node watches its manifest: it must be one on this host."""
    if given and is_url(given):
        raise UsageError(f"a node runs the jobs of a file or a directory, and {quote(str(given))} is a URL")
    return find_manifest(given)


def _spare_what_stays() -> None:
    """Jobs are loaded once, and may be a hundred thousand: no search for garbage has to go through them.
    Nor is it worth one after every few fires, of which few leave any."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_LEAST)


def _tell_weakness(url: str, manifest: Manifest, emit: Emit) -> None:
    """Say what a store may forget or, where `store.require` is `full`, refuse it."""
    weak = [one for one in promise_of(url, manifest.store.wait_replicas) if one.state != "ok"]
    told = "; ".join(f"{one.found}: {one.consequence}; {one.advice}" for one in weak)
    if weak and manifest.store.require == "full":
        raise UsageError(f"the store is too weak for `store.require: full`: {told}")
    if weak:
        emit("store-weak", app=manifest.app, error=told)


def _style(output: str, env: Mapping[str, str]) -> Style:
    if output == "json" or not sys.stderr.isatty():
        return "json"
    return "plain" if env.get("NO_COLOR") else "coloured"
