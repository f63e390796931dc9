"""Executes the statements of `stores.sql` in a transaction of SQLite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from detent.stores.sql.dialect import UPDATE_FIRE, Rows, Statement, inserting, on_conflict


class SqliteSession:
    LOCK = LOCK_FREE = ""  # a write transaction has the whole file
    INSERT_TELLS, APART = False, ""
    FLOOR = "CAST({} AS INTEGER)"
    EACH, AMONG = "json_each(?)", "IN (SELECT value FROM json_each(?))"

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def rows(self, statement: str, values: Sequence[Any] = ()) -> Rows:
        return self._db.execute(statement, values).fetchall()

    def several(self, statements: Sequence[Statement]) -> list[Rows]:
        return [self.rows(*one) for one in statements]

    def run_many(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        self._db.executemany(statement, values)

    def array(self, values: Iterable[str]) -> str:
        return json.dumps(list(values))

    def hint(self, index: str) -> str:
        return f"INDEXED BY {index}"

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            self.run_many(f"{inserting(table, tuple(columns))} ON CONFLICT DO NOTHING", rows)

    def upsert(
        self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], changes: str = ""
    ) -> None:
        if rows:
            self.run_many(f"{inserting(table, tuple(columns))} {on_conflict(table, columns, changes)}", rows)

    def update_fires(self, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            self.run_many(UPDATE_FIRE, rows)

    def inserted(self, keys: frozenset[str]) -> frozenset[str]:
        return keys
