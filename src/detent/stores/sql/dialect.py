"""What differs between SQL databases."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any, Protocol, TypeVar

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
    INSERT_TELLS: (
        bool  # whether the driver learns from an insert which keys existed; else they are read first
    )

    def rows(self, statement: str, values: Sequence[Any] = ()) -> Rows:
        """Execute a statement, and return its rows."""

    def several(self, statements: Sequence[Statement]) -> list[Rows]:
        """Execute statements, in one round trip if the database can.  Returns the rows of each."""

    def for_each(self, statement: str, texts: Sequence[str], values: Sequence[Any]) -> Rows:
        """Execute a SELECT for each of these texts, which is its first value.  Returns all rows."""

    def run_many(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        """Execute a statement for each row of values."""

    def array(self, values: Iterable[str]) -> Any:
        """One value that holds several texts, for `EACH`."""

    EACH: str  # a table with the column `value`, made of an array
    AMONG: str  # comes after a text: whether it is in an array

    def delete(self, table: str, column: str, ids: Sequence[int]) -> None:
        """Delete the rows with these ids."""

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows; a row whose key exists is left as it is."""

    def update_jobs(self, column: str, rows: Sequence[tuple[float, str]], *, grows: bool = False) -> None:
        """Set a column of jobs, by rows of value and job.  `grows`: only to a later instant."""

    def update_fires(self, rows: Sequence[Sequence[Any]]) -> None:
        """Change fires.  A row has the values of `columns.STATE`, and the id."""

    FLOOR: str  # a format: the whole number that does not exceed a value

    APART: str  # ends a subquery that the database executes on its own, before its other conditions

    def hint(self, index: str) -> str:
        """Comes after a table's name, to read it by this index; "": the database chooses well on its own."""

    def upsert(
        self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], keys: int = 1
    ) -> None:
        """Insert rows, or replace those with the same key, which is the first `keys` columns."""


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
