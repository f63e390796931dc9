"""Executes the statements of `stores.sql` in a transaction of SQLite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from detent.stores.sql.columns import STATE
from detent.stores.sql.dialect import Rows, Statement


class SqliteSession:
    LOCK = LOCK_FREE = ""  # a write transaction has the whole file
    INSERT_TELLS, APART = False, ""
    FLOOR = "CAST({} AS INTEGER)"
    EACH, AMONG = "json_each(?)", "IN (SELECT value FROM json_each(?))"

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    def rows(self, statement: str, values: Sequence[Any] = ()) -> Rows:
        return self.db.execute(statement, values).fetchall()

    def several(self, statements: Sequence[Statement]) -> list[Rows]:
        return [self.rows(*one) for one in statements]

    def for_each(self, statement: str, texts: Sequence[str], values: Sequence[Any]) -> Rows:
        found = self.several([(statement, (text, *values)) for text in texts])
        return [row for rows in found for row in rows]

    def run_many(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        self.db.executemany(statement, values)

    def array(self, values: Iterable[str]) -> str:
        return json.dumps(list(values))

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            self.db.executemany(_insert(table, tuple(columns)) + " ON CONFLICT DO NOTHING", rows)

    def upsert(
        self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], keys: int = 1
    ) -> None:
        if rows:
            self.db.executemany(_upsert(table, tuple(columns), keys), rows)

    def delete(self, table: str, column: str, ids: Sequence[int]) -> None:
        self.db.executemany(f"DELETE FROM {table} WHERE {column} = ?", [(id,) for id in ids])

    def update_jobs(self, column: str, rows: Sequence[tuple[float, str]], *, grows: bool = False) -> None:
        later = f" AND ({column} IS NULL OR {column} < ?1)" if grows else ""
        self.db.executemany(f"UPDATE jobs SET {column} = ?1 WHERE job = ?2{later}", rows)

    def update_fires(self, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            self.db.executemany(_UPDATE, rows)

    def hint(self, index: str) -> str:
        return f"INDEXED BY {index}"


@lru_cache
def _insert(table: str, columns: tuple[str, ...]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


@lru_cache
def _upsert(table: str, columns: tuple[str, ...], keys: int) -> str:
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns[keys:])
    return f"{_insert(table, columns)} ON CONFLICT ({', '.join(columns[:keys])}) DO UPDATE SET {changes}"


_UPDATE = f"UPDATE fires SET {', '.join(f'{name} = ?' for name in STATE)} WHERE id = ?"
