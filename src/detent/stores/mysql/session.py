"""Executes the statements of `stores.sql` in a transaction of MySQL or MariaDB."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from detent.stores.engine.unit import Conflict
from detent.stores.mysql.link import Link
from detent.stores.sql.columns import STATE
from detent.stores.sql.dialect import Rows, Statement
from detent.stores.sql.queries import UNSUCCESSFUL


class MysqlSession:
    LOCK, LOCK_FREE = "FOR UPDATE", "FOR UPDATE SKIP LOCKED"
    INSERT_TELLS, APART = False, ""
    FLOOR = "FLOOR({})"
    EACH, AMONG = "each_of(?)", "IN (SELECT value FROM each_of(?))"  # `_translated` replaces them

    def __init__(self, link: Link) -> None:
        self.link = link

    def rows(self, statement: str, values: Sequence[Any] = ()) -> Rows:
        return self.several([(statement, values)])[0]

    def several(self, statements: Sequence[Statement]) -> list[Rows]:
        return self.link.several([(_translated(text), values) for text, values in statements])

    def for_each(self, statement: str, texts: Sequence[str], values: Sequence[Any]) -> Rows:
        found = self.several([(statement, (text, *values)) for text in texts])
        return [row for rows in found for row in rows]

    def run_many(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        self.link.send(_translated(statement), (tuple(map(_finite, row)) for row in values))

    def array(self, values: Iterable[str]) -> list[str | None]:
        return list(values) or [None]

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """A fire that another transaction has inserted meanwhile is a conflict.  Not `INSERT IGNORE`, which
        also accepts a text that is too long, and cuts it."""
        statement = _insert(table, tuple(columns), 0)
        if table != "fires":
            self.link.send(statement, sorted(map(tuple, rows)))  # locked in one order, against deadlocks
        elif rows and self.link.insert(statement, rows) != len(rows):
            raise Conflict

    def upsert(
        self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], keys: int = 1
    ) -> None:
        self.link.send(_insert(table, tuple(columns), keys), sorted(rows, key=lambda row: tuple(row[:keys])))

    def delete(self, table: str, column: str, ids: Sequence[int]) -> None:
        self.run_many(f"DELETE FROM {table} WHERE {column} = ?", [(id,) for id in ids])

    def update_jobs(self, column: str, rows: Sequence[tuple[float, str]], *, grows: bool = False) -> None:
        if grows:
            text = f"UPDATE jobs SET {column} = ? WHERE job = ? AND ({column} IS NULL OR {column} < ?)"
            self.run_many(text, [(at, job, at) for at, job in rows])
        else:
            self.run_many(f"UPDATE jobs SET {column} = ? WHERE job = ?", rows)

    def update_fires(self, rows: Sequence[Sequence[Any]]) -> None:
        self.link.send(_UPDATE, rows)

    def hint(self, index: str) -> str:
        return f"FORCE INDEX ({index})"


def _finite(value: Any) -> Any:
    """MySQL has no infinite numbers."""
    return min(max(value, -1e300), 1e300) if type(value) is float else value


@lru_cache(maxsize=500)
def _translated(statement: str) -> str:
    if " AS history " in statement:  # MySQL does not keep the order of a table in FROM
        statement = statement.removesuffix(" LIMIT ?") + " ORDER BY due DESC, key DESC LIMIT ?"
    for text, replacement in _REPLACEMENTS:
        statement = statement.replace(text, replacement)
    return re.sub(r"(?<!`)\bkey\b(?!`)", "`key`", statement).replace("?", "%s")


@lru_cache
def _insert(table: str, columns: tuple[str, ...], keys: int) -> str:
    """Without `keys`, a row whose key exists is left as it is."""
    names = [f"`{name}`" for name in columns]
    places = ", ".join(["%s"] * len(columns))
    changes = [f"{name} = VALUES({name})" for name in names[keys:]] if keys else [f"{names[0]} = {names[0]}"]
    begin = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({places})"
    return f"{begin} ON DUPLICATE KEY UPDATE {', '.join(changes)}"


_UPDATE = f"UPDATE fires SET {', '.join(f'{name} = %s' for name in STATE)} WHERE id = %s"
# A statement that locks rows must find them by an index.  Without a hint, the server reads all rows of a
# small table, and waits for those that others have locked.  An index serves `parked = 1`, not `parked`.
_DUE = "FROM fires WHERE state = 'pending' AND app"
_REPLACEMENTS = (
    ("FROM fires WHERE key IN", "FROM fires FORCE INDEX (fires_key) WHERE key IN"),
    (_DUE, _DUE.replace("fires", "fires FORCE INDEX (fires_pending)")),
    ("FROM cells WHERE app = ? AND name IN", "FROM cells FORCE INDEX (PRIMARY) WHERE app = ? AND name IN"),
    ("FROM jobs WHERE job IN", "FROM jobs FORCE INDEX (PRIMARY) WHERE job IN"),
    (" AND parked", " AND parked = 1"),
    (" AND waits", " AND waits = 1"),
    (UNSUCCESSFUL, "unsuccessful = 1"),
    ("IN (SELECT value FROM each_of(?))", "IN ?"),
    (
        "each_of(?)",
        "JSON_TABLE(JSON_ARRAY?, '$[*]' COLUMNS (value VARCHAR(300) CHARACTER SET ascii COLLATE ascii_bin "
        "PATH '$')) AS elements",
    ),
)  # fmt: skip
