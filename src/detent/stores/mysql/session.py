"""Executes the statements of `stores.sql` in a transaction of MySQL or MariaDB.

A statement without a result is sent with the next one that has a result.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from detent.stores.base import leap
from detent.stores.engine.unit import Conflict
from detent.stores.mysql.link import IDLE_S, Link
from detent.stores.sql import driver
from detent.stores.sql.dialect import (
    UPDATE_FIRE,
    Reading,
    Rows,
    Statement,
    bound,
    inserting,
    key_of,
    on_conflict,
)
from detent.stores.sql.pool import REST_S
from detent.stores.sql.queries import UNSUCCESSFUL
from detent.stores.sql.server import HEADER
from detent.stores.sql.writes import Stamp

NOW = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) / 1e6"  # no time zone has a part in it
STATEMENT_MAX = 1 << 20  # characters of statements that are sent together


class MysqlSession:
    LOCK, LOCK_FREE = "FOR UPDATE", "FOR UPDATE SKIP LOCKED"
    INSERT_TELLS, APART = False, ""
    FLOOR = "FLOOR({})"
    EACH, AMONG = "each_of(?)", "IN (SELECT value FROM each_of(?))"  # `_translated` replaces them
    WALL, STEADY = Reading("@detent_wall"), Reading("@detent_steady")

    def __init__(self, link: Link, system: str) -> None:
        self._link, self._system = link, system  # what identifies the server
        self._waiting: list[str] = []

    def rows(self, statement: str, values: Sequence[Any] = ()) -> Rows:
        return self.several([(statement, values)])[0]

    def several(self, statements: Sequence[Statement]) -> list[Rows]:
        count = len(self._waiting)
        for text, values in statements:
            self._send(text, [values])
        texts, self._waiting = self._waiting, []
        return self._link.all_rows("; ".join(texts))[count:] if texts else []

    def run_many(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        self._send(statement, values)
        if sum(map(len, self._waiting)) > STATEMENT_MAX:
            self.several([])

    def _send(self, statement: str, all_values: Iterable[Sequence[Any]]) -> None:
        """Execute a statement for each row of values, before the next one that returns rows."""
        text = _translated(statement)
        with self._link.db.cursor() as cursor:
            self._waiting += [cursor.mogrify(*bound(text, values, _finite)) for values in all_values]

    def array(self, values: Iterable[str]) -> list[str | None]:
        return list(values) or [None]

    def hint(self, index: str) -> str:
        return f"FORCE INDEX ({index})"

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """A fire that another transaction has inserted meanwhile is a conflict.  Not `INSERT IGNORE`, which
        also accepts a text that is too long, and cuts it."""
        statement = f"{inserting(table, tuple(columns))} ON CONFLICT DO NOTHING"
        if table != "fires":
            self._send(statement, sorted(map(tuple, rows)))  # locked in one order, against deadlocks
        elif rows:
            self.several([])
            text = bound(_translated(statement), (), _finite)[0]
            with self._link.db.cursor() as cursor:  # PyMySQL makes one statement of many rows
                if cursor.executemany(text, rows) != len(rows):
                    raise Conflict

    def upsert(
        self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], changes: str = ""
    ) -> None:
        statement = f"{inserting(table, tuple(columns))} {on_conflict(table, columns, changes)}"
        keys = len(key_of(table, columns))
        self._send(statement, sorted(rows, key=lambda row: tuple(row[:keys])))

    def update_fires(self, rows: Sequence[Sequence[Any]]) -> None:
        self.run_many(UPDATE_FIRE, rows)

    def inserted(self, keys: frozenset[str]) -> frozenset[str]:
        return keys

    # Transactions.

    def begin(self) -> None:
        self._send(f"SET SESSION wait_timeout = {IDLE_S}", [()])
        self._send("START TRANSACTION", [()])

    def header(self, app: str, fences: int | None = None) -> list[Statement]:
        steady = "SET @detent_steady = @detent_wall - (SELECT steps FROM world)"
        header = f"SELECT {HEADER}, @detent_wall, {self._system} FROM world LEFT JOIN apps ON app = ?"
        newest = [driver.fence_of(self, app)] if fences else []
        return [*newest, (f"SET @detent_wall = {NOW}", ()), (steady, ()), (header, (app,))]

    def end(self, statement: str) -> None:
        self._send(statement, [()])
        self._send(f"SET SESSION wait_timeout = {2 * REST_S}", [()])
        self._link.is_committing = statement == "COMMIT"

    def lock_world(self, *, exclusively: bool) -> Statement:
        """Not the world itself, whose row is read and written at any time."""
        return f"SELECT one FROM gate {'FOR UPDATE' if exclusively else 'LOCK IN SHARE MODE'}", ()

    def stamp(self, found: list[Rows], app: str, fences: int) -> Stamp | None:
        """The version is random, so that commits need not wait for each other to count."""
        version, wall = int.from_bytes(os.urandom(8), "big") >> 2 | 1, found[-1][0][-2]
        first = driver.give_fences(self, app, fences, found[0], leap(0, wall) + 1) if fences else 0
        return Stamp(version, first)

    raise_fences, wake_nodes = driver.raise_fences, driver.wake_nodes

    def allow_more_time(self) -> None:
        """The limit of a connection cannot be changed; no statement of a commit needs more."""


def _finite(value: Any) -> Any:
    """MySQL has no infinite numbers."""
    return min(max(value, -1e300), 1e300) if type(value) is float else value


@lru_cache(maxsize=500)
def _translated(statement: str) -> str:
    if " AS history " in statement:  # MySQL does not keep the order of a table in FROM
        statement = statement.removesuffix(" LIMIT ?") + " ORDER BY due DESC, key DESC LIMIT ?"
    for text, replacement in _REPLACEMENTS:
        statement = statement.replace(text, replacement)
    for pattern, replacement in _PATTERNS:
        statement = pattern.sub(replacement, statement)
    return statement


_PATTERNS = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(INSERT INTO \w+ \()(\w+)(.*) ON CONFLICT DO NOTHING", r"\1\2\3 ON DUPLICATE KEY UPDATE \2 = \2"),
        (r"ON CONFLICT \([^)]+\) DO UPDATE SET", "ON DUPLICATE KEY UPDATE"),
        (r"\bexcluded\.(\w+)", r"VALUES(\1)"),
        (r"(?<!`)\b(key|system)\b(?!`)", r"`\1`"),
    )
]
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
