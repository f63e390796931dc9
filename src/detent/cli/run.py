"""`detent run`: a node for the jobs of a manifest, or of an app in code."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from detent.cli.context import add_named_file
from detent.config import find_manifest
from detent.core.text import quote
from detent.daemon import Order, run, style_of, with_tasks
from detent.errors import UsageError
from detent.foreign_files import files_behind
from detent.module_apps import is_app, load_app
from detent.sources import is_url, read_manifest, read_once

EXAMPLE = "detent run detent.yaml --queues default,db"


def options(parser: argparse.ArgumentParser) -> None:
    add_named_file(
        parser, "the manifest: a file or a directory (default: ./detent.yaml), or an app: module:name"
    )
    parser.add_argument("--store", metavar="URL", help="where fires are kept (default: the manifest's)")
    which = "serve these queues only (default: default, and those of an app's tasks)"
    parser.add_argument("--queues", default="", metavar="A,B", help=which)
    parser.add_argument("--no-wait", action="store_true", help="fail at once if the store does not answer")


def main(given: argparse.Namespace) -> int:
    queues = tuple(given.queues.split(",")) if given.queues else ()
    order = _order(given.file, queues)._replace(store=given.store, waits=not given.no_wait)
    return run(order, style_of(given.output, os.environ))


def _order(place: str | Path | None, queues: tuple[str, ...]) -> Order:
    """A node watches its manifest: it must be one on this host."""
    env = dict(os.environ)
    if place and is_url(place):
        raise UsageError(f"a node runs the jobs of a file or a directory, and {quote(str(place))} is a URL")
    if place and is_app(place):
        order = Order(str(place), read_once(str(place), env), env, queues=queues)
        return with_tasks(order, load_app(str(place)))
    file = find_manifest(place)
    order = Order(str(file), lambda: read_manifest(file, env), env, files_behind(file))
    return order._replace(queues=queues) if queues else order
