"""Checks whether the settings of a MySQL or MariaDB server keep what it acknowledged.

For `detent doctor` and the start of a node.  Isolation and lock timeouts are not checked, because every
connection sets them.
"""

from __future__ import annotations

from collections.abc import Mapping

from detent.errors import DetentError
from detent.stores.base import Diagnosis
from detent.stores.mysql.link import Links
from detent.stores.mysql.url import read_url
from detent.text import listed, plural

AGAIN = "a fire may be launched again, with the same key and a higher fence"
CONNECTIONS_A_NODE = 5  # one for each of its concurrent calls, and one that waits
_NAMES = (
    "version", "innodb_flush_log_at_trx_commit", "sync_binlog", "log_bin", "innodb_doublewrite", "wsrep_on",
    "max_connections", "binlog_format", "rpl_semi_sync_master_enabled", "rpl_semi_sync_source_enabled",
)  # fmt: skip
_SETTINGS = f"SHOW GLOBAL VARIABLES WHERE variable_name IN {_NAMES}"
_COUNTS = ("Threads_connected", "Slaves_connected", "Replicas_connected")
_STATUS = f"SHOW GLOBAL STATUS WHERE variable_name IN {_COUNTS}"


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
    rows = []
    free = int(settings["max_connections"]) - int(settings.get("Threads_connected", 0))
    if free < 2 * CONNECTIONS_A_NODE:
        consequence = f"a node needs up to {CONNECTIONS_A_NODE}; a node without a connection cannot claim"
        found = plural(free, "free connection")
        rows.append(Diagnosis("connections", "weak", found, consequence, "raise max_connections"))
    if settings["log_bin"] == "ON" and settings.get("binlog_format") == "STATEMENT":
        found, consequence = "binlog_format = STATEMENT", "the server refuses writes with READ COMMITTED"
        rows.append(Diagnosis("binary log", "bad", found, consequence, "set binlog_format to ROW"))
    return tuple(rows)


def _durability(settings: Mapping[str, str]) -> Diagnosis:
    needed = {"innodb_flush_log_at_trx_commit": "1", "innodb_doublewrite": "ON"}
    needed |= {"sync_binlog": "1"} if settings["log_bin"] == "ON" else {}
    wrong = [name for name, value in needed.items() if settings[name] not in (value, "DETECT_AND_RECOVER")]
    if not wrong:
        return Diagnosis("durability", "ok", f"{settings['version']}, every commit is synced")
    found = f"{settings['version']} with {listed([f'{name} = {settings[name]}' for name in wrong], 'and')}"
    consequence = f"a power cut may lose or corrupt acknowledged writes: {AGAIN}"
    advice = f"set {listed([f'{name} = {needed[name]}' for name in wrong], 'and')}"
    return Diagnosis("durability", "weak", found, consequence, advice)


def _failover(settings: Mapping[str, str]) -> Diagnosis:
    if settings.get("wsrep_on") == "ON":
        consequence = "its locks hold on one server only: with two, a fire may be launched twice"
        return Diagnosis("failover", "weak", "a Galera cluster", consequence, "let all nodes use one server")
    count = int(settings.get("Slaves_connected") or settings.get("Replicas_connected") or 0)
    if not count:
        return Diagnosis("failover", "ok", "no replica: nodes wait for a server that is down")
    replicas = plural(count, "replica")
    if "ON" in (settings.get(name) for name in _NAMES[-2:]):
        return Diagnosis("failover", "ok", f"{replicas}, and a commit waits for one")
    consequence = f"a replica that takes over may lack the last acknowledged writes: {AGAIN}"
    advice = "switch semi-synchronous replication on"
    return Diagnosis("failover", "weak", f"{replicas}, none semi-synchronous", consequence, advice)


def _look(url: str) -> dict[str, str]:
    """Read the settings.  Creates nothing."""
    links = Links(read_url(url), lambda link: None)
    try:
        return dict(links.look(_SETTINGS)) | dict(links.look(_STATUS))
    finally:
        links.close()
