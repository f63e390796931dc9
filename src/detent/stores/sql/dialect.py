"""What differs between SQL databases."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from detent.stores.sql.columns import STATE

Rows = list[tuple[Any, ...]]
Statement = tuple[str, Sequence[Any]]  # with its values
T = TypeVar("T")
# Statements whose results decide about the next ones: yields some that do not depend on each other, is sent
# the rows of each, and returns a value.
Steps = Generator[list[Statement], list[Rows], T]


class Session(Protocol):
    """An open transaction.  Statements have `?` for each value."""

    LOCK: str  # ends a SELECT whose rows stay locked until the transaction ends
    LOCK_FREE: str  # the same, and passes over rows that another transaction has locked
    APART: str  # ends a subquery that the database executes on its own, before its other conditions
    EACH: str  # a table with the column `value`, made of an array
    AMONG: str  # comes after a text: whether it is in an array
    FLOOR: str  # a format: the whole number that does not exceed a value
    INSERT_TELLS: bool  # whether `inserted` knows which keys existed; else they are read first

    def rows(self, statement: str, values: Sequence[Any] = ()) -> Rows:
        """Execute a statement, and return its rows."""

    def several(self, statements: Sequence[Statement]) -> list[Rows]:
        """Execute statements, in one round trip if the database can.  Returns the rows of each."""

    def run_many(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        """Execute a statement for each row of values."""

    def array(self, values: Iterable[str]) -> Any:
        """One value that holds several texts, for `EACH` and `AMONG`."""

    def hint(self, index: str) -> str:
        """Comes after a table's name, to read it by this index; "": the database chooses well on its own."""

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows; a row whose key exists is left as it is."""

    def upsert(
        self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], changes: str = ""
    ) -> None:
        """Insert rows, or change those with the same key: as `changes` says, or all columns but the key."""

    def update_fires(self, rows: Sequence[Sequence[Any]]) -> None:
        """Change fires.  A row has the values of `columns.STATE`, and the id."""

    def inserted(self, keys: frozenset[str]) -> frozenset[str]:
        """Those of these keys whose fires this transaction has inserted."""


def drive(session: Session, all_steps: Sequence[Steps[Any]]) -> list[Any]:
    """Run several of them side by side, and return the value of each."""
    values: list[Any] = [None] * len(all_steps)
    sent: dict[int, list[Rows] | None] = dict.fromkeys(range(len(all_steps)))
    while sent:
        asked: dict[int, list[Statement]] = {}
        for place, rows in sent.items():
            try:
                asked[place] = all_steps[place].send(rows)  # type: ignore[arg-type]  # None starts it
            except StopIteration as end:
                values[place] = end.value
        found = iter(session.several([one for some in asked.values() for one in some]) if asked else ())
        sent = {place: [next(found) for _ in some] for place, some in asked.items()}
    return values


# Statements that databases share.


def key_of(table: str, columns: Sequence[str]) -> Sequence[str]:
    """The columns of the key, which come first."""
    return columns[: 2 if table in ("attempts", "cells") else 1]


def on_conflict(table: str, columns: Sequence[str], changes: str) -> str:
    """Ends an INSERT that changes the rows whose key exists; without `changes`, in all other columns."""
    key = key_of(table, columns)
    all_others = ", ".join(f"{name} = excluded.{name}" for name in columns[len(key) :])
    return f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changes or all_others}"


@lru_cache
def inserting(table: str, columns: tuple[str, ...]) -> str:
    """Inserts one row."""
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


UPDATE_FIRE = f"UPDATE fires SET {', '.join(f'{name} = ?' for name in STATE)} WHERE id = ?"


class Reading(float):
    """A reading of the clock that the server made in this transaction, and the client does not know yet."""

    sql: str

    def __new__(cls, sql: str) -> Reading:
        reading = super().__new__(cls, "nan")
        reading.sql = sql
        return reading


def bound(statement: str, values: Sequence[Any], storable: Callable[[Any], Any]) -> tuple[str, list[Any]]:
    """A statement with `%s` for each value that the client knows, and these values.

    PostgreSQL gets arrays in binary form (`%b`), which takes psycopg a fraction of the time."""
    readings = tuple((place, one.sql) for place, one in enumerate(values) if type(one) is Reading)
    given = [storable(one) for one in values if type(one) is not Reading]
    text = _bound if len(statement) < LONG else _bound.__wrapped__
    return text(statement, readings), given


@lru_cache(4096)
def _bound(statement: str, readings: tuple[tuple[int, str], ...]) -> str:
    known = dict(readings)
    first, *parts = statement.replace("%", "%%").split("?")
    marks = ("%b" if re.match(_IS_ARRAY, part) else "%s" for part in parts)
    return first + "".join(known.get(place, mark) + parts[place] for place, mark in enumerate(marks))


_IS_ARRAY = r"::\w+\[\]"
LONG = 5000  # the text of a longer statement is not kept
