"""The manifest and the store that a view is made of."""

from typing import NamedTuple

from detent.errors import UsageError
from detent.manifest.canonical import without_password
from detent.manifest.check import Manifest
from detent.stores.base import Store
from detent.text import quote


class Context(NamedTuple):
    manifest: Manifest | None
    store: Store | None
    url: str

    @property
    def app(self) -> str:
        """The manifest's app; empty for every app of the store."""
        return self.manifest.app if self.manifest else ""

    @property
    def no_store_yet(self) -> str:
        return f"no store at {quote(without_password(self.url))} yet: nothing has run"


def require_store(context: Context) -> Store:
    if context.store is None:
        raise UsageError(f"{context.no_store_yet}; `detent run` creates it")
    return context.store
