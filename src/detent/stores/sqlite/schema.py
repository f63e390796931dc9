"""Creates and upgrades the schema of a SQLite store."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from detent.stores.sql.schema import COUNTERS, TABLES, statements
from detent.stores.sqlite.marks import APPLICATION_ID, OLDEST, VERSION, roll_back, version_of

FILES = (TABLES, COUNTERS, Path(__file__).with_name("tables.sql"))
TYPES = {
    "name": "TEXT", "line": "TEXT", "text": "TEXT", "real": "REAL", "integer": "INTEGER",
    "boolean": "INTEGER", "bytes": "BLOB", "serial": "INTEGER PRIMARY KEY",
}  # fmt: skip


def upgrade(db: sqlite3.Connection) -> None:
    """Upgrade the file to this version, unless another process has done so."""
    db.execute("BEGIN EXCLUSIVE")
    try:
        have = version_of(db)
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
