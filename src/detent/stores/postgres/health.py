"""Checks whether the settings of a PostgreSQL server keep what it acknowledged.

For `detent doctor` and the start of a node.  `synchronous_commit` is not checked, because every call sets it.
Without `pg_monitor`, a user sees only the number of standbys.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from detent.errors import DetentError
from detent.stores.base import Diagnosis
from detent.stores.postgres.link import SCHEMA, Links
from detent.text import plural

AGAIN = "a fire may be launched again, with the same key and a higher fence"
CONNECTIONS_A_NODE = 5  # one for each of its concurrent calls, and one that listens
_LOOK = """
SELECT json_build_object(
    'fsync', current_setting('fsync'), 'full_page_writes', current_setting('full_page_writes'),
    'standby_names', current_setting('synchronous_standby_names'),
    'standbys', (SELECT count(*) FROM pg_stat_replication),
    'version', current_setting('server_version'), 'encoding', current_setting('server_encoding'),
    'free', current_setting('max_connections')::integer
        - (SELECT count(*) FROM pg_stat_activity WHERE datname IS NOT NULL))
"""


def promise(url: str) -> tuple[Diagnosis, ...]:
    """Whether acknowledged writes survive a crash and a failover."""
    try:
        settings = _look(url)
    except DetentError as error:
        return (Diagnosis("durability", "weak", str(error), "its durability is unknown"),)
    return _durability(settings), _failover(settings)


def upkeep(url: str) -> tuple[Diagnosis, ...]:
    """What could make the store unavailable later."""
    try:
        settings = _look(url)
    except DetentError:
        return ()  # `promise` reports it
    return tuple(row for row in (_encoding(settings), _connections(settings)) if row.state != "ok")


def _durability(settings: Mapping[str, Any]) -> Diagnosis:
    off = [name for name in ("fsync", "full_page_writes") if settings[name] != "on"]
    if off:
        found = f"PostgreSQL {settings['version']} with {' and '.join(f'{name} = off' for name in off)}"
        consequence = f"a power cut may lose or corrupt acknowledged writes: {AGAIN}"
        return Diagnosis("durability", "weak", found, consequence, f"set {' and '.join(off)} to on")
    return Diagnosis("durability", "ok", f"PostgreSQL {settings['version']}, every commit is synced")


def _failover(settings: Mapping[str, Any]) -> Diagnosis:
    standbys, names = settings["standbys"], settings["standby_names"].strip()
    if not standbys and not names:
        return Diagnosis("failover", "ok", "no standby: nodes wait for a server that is down")
    count = plural(standbys, "standby")
    if names:
        found = f"{count}, and a commit waits for a synchronous one"
        return Diagnosis("failover", "ok", found)
    consequence = f"a standby that takes over may lack the last acknowledged writes: {AGAIN}"
    found = f"{count}, none synchronous"
    return Diagnosis("failover", "weak", found, consequence, "set synchronous_standby_names")


def _encoding(settings: Mapping[str, Any]) -> Diagnosis:
    if settings["encoding"] == "UTF8":
        return Diagnosis("encoding", "ok", "UTF8")
    found, consequence = (
        f"the database is in {settings['encoding']}",
        "it refuses text that this cannot express",
    )
    return Diagnosis("encoding", "weak", found, consequence, "use a database that was created with UTF8")


def _connections(settings: Mapping[str, Any]) -> Diagnosis:
    found = plural(settings["free"], "free connection")
    if settings["free"] >= 2 * CONNECTIONS_A_NODE:
        return Diagnosis("connections", "ok", found)
    consequence = f"a node needs up to {CONNECTIONS_A_NODE}; a node without a connection cannot claim"
    return Diagnosis("connections", "weak", found, consequence, "raise max_connections, or use a pooler")


def _look(url: str) -> Mapping[str, Any]:
    """Read the settings.  Creates nothing; raises for a standby."""
    links = Links(url, SCHEMA, lambda link: None)
    with closing(links), links.link() as link:
        found: Mapping[str, Any] = link.value(_LOOK)
        return found
