"""From a store's URL to the store.  Only the one that is asked for is imported."""

from __future__ import annotations

from detent.errors import UsageError
from detent.stores.base import Diagnosis, Store
from detent.text import quote

ALLOWED = (
    'use "sqlite:///PATH" ("sqlite:////ABSOLUTE/PATH"), "redis://HOST", "postgresql://USER@HOST/DATABASE" '
    'or, for tests, "memory:"'
)
POSTGRES = ("postgresql", "postgres")  # schemes
REDIS = frozenset((  # schemes; stores.redis_link tells more
    "redis", "redis+sentinel", "redis+cluster", "rediss", "rediss+sentinel", "rediss+cluster", "unix",
))  # fmt: skip

MEMORY = Diagnosis(
    what="durability",
    state="weak",
    found="the store is in the memory of one process",
    consequence="when that ends, a fire may be launched again, and what was due before is not known",
    advice="use it for tests only; keep fires in sqlite:///PATH",
)


def open_store(url: str, key_prefix: str = "", wait_replicas: int = 0, *, is_lean: bool = False) -> Store:
    """`is_lean`: for a process that lives for a moment, and has no time to load a driver."""
    scheme, colon, rest = url.partition(":")
    match scheme if colon else "":
        case "sqlite":
            return _open_sqlite(rest)
        case _ if _is_redis(scheme):
            return _open_redis(url, key_prefix, wait_replicas, is_lean)
        case _ if scheme in POSTGRES:
            from detent.stores.postgres.store import PostgresStore

            return PostgresStore(url, key_prefix)
        case "memory" if not rest:
            from detent.stores.memory.store import MemoryStore

            return MemoryStore()
        case "":
            raise UsageError(f"bad store {quote(url)}: a store is named by a URL; {ALLOWED}")
    # The rest of a URL may hold a password: it is not repeated.
    raise UsageError(f"bad store {quote(scheme + ':')}: there is no such kind of store; {ALLOWED}")


def _is_redis(scheme: str) -> bool:
    return scheme in REDIS


def _open_redis(url: str, key_prefix: str, wait_replicas: int, is_lean: bool) -> Store:
    from detent.stores.redis.store import RedisStore

    if is_lean:
        from detent.stores.redis.lean_link import LeanLink, parse

        if address := parse(url):
            return RedisStore(url, key_prefix, wait_replicas, link=LeanLink(address, wait_replicas))
    return RedisStore(url, key_prefix, wait_replicas)


def _open_sqlite(rest: str) -> Store:
    from detent.stores.sqlite.store import SqliteStore

    return SqliteStore(_sqlite_path(rest))


def _sqlite_path(rest: str) -> str:
    path = rest.removeprefix("///")
    if path in ("", rest) or "\0" in path:
        raise UsageError(f"bad store {quote('sqlite:' + rest)}: it names no file; {ALLOWED}")
    return path


# For `doctor`, and for a node that starts.


def promise_of(url: str, wait_replicas: int = 0) -> tuple[Diagnosis, ...]:
    """What the settings of a store carry of the promise."""
    if _is_redis(url.partition(":")[0]):
        from detent.stores.redis.health import promise as promise_of_redis

        return promise_of_redis(url, wait_replicas)
    if url.partition(":")[0] in POSTGRES:
        from detent.stores.postgres.health import promise as promise_of_postgres

        return promise_of_postgres(url)
    if not url.startswith("sqlite:"):
        return (MEMORY,)
    from detent.stores.sqlite.health import promise

    return promise(_sqlite_path(url.removeprefix("sqlite:")))


def upkeep_of(url: str) -> tuple[Diagnosis, ...]:
    """What else could make a store go away."""
    if url.partition(":")[0] in POSTGRES:
        from detent.stores.postgres.health import upkeep as upkeep_of_postgres

        return upkeep_of_postgres(url)
    if not url.startswith("sqlite:"):
        return ()
    from detent.stores.sqlite.health import upkeep

    return upkeep(_sqlite_path(url.removeprefix("sqlite:")))
