"""Creates and upgrades the tables of the MySQL store, which has a database of its own."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from detent.errors import StoreMismatch, StoreUnavailable
from detent.stores.mysql.link import CONNECT_S, Link
from detent.stores.sql.queries import UNSUCCESSFUL

VERSION = 1
OLDEST = 1  # the oldest schema version whose program can use this schema
MARK = "detent_version"  # the table that shows that the database is a detent store
OLDEST_SERVERS = {"MySQL": (8, 0, 17), "MariaDB": (10, 6, 0)}
COLLATIONS = {"MySQL": "utf8mb4_0900_bin", "MariaDB": "utf8mb4_nopad_bin"}
_HAS = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()"
_CREATE_MARK = f"CREATE TABLE {MARK} (one TINYINT PRIMARY KEY, number INTEGER, oldest INTEGER)"
NOW = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) / 1e6"  # no time zone has a part in it
SYSTEMS = {  # what identifies the server and its data
    "MySQL": "@@server_uuid",
    "MariaDB": "CONCAT_WS(' ', @@hostname, @@port, @@datadir, @@server_id)",
}


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
    for statement in _statements(have or 0):
        link.rows(statement.replace("{text}", COLLATIONS[kind]).replace("{unsuccessful}", UNSUCCESSFUL))
    world = f"SELECT 1, %s, '', {SYSTEMS[kind]}, 0, {NOW}, {NOW}, 0, {NOW}, 0"
    link.rows(f"INSERT IGNORE INTO world {world}", (os.urandom(8).hex(),))
    link.rows(f"INSERT IGNORE INTO gate VALUES (1); REPLACE INTO {MARK} VALUES (1, {VERSION}, {OLDEST})")


def _statements(have: int) -> Iterator[str]:
    """The statements that upgrade from this version."""
    script = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")
    for section in script.split("-- version ")[1:]:
        version, _, rest = section.partition("\n")
        bare = "\n".join(line.partition("--")[0] for line in rest.splitlines())
        yield from (one for one in bare.split(";") if one.strip() and int(version) > have)
