"""Executes the statements of `stores.sql` in a transaction of PostgreSQL, in pipeline mode.

A statement without a result is sent with the next one that has a result.  Rows are written with one
statement: a column whose rows have different values is an array, any other is one value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from detent.stores.sql.columns import STATE
from detent.stores.sql.dialect import Rows, Statement

if TYPE_CHECKING:
    from psycopg import Connection, Cursor, Pipeline

FLOATS = {
    "due", "start_by", "first", "run_at", "look_at", "ttl", "expires", "ran_at", "over_at", "keep_until",
    "started", "ended", "took", "at", "asked_at", "steps", "seen", "born", "doubted", "quarantined_until",
    "longest_ttl_s",
}  # fmt: skip
INTEGERS = {
    "id", "one", "instants", "version", "attempt", "recorded", "fence", "ask", "ran_fence", "fire", "number",
    "status",
}  # fmt: skip
LONG = 5000  # the text of a longer statement is not kept
OTHERS = {"parked": "boolean", "waits": "boolean", "tail": "bytea"}


class Reading(float):
    """A reading of the clock that the server made in this transaction, and the client does not know yet."""

    def __new__(cls, setting: str) -> Reading:
        return super().__new__(cls, "nan")

    def __init__(self, setting: str) -> None:
        self.sql = f"current_setting('{setting}')::float8"


class PostgresSession:
    LOCK, LOCK_FREE = "FOR UPDATE", "FOR UPDATE SKIP LOCKED"
    INSERT_TELLS, APART = True, "OFFSET 0"
    FLOOR = "floor({})"
    EACH, AMONG = "unnest(?::text[]) AS each(value)", "= ANY (?::text[])"

    def __init__(self, db: Connection[Any], pipeline: Pipeline) -> None:
        self._db, self._pipeline = db, pipeline
        self._inserted: list[Cursor[Any]] = []  # of fires

    def rows(self, statement: str, values: Sequence[Any] = ()) -> Rows:
        return self.several([(statement, values)])[0]

    def several(self, statements: Sequence[Statement]) -> list[Rows]:
        cursors = [self.send(*one) for one in statements]
        self._pipeline.sync()
        return [_rows(cursor) for cursor in cursors]

    def send(self, statement: str, values: Sequence[Any] = ()) -> Cursor[Any]:
        """Execute a statement whose result is not needed yet."""
        readings = tuple((place, one.sql) for place, one in enumerate(values) if type(one) is Reading)
        given = [storable(one) for one in values if type(one) is not Reading]
        text = _text if len(statement) < LONG else _text.__wrapped__
        return self._db.execute(text(statement, readings), given)

    def for_each(self, statement: str, texts: Sequence[str], values: Sequence[Any]) -> Rows:
        lateral = f"CROSS JOIN LATERAL ({statement.replace('?', 'each.value', 1)}) AS found"
        return self.rows(f"SELECT found.* FROM {self.EACH} {lateral}", ([*texts], *values))

    def run_many(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        for row in values:
            self.send(statement, row)

    def array(self, values: Iterable[str]) -> list[str]:
        return list(values)

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            statement, values = inserting(table, columns, rows)
            cursor = self.send(statement, values)
            if table == "fires":
                self._inserted.append(cursor)

    def inserted(self) -> frozenset[str]:
        """The keys of the fires that were inserted."""
        return frozenset(key for cursor in self._inserted for (key,) in cursor.fetchall())

    def upsert(
        self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], keys: int = 1
    ) -> None:
        if rows:
            last = {tuple(row[:keys]): row for row in rows}
            text, values = _given(columns, [*last.values()], keys)
            self.send(_upsert(table, tuple(columns), keys, text), values)

    def delete(self, table: str, column: str, ids: Sequence[int]) -> None:
        self.send(f"DELETE FROM {table} WHERE {column} = ANY (?::bigint[])", ([*ids],))

    def update_jobs(self, column: str, rows: Sequence[tuple[float, str]], *, grows: bool = False) -> None:
        if rows:
            later = f" AND ({column} IS NULL OR {column} < given.at)" if grows else ""
            source = "(SELECT * FROM unnest(?::float8[], ?::text[]) AS one(at, job)) AS given"
            statement = f"UPDATE jobs SET {column} = given.at FROM {source} WHERE jobs.job = given.job{later}"
            self.send(statement, [[*values] for values in zip(*rows, strict=True)])

    def update_fires(self, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            columns = ("id", *STATE)
            text, values = _given(columns, [(row[-1], *row[:-1]) for row in rows], 1)
            self.send(f"{_UPDATE} FROM ({text}) AS given WHERE fires.id = given.id", values)

    def hint(self, index: str) -> str:
        return ""


def _rows(cursor: Cursor[Any]) -> Rows:
    """Its rows; `cursor.description` would build a value for each column."""
    return cursor.fetchall() if cursor.pgresult and cursor.pgresult.nfields else []


def inserting(table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Statement:
    """Inserts rows whose key is new.  In the order of their keys, so that two inserts do not deadlock; the
    ids of fires grow in the order of the rows."""
    text, values = _given(columns, rows, 2 if table == "cells" else 1)
    return _insert(table, tuple(columns), text), values


def storable(value: Any) -> Any:
    """Text that PostgreSQL accepts: without NUL, and without bytes of a file name that are not Unicode."""
    if type(value) is list:
        return [storable(one) for one in value]
    if type(value) is not str or (value.isascii() and "\0" not in value):
        return value
    return value.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


def _given(columns: Sequence[str], rows: Sequence[Sequence[Any]], keys: int) -> tuple[str, list[Any]]:
    """Selects these rows, and the values for that.  Keys are always an array."""
    by_column = [[*column] for column in zip(*rows, strict=True)]
    for place, name in enumerate(columns):
        if name in FLOATS:  # psycopg accepts no array of integers and floats
            by_column[place] = [None if one is None else float(one) for one in by_column[place]]
    varies = tuple(
        place < keys or any(one != column[0] for one in column) for place, column in enumerate(by_column)
    )
    shared = [column[0] for column, several in zip(by_column, varies, strict=True) if not several]
    arrays = [column for column, several in zip(by_column, varies, strict=True) if several]
    return _select(tuple(columns), varies), shared + arrays


@lru_cache(1024)
def _select(columns: tuple[str, ...], varies: tuple[bool, ...]) -> str:
    pairs = [*zip(columns, varies, strict=True)]
    shared = [f"?::{_type(name)} AS {name}" for name, several in pairs if not several]
    arrays = [name for name, several in pairs if several]
    given = ", ".join(f"?::{_type(name)}[]" for name in arrays)
    return f"SELECT {', '.join(shared + arrays)} FROM unnest({given}) AS one({', '.join(arrays)})"


@lru_cache(1024)
def _insert(table: str, columns: tuple[str, ...], given: str) -> str:
    names = ", ".join(columns)
    if table == "fires":
        numbered = f"SELECT nextval('fire_ids') AS id, {names} FROM ({given}) AS one"
        source = f"INSERT INTO fires (id, {names}) SELECT id, {names} FROM ({numbered}) AS numbered"
        return f"{source} ORDER BY key ON CONFLICT DO NOTHING RETURNING key"
    key = ", ".join(columns[: 2 if table == "cells" else 1])
    source = f"INSERT INTO {table} ({names}) SELECT {names} FROM ({given}) AS one"
    return f"{source} ORDER BY {key} ON CONFLICT DO NOTHING"


@lru_cache(1024)
def _upsert(table: str, columns: tuple[str, ...], keys: int, given: str) -> str:
    names, key = ", ".join(columns), ", ".join(columns[:keys])
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns[keys:])
    source = f"INSERT INTO {table} ({names}) SELECT {names} FROM ({given}) AS one ORDER BY {key}"
    return f"{source} ON CONFLICT ({key}) DO UPDATE SET {changes}"


@lru_cache(4096)
def _text(statement: str, readings: tuple[tuple[int, str], ...]) -> Any:
    """The statement as psycopg wants it."""
    known = dict(readings)
    first, *parts = statement.replace("%", "%%").split("?")
    return (first + "".join(known.get(n, "%s") + part for n, part in enumerate(parts))).encode()


def _type(column: str) -> str:
    return "float8" if column in FLOATS else "bigint" if column in INTEGERS else OTHERS.get(column, "text")


_UPDATE = f"UPDATE fires SET {', '.join(f'{name} = given.{name}' for name in STATE)}"
