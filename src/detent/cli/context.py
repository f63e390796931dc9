"""Finds the manifest and the store of a verb.  A verb that only reads does not create a missing store."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detent.cli.tables import say
from detent.errors import UsageError
from detent.loading import sources
from detent.loading.config import explicit_store, find_manifest, store_options, store_url
from detent.loading.foreign import CrontabPath
from detent.loading.module_app import is_app, load_app
from detent.loading.sources import find_place
from detent.manifest.check import Manifest
from detent.stores.registry import open_store
from detent.text import quote
from detent.views.context import Context

if TYPE_CHECKING:
    from detent.app.app import Detent

_SQLITE = "sqlite:///"


def add_manifest_options(parser: argparse.ArgumentParser) -> None:
    about = "the manifest: a file, a directory, module:app, a URL, or - for standard input"
    parser.add_argument(
        "-f", "--file", metavar="FILE", action=ManifestArgument, help=f"{about} (default: ./detent.yaml)"
    )
    secret = (
        "the secret that signs the request for a manifest URL, and the requests of jobs without one: "
        "env:NAME, file:/path or a name from the machine file"
    )
    parser.add_argument("--secret-ref", metavar="REF", default="", help=secret)
    add_crontab(parser)


def add_crontab(parser: argparse.ArgumentParser) -> None:
    about = "a crontab or a directory of crontabs instead of a manifest; can be repeated"
    parser.add_argument(
        "--crontab", metavar="FILE", dest="file", action=ManifestArgument, type=CrontabPath, help=about
    )


class ManifestArgument(argparse.Action):
    """Stores one manifest or several crontabs; a second manifest is a usage error."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, value: Any, _: str | None = None
    ) -> None:
        before = getattr(namespace, "file", None)
        if isinstance(before, CrontabPath) and isinstance(value, CrontabPath):
            value = CrontabPath(f"{before},{value}")
        elif before is not None:
            parser.error(f"two manifests are named, {before} and {value}; name only one")
        namespace.file = value


def add_store_options(parser: argparse.ArgumentParser) -> None:
    add_manifest_options(parser)
    parser.add_argument("--store", metavar="URL", help="the store's URL (default: the manifest's)")


def read_manifest(file: sources.Place | None, secret_ref: str = "") -> Manifest:
    return sources.read_manifest(find_place(file), dict(os.environ), secret_ref)


def open_context(args: argparse.Namespace) -> Context:
    """Open the store, with the manifest if one is named or in the working directory.

    A broken manifest is an error only if it is needed to find the store.
    """
    try:
        manifest = read_manifest(args.file, args.secret_ref) if args.file or has_manifest() else None
    except UsageError as error:
        if not explicit_store(args.store, os.environ):
            raise UsageError(f"{error}\nto continue without it, name the store with --store") from None
        say(f"{error}\ncontinuing without the manifest")
        manifest = None
    return context_for(manifest, args.store)


def open_manifest_context(args: argparse.Namespace) -> tuple[Manifest, Context]:
    manifest = read_manifest(args.file, args.secret_ref)
    return manifest, context_for(manifest, args.store)


def load_task_app(name: str) -> Detent:
    """Import an app in Python code; raises UsageError if it has no tasks."""
    if not is_app(name):
        raise UsageError(f"{quote(name)} is not an app: name one as module:name, such as shop:app")
    app = load_app(name)
    if not app.tasks() and not app.allowed():
        raise UsageError(f"{quote(name)} has no tasks: declare one with `@app.task()`")
    return app


def has_manifest() -> bool:
    try:
        find_manifest()
    except UsageError:
        return False
    return True


def context_for(manifest: Manifest | None, flag: str | None = None) -> Context:
    env = dict(os.environ)
    url = store_url(manifest, flag, env)
    store = open_store(url, **store_options(manifest, env)) if store_exists(url) else None
    return Context(manifest, store, url)


def store_exists(url: str) -> bool:
    if not url.startswith(_SQLITE):
        return True
    try:
        Path(url.removeprefix(_SQLITE)).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):  # opening the store reports the error
        pass
    return True
