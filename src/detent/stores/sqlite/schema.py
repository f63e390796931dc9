"""Creates and upgrades the schema of a SQLite store."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from detent.stores.sql.schema import COUNTERS, TABLES, statements

VERSION = 1
OLDEST = 1  # the oldest schema version whose program can use this schema
APPLICATION_ID = 0x64746E74  # "dtnt"; marks the file as a detent store
FILES = (TABLES, COUNTERS, Path(__file__).with_name("tables.sql"))
TYPES = {
    "name": "TEXT", "line": "TEXT", "text": "TEXT", "real": "REAL", "integer": "INTEGER",
    "boolean": "INTEGER", "bytes": "BLOB", "serial": "INTEGER PRIMARY KEY",
}  # fmt: skip


def look_inside(db: sqlite3.Connection) -> tuple[int, int, bool]:
    """The version of the schema, the oldest version that can use it, and whether the file belongs to another
    program.  One transaction reads them, because another process may be creating the store."""
    db.execute("BEGIN")
    try:
        if number_of(db, "PRAGMA application_id") != APPLICATION_ID and not _is_empty(db):
            return 0, 0, True
        return _version(db), number_of(db, "PRAGMA user_version"), False
    finally:
        roll_back(db)


def roll_back(db: sqlite3.Connection) -> None:
    """End a failed transaction.  After some errors, such as a full disk, SQLite has already ended it."""
    if db.in_transaction:
        db.execute("ROLLBACK")


def _version(db: sqlite3.Connection) -> int:
    """0: the file is empty."""
    has_table = number_of(db, "SELECT count(*) FROM sqlite_master WHERE name = 'version'")
    return number_of(db, "SELECT max(number) FROM version") if has_table else 0


def upgrade(db: sqlite3.Connection) -> None:
    """Upgrade the file to this version, unless another process has done so."""
    db.execute("BEGIN EXCLUSIVE")
    try:
        have = _version(db)
        for statement in statements(FILES, TYPES, have):
            db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        if have < VERSION:
            db.execute("INSERT OR REPLACE INTO version VALUES (1, ?)", (VERSION,))
            db.execute(f"PRAGMA user_version = {OLDEST}")
        db.execute("COMMIT")
    except BaseException:
        roll_back(db)
        raise


def number_of(db: sqlite3.Connection, statement: str, *values: str) -> int:
    return int(db.execute(statement, values).fetchone()[0])


def _is_empty(db: sqlite3.Connection) -> bool:
    return number_of(db, "SELECT count(*) FROM sqlite_master") == 0
