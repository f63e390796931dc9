"""What the verbs look at: the manifest, and the store that it or the command line names.

A store that nobody has used yet is not created by looking for it.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import NamedTuple

from detent.cli.tables import say
from detent.config import find_manifest, load_manifest, store_url
from detent.core.canonical import without_password
from detent.core.manifest import Manifest
from detent.core.text import quote
from detent.errors import UsageError
from detent.stores.base import Store
from detent.stores.opening import open_store

_SQLITE = "sqlite:///"


class Context(NamedTuple):
    """A manifest where there is one, and a store where there is one."""

    manifest: Manifest | None
    store: Store | None
    url: str

    @property
    def app(self) -> str:
        """The app that is meant; none: every app of the store."""
        return self.manifest.app if self.manifest else ""

    @property
    def nothing_yet(self) -> str:
        return f"no store at {quote(without_password(self.url))} yet: nothing has run"


def add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--file", metavar="FILE", help="the manifest (default: ./detent.yaml)")


def add_context(parser: argparse.ArgumentParser) -> None:
    add_file(parser)
    parser.add_argument("--store", metavar="URL", help="where fires are kept (default: the manifest's)")


def read_manifest(file: str | None) -> Manifest:
    return load_manifest(find_manifest(file), dict(os.environ))


def open_context(given: argparse.Namespace) -> Context:
    """A manifest is looked at if one is named or is here; without one, every app of the store is meant.
    One that is broken must not keep an operator from a store that is named otherwise."""
    try:
        manifest = read_manifest(given.file) if given.file or _has_manifest() else None
    except UsageError as error:
        if not (given.store or os.environ.get("DETENT_STORE")):
            raise UsageError(f"{error}\nto go on without the manifest, name the store with --store") from None
        say(f"{error}\ngoing on without the manifest")
        manifest = None
    return _with_store(manifest, given.store)


def open_manifest_context(given: argparse.Namespace) -> tuple[Manifest, Context]:
    """For verbs that need the jobs' definitions."""
    manifest = read_manifest(given.file)
    return manifest, _with_store(manifest, given.store)


def need_store(context: Context) -> Store:
    if context.store is None:
        raise UsageError(f"{context.nothing_yet}; `detent run` creates it")
    return context.store


def _has_manifest() -> bool:
    try:
        find_manifest()
    except UsageError:
        return False
    return True


def _with_store(manifest: Manifest | None, flag: str | None) -> Context:
    url = store_url(manifest, flag, dict(os.environ))
    store = open_store(url)  # which opens nothing before it is asked something
    return Context(manifest, store if _exists(url) else None, url)


def _exists(url: str) -> bool:
    if not url.startswith(_SQLITE):
        return True
    try:
        Path(url.removeprefix(_SQLITE)).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # the store will say what is wrong with it
        return True
    return True
