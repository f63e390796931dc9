"""Checks the settings of a MySQL or MariaDB server, as `stores.sql.health` says."""

from collections.abc import Mapping
from contextlib import closing

from detent.stores.base import Diagnosis
from detent.stores.mysql.link import Links
from detent.stores.mysql.url import read_url
from detent.stores.sql.health import Health, connections, durability, failover
from detent.text import plural

_NAMES = (
    "version", "innodb_flush_log_at_trx_commit", "sync_binlog", "log_bin", "innodb_doublewrite", "wsrep_on",
    "max_connections", "binlog_format", "rpl_semi_sync_master_enabled", "rpl_semi_sync_source_enabled",
)  # fmt: skip
_SETTINGS = f"SHOW GLOBAL VARIABLES WHERE variable_name IN {_NAMES}"
_COUNTS = ("Threads_connected", "Slaves_connected", "Replicas_connected")
_STATUS = f"SHOW GLOBAL STATUS WHERE variable_name IN {_COUNTS}"


def look(url: str) -> Health:
    """Creates nothing."""
    with closing(Links(read_url(url), lambda link: None)) as links:
        settings: dict[str, str] = dict(links.look(_SETTINGS)) | dict(links.look(_STATUS))
    needed = {"innodb_flush_log_at_trx_commit": "1", "innodb_doublewrite": "ON"}
    needed |= {"sync_binlog": "1"} if settings["log_bin"] == "ON" else {}
    pairs = {name: (settings[name], value) for name, value in needed.items()}
    unsafe = {name: pair for name, pair in pairs.items() if pair[0] not in (pair[1], "DETECT_AND_RECOVER")}
    free = int(settings["max_connections"]) - int(settings.get("Threads_connected", 0))
    rows = connections(free, "raise max_connections")
    if settings["log_bin"] == "ON" and settings.get("binlog_format") == "STATEMENT":
        found, consequence = "binlog_format = STATEMENT", "the server refuses writes with READ COMMITTED"
        rows += (Diagnosis("binary log", "bad", found, consequence, "set binlog_format to ROW"),)
    return Health((durability(settings["version"], unsafe), _failover(settings)), rows)


def _failover(settings: Mapping[str, str]) -> Diagnosis:
    if settings.get("wsrep_on") == "ON":
        consequence = "its locks hold on one server only: with two, a fire may be launched twice"
        return Diagnosis("failover", "weak", "a Galera cluster", consequence, "let all nodes use one server")
    count = int(settings.get("Slaves_connected") or settings.get("Replicas_connected") or 0)
    is_awaited = count > 0 and "ON" in (settings.get(name) for name in _NAMES[-2:])
    replicas = plural(count, "replica") if count else "no replica"
    advice = "switch semi-synchronous replication on"
    return failover(replicas, advice, are_there=count > 0, is_awaited=is_awaited)
