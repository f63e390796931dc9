"""Opens the store that a URL names.  Imports only that store's modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from detent.errors import UsageError
from detent.stores.base import Diagnosis, Store
from detent.text import quote

if TYPE_CHECKING:
    from detent.stores.sql.health import Health

ALLOWED = (
    'use "sqlite:///PATH" ("sqlite:////ABSOLUTE/PATH"), "redis://HOST", "postgresql://USER@HOST/DATABASE", '
    '"mysql://USER:PASSWORD@HOST/DATABASE" or, for tests, "memory:"'
)
POSTGRES = ("postgresql", "postgres")  # schemes
MYSQL = ("mysql", "mariadb")
REDIS = frozenset((  # schemes; `redis.link` describes their URLs
    "redis", "redis+sentinel", "redis+cluster", "rediss", "rediss+sentinel", "rediss+cluster", "unix",
))  # fmt: skip

MEMORY = Diagnosis(
    what="durability",
    state="weak",
    found="the store is in the memory of one process",
    consequence="when the process ends, all records are lost, and a fire may be launched again",
    advice="use it for tests only; keep fires in sqlite:///PATH",
)


def open_store(url: str, key_prefix: str = "", wait_replicas: int = 0, *, is_lean: bool = False) -> Store:
    """`is_lean`: avoid loading redis-py if possible, for a process that makes only a few calls."""
    scheme, colon, rest = url.partition(":")
    match scheme if colon else "":
        case "sqlite":
            from detent.stores.sqlite.store import SqliteStore

            return SqliteStore(_sqlite_path(rest))
        case _ if scheme in REDIS:
            return _open_redis(url, key_prefix, wait_replicas, is_lean)
        case _ if scheme in POSTGRES:
            from detent.stores.postgres.store import PostgresStore

            return PostgresStore(url, key_prefix)
        case _ if scheme in MYSQL:
            return _open_mysql(url, key_prefix)
        case "memory" if not rest:
            from detent.stores.memory.store import MemoryStore

            return MemoryStore()
        case "":
            raise UsageError(f"bad store {quote(url)}: a store is named by a URL; {ALLOWED}")
    # The rest of a URL may hold a password, so the message leaves it out.
    raise UsageError(f"bad store {quote(scheme + ':')}: unknown kind of store; {ALLOWED}")


def _open_redis(url: str, key_prefix: str, wait_replicas: int, is_lean: bool) -> Store:
    from detent.stores.redis.store import RedisStore

    if is_lean:
        from detent.stores.redis.lean import lean_server

        if server := lean_server(url):
            return RedisStore(url, key_prefix, wait_replicas, servers=server)
    return RedisStore(url, key_prefix, wait_replicas)


def _open_mysql(url: str, key_prefix: str) -> Store:
    from detent.stores.mysql.store import MysqlStore

    if key_prefix:
        raise UsageError(
            f"bad key_prefix {quote(key_prefix)}: in MySQL each store has a database of its own; "
            "name it in the URL"
        )
    return MysqlStore(url)


def _sqlite_path(rest: str) -> str:
    path = rest.removeprefix("///")
    if path in ("", rest) or "\0" in path:
        raise UsageError(f"bad store {quote('sqlite:' + rest)}: it names no file; {ALLOWED}")
    return path


def promise_of(url: str, wait_replicas: int = 0) -> tuple[Diagnosis, ...]:
    """Whether the settings of the store keep what it acknowledged; for `doctor` and the start of a node."""
    scheme, _, rest = url.partition(":")
    if scheme in REDIS:
        from detent.stores.redis import health as redis

        return redis.promise(url, wait_replicas)
    if scheme in (*POSTGRES, *MYSQL):
        return _health_of(url).promise
    if scheme == "sqlite":
        from detent.stores.sqlite import health as sqlite

        return sqlite.promise(_sqlite_path(rest))
    return (MEMORY,)


def upkeep_of(url: str) -> tuple[Diagnosis, ...]:
    """What could make the store unavailable later; for `doctor`."""
    scheme, _, rest = url.partition(":")
    if scheme in (*POSTGRES, *MYSQL):
        return _health_of(url).upkeep
    if scheme == "sqlite":
        from detent.stores.sqlite import health as sqlite

        return sqlite.upkeep(_sqlite_path(rest))
    return ()


def _health_of(url: str) -> Health:
    from detent.stores.sql.health import health

    if url.partition(":")[0] in POSTGRES:
        from detent.stores.postgres.health import look
    else:
        from detent.stores.mysql.health import look
    return health(url, look)
