"""From a store's URL to the store.  Only the one that is asked for is imported."""

from __future__ import annotations

from detent.core.text import quote
from detent.errors import UsageError
from detent.stores.base import Diagnosis, Store

ALLOWED = 'use "sqlite:///PATH" ("sqlite:////ABSOLUTE/PATH") or, for tests, "memory:"'

MEMORY = Diagnosis(
    what="durability",
    state="weak",
    found="the store is in the memory of one process",
    consequence="when that ends, a fire may be launched again, and what was due before is not known",
    advice="use it for tests only; keep fires in sqlite:///PATH",
)


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
    from detent.stores.sqlite import SqliteStore

    return SqliteStore(_sqlite_path(rest))


def _sqlite_path(rest: str) -> str:
    path = rest.removeprefix("///")
    if path in ("", rest) or "\0" in path:
        raise UsageError(f"bad store {quote('sqlite:' + rest)}: it names no file; {ALLOWED}")
    return path


# For `doctor`, and for a node that starts.


def promise_of(url: str) -> tuple[Diagnosis, ...]:
    """What the settings of a store carry of the promise."""
    if not url.startswith("sqlite:"):
        return (MEMORY,)
    from detent.stores.sqlite_health import promise

    return promise(_sqlite_path(url.removeprefix("sqlite:")))


def upkeep_of(url: str) -> tuple[Diagnosis, ...]:
    """What else could make a store go away."""
    if not url.startswith("sqlite:"):
        return ()
    from detent.stores.sqlite_health import upkeep

    return upkeep(_sqlite_path(url.removeprefix("sqlite:")))
