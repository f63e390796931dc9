"""From a store's URL to the store.  Only the one that is asked for is imported."""

from __future__ import annotations

from detent.core.text import quote
from detent.errors import UsageError
from detent.stores.base import Store

ALLOWED = 'use "sqlite:///PATH" ("sqlite:////ABSOLUTE/PATH") or, for tests, "memory:"'


def open_store(url: str) -> Store:
    scheme, colon, rest = url.partition(":")
    match scheme if colon else "":
        case "sqlite":
            return _open_sqlite(rest)
        case "memory" if not rest:
            from detent.stores.memory import MemoryStore

            return MemoryStore()
        case "":
            raise UsageError(f"bad store {quote(url)}: a store is named by a URL; {ALLOWED}")
    # The rest of a URL may hold a password: it is not repeated.
    raise UsageError(f"bad store {quote(scheme + ':')}: there is no such kind of store; {ALLOWED}")


def _open_sqlite(rest: str) -> Store:
    path = rest.removeprefix("///")
    if path in ("", rest) or "\0" in path:
        raise UsageError(f"bad store {quote('sqlite:' + rest)}: it names no file; {ALLOWED}")
    from detent.stores.sqlite import SqliteStore

    return SqliteStore(path)
