"""Creates and upgrades the tables of the MySQL store, which has a database of its own."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from detent.errors import StoreMismatch, StoreUnavailable
from detent.stores.mysql.link import CONNECT_S, Link
from detent.stores.mysql.session import NOW
from detent.stores.sql.queries import UNSUCCESSFUL
from detent.stores.sql.schema import COUNTERS, TABLES, WORLD, statements

VERSION = 1
OLDEST = 1  # the oldest schema version whose program can use this schema
MARK = "detent_version"  # the table that shows that the database is a detent store
OLDEST_SERVERS = {"MySQL": (8, 0, 17), "MariaDB": (10, 6, 0)}
SYSTEMS = {  # what identifies the server and its data
    "MySQL": "@@server_uuid",
    "MariaDB": "CONCAT_WS(' ', @@hostname, @@port, @@datadir, @@server_id)",
}
# Texts are compared and ordered by code points, and trailing spaces count.
COLLATIONS = {"MySQL": "utf8mb4_0900_bin", "MariaDB": "utf8mb4_nopad_bin"}
TYPES = {
    "name": "VARCHAR({}) CHARACTER SET ascii COLLATE ascii_bin", "line": "VARCHAR({})", "text": "LONGTEXT",
    "real": "DOUBLE", "integer": "BIGINT", "boolean": "BOOLEAN", "bytes": "LONGBLOB",
    "serial": "BIGINT AUTO_INCREMENT PRIMARY KEY",
}  # fmt: skip
# MySQL has no partial indexes, so `state` comes first in most of them.
_INDEXES = f"""
    unsuccessful BOOLEAN AS ({UNSUCCESSFUL}) STORED,
    UNIQUE INDEX fires_key (`key`),
    INDEX fires_pending (state, app, queue, tier, look_at, run_at, `key`),
    INDEX fires_claimed (state, app, queue, expires),
    INDEX fires_laned (state, app, expires),
    INDEX fires_asked (state, node, ask),
    INDEX fires_lane (state, lane, due, `key`),
    INDEX fires_waiting (state, waits, lane, id),
    INDEX fires_parked (state, parked, lane, queue, run_at, `key`),
    INDEX fires_open (job, state, origin, due),
    INDEX fires_job (job, due, `key`),
    INDEX fires_history (due, `key`),
    INDEX fires_over (over_at),
    INDEX fires_unsuccessful (unsuccessful, due, `key`)
"""
_HAS = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()"
_CREATE_MARK = f"CREATE TABLE {MARK} (one TINYINT PRIMARY KEY, number INTEGER, oldest INTEGER)"


def kind_of(link: Link) -> str:
    """MySQL or MariaDB.  Raises if the server is too old."""
    ((text,),) = link.rows("SELECT VERSION()")
    kind = "MariaDB" if "MariaDB" in text else "MySQL"
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
    oldest = OLDEST_SERVERS[kind]
    if not numbers or tuple(map(int, numbers.groups())) < oldest:
        raise StoreMismatch(
            f"the store is a {kind} {text}, and detent needs {'.'.join(map(str, oldest))} or later: "
            "upgrade the server"
        )
    return kind


def prepare(link: Link, kind: str) -> None:
    """Create or upgrade the tables if needed.  Raises if this version cannot use them."""
    if _version(link) == VERSION:
        return
    lock = "LEFT(CONCAT('detent ', DATABASE()), 64)"
    if link.rows(f"SELECT GET_LOCK({lock}, {CONNECT_S - 1})") != [(1,)]:
        raise StoreUnavailable("another process creates the tables of the store: it will be tried again")
    try:
        _upgrade(link, kind)
    finally:
        link.rows(f"SELECT RELEASE_LOCK({lock})")


def _version(link: Link) -> int | None:
    """0: not all tables are there.  None: the database is not a detent store."""
    if link.rows(f"{_HAS} AND table_name = '{MARK}'") == [(0,)]:
        return None
    ((number, oldest),) = link.rows(f"SELECT COALESCE(MAX(number), 0), COALESCE(MAX(oldest), 0) FROM {MARK}")
    if oldest > VERSION:
        raise StoreMismatch(
            f"the store has schema {number}, and this version of detent supports at most {VERSION}: "
            "upgrade detent on this host, or name another database"
        )
    return min(int(number), VERSION)


def _upgrade(link: Link, kind: str) -> None:
    have = _version(link)
    if have is None:
        if link.rows(_HAS) != [(0,)]:
            raise StoreMismatch(
                "the database of the store belongs to another program: create another one, CREATE DATABASE …"
            )
        link.rows(_CREATE_MARK)
    for statement in _statements(have or 0, kind):
        link.rows(statement)
    world = f"SELECT 1, %s, '', {SYSTEMS[kind]}, 0, {NOW}, {NOW}, 0, {NOW}, 0"
    link.rows(f"INSERT IGNORE INTO world {world}", (os.urandom(8).hex(),))
    link.rows(f"INSERT IGNORE INTO gate VALUES (1); REPLACE INTO {MARK} VALUES (1, {VERSION}, {OLDEST})")


def _statements(have: int, kind: str) -> Iterator[str]:
    """The statements that upgrade from this version.  MySQL commits after each, so each may be repeated."""
    options = f"ENGINE=InnoDB ROW_FORMAT=DYNAMIC CHARACTER SET utf8mb4 COLLATE {COLLATIONS[kind]}"
    yield f"CREATE TABLE IF NOT EXISTS gate (one TINYINT PRIMARY KEY) {options}"  # `MysqlSession.lock_world`
    for statement in statements((TABLES, WORLD, COUNTERS), TYPES, have):
        if "CREATE INDEX" in statement:
            continue
        text = re.sub(r"^    (key|system) ", r"    `\1` ", statement, flags=re.MULTILINE)
        if " fires " in statement:
            columns = text.replace(" UNIQUE", "").rpartition("\n)")[0]
            text = f"{columns},{_INDEXES})"
        yield f"{text.replace('WITHOUT ROWID', '')} {options}"
