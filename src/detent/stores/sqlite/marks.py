"""Reads what a SQLite file says about itself: whether it is a store, and the version of its schema."""

from __future__ import annotations

import sqlite3

APPLICATION_ID = 0x64746E74  # "dtnt"; marks the file as a detent store
VERSION = 1  # of the schema
OLDEST = 1  # the oldest schema version whose program can use this schema


def look_inside(db: sqlite3.Connection) -> tuple[int, int, bool]:
    """The version of the schema, the oldest version that can use it, and whether the file belongs to another
    program.  One transaction reads them, because another process may be creating the store."""
    db.execute("BEGIN")
    try:
        if number_of(db, "PRAGMA application_id") != APPLICATION_ID and not _is_empty(db):
            return 0, 0, True
        return version_of(db), number_of(db, "PRAGMA user_version"), False
    finally:
        roll_back(db)


def roll_back(db: sqlite3.Connection) -> None:
    """End a failed transaction.  After some errors, such as a full disk, SQLite has already ended it."""
    if db.in_transaction:
        db.execute("ROLLBACK")


def version_of(db: sqlite3.Connection) -> int:
    """0: the file is empty."""
    has_table = number_of(db, "SELECT count(*) FROM sqlite_master WHERE name = 'version'")
    return number_of(db, "SELECT max(number) FROM version") if has_table else 0


def number_of(db: sqlite3.Connection, statement: str, *values: str) -> int:
    return int(db.execute(statement, values).fetchone()[0])


def _is_empty(db: sqlite3.Connection) -> bool:
    return number_of(db, "SELECT count(*) FROM sqlite_master") == 0
