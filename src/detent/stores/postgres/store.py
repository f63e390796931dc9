"""The PostgreSQL store: the engine on a schema in a database that nodes on many hosts share."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from detent import clock
from detent.model import Ask, Fire, Grants, Report, Verdict
from detent.stores.base import app_of, is_spent
from detent.stores.engine.engine import Engine
from detent.stores.engine.record import Record
from detent.stores.postgres.link import SCHEMA, Link, Links
from detent.stores.postgres.listen import Listener
from detent.stores.postgres.schema import prepare, schema_name
from detent.stores.postgres.session import PostgresSession, inserting, storable
from detent.stores.sql.columns import COLUMNS, SELECT, fire_values, record_of, state_values
from detent.stores.sql.dialect import Rows, bound
from detent.stores.sql.driver import SqlDriver
from detent.stores.sql.server import Observer, ServerTransaction

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection

Putting = Generator[tuple[bytes, list[Any]], Rows, list[bool]]


class PostgresDatabase:
    """A schema in a database that nodes on many hosts share."""

    def __init__(self, links: Links, observer: Observer) -> None:
        self.links, self.observer, self.name = links, observer, links.name

    @contextmanager
    def transaction(self, within_s: float, *, writes: bool) -> Iterator[ServerTransaction]:
        with self.links.link(within_s) as link:
            session = PostgresSession(link, self.links.schema, within_s)
            transaction = ServerTransaction(session, self.observer)
            yield transaction
            transaction.commit()

    def close(self) -> None:
        self.links.close()


class PostgresStore(Engine):
    driver: SqlDriver

    def __init__(
        self, url: str, schema: str = SCHEMA, boottime: Callable[[], float] = clock.boottime
    ) -> None:
        self._links = Links(url, schema_name(schema or SCHEMA), self._prepare)
        self._is_ready = False  # the schema was checked
        self.observer, self.listener = Observer(boottime, notices_loss=False), Listener(self._links)
        super().__init__(SqlDriver(PostgresDatabase(self._links, self.observer), self.listener))

    def finish_and_claim(self, reports: Sequence[Report], ask: Ask) -> tuple[list[Verdict | None], Grants]:
        """Two transactions: a single one would hold the locks of freed lanes while it looks for due fires."""
        return self.finish(reports), self.claim(ask)

    # Messages in a transaction of the user's.

    def put_in(self, connection: Connection[Any], fires: Sequence[Fire], delay_s: float = 0) -> list[bool]:
        """`put` in the caller's transaction: the fires exist, and nodes are woken, when it commits."""
        self._see_to_schema()
        putting = self._putting(fires, delay_s)
        with connection.cursor(row_factory=_tuples) as cursor:
            rows: Rows | None = None
            while True:
                try:
                    cursor.execute(*putting.send(rows))  # type: ignore[arg-type]  # None starts it
                except StopIteration as end:
                    return list(end.value)
                rows = cursor.fetchall() if cursor.description else []

    async def aput_in(
        self, connection: AsyncConnection[Any], fires: Sequence[Fire], delay_s: float = 0
    ) -> list[bool]:
        """`put_in` for an asynchronous connection."""
        import asyncio

        await asyncio.to_thread(self._see_to_schema)
        putting = self._putting(fires, delay_s)
        async with connection.cursor(row_factory=_tuples) as cursor:
            rows: Rows | None = None
            while True:
                try:
                    await cursor.execute(*putting.send(rows))  # type: ignore[arg-type]
                except StopIteration as end:
                    return list(end.value)
                rows = await cursor.fetchall() if cursor.description else []

    def _putting(self, fires: Sequence[Fire], delay_s: float) -> Putting:
        """The statements of a put; is sent the rows of each."""
        tables = f'"{self._links.schema}".'
        if not fires:
            return []
        ((now, version),) = yield _text(f"SELECT {tables}clock(), nextval('{tables}versions')", ())
        reusable = [fire.key for fire in fires if fire.policy.unique_s]
        if reusable:
            lock = f"SELECT {SELECT} FROM {tables}fires WHERE key = ANY (?::text[]) ORDER BY key FOR UPDATE"
            old = {record.fire.key: record for record in map(record_of, (yield _text(lock, (reusable,))))}
            spent = [old[one.key].id for one in fires if one.key in old and _is_spent(one, old[one.key], now)]
            for table, column in (("attempts", "fire"), ("fires", "id")) if spent else ():
                yield _text(f"DELETE FROM {tables}{table} WHERE {column} = ANY (?::bigint[])", (spent,))
        first = {fire.key: fire for fire in reversed(fires)}
        rows = [_values(fire, now + delay_s, version) for fire in fires if first[fire.key] is fire]
        statement, values = inserting("fires", COLUMNS, rows)
        statement = statement.replace("INTO fires", f"INTO {tables}fires")
        statement = statement.replace("'fire_ids'", f"'{tables}fire_ids'")
        left = {key for (key,) in (yield _text(statement, values))}
        apps = sorted({app_of(fire.job) for fire in fires if fire.key in left})
        if apps:
            yield _text(f"INSERT INTO {tables}bells SELECT unnest(?::text[])", (apps,))
        return [fire.key in left and first[fire.key] is fire for fire in fires]

    def _prepare(self, link: Link) -> None:
        prepare(link, self._links.schema)
        self._is_ready = True

    def _see_to_schema(self) -> None:
        """Prepare the schema on our own connection: an error would abort the caller's transaction."""
        if not self._is_ready:
            self._links.open().close()


def _text(statement: str, values: Sequence[Any]) -> tuple[bytes, list[Any]]:
    text, given = bound(statement, values, storable)
    return text.encode(), given


def _is_spent(fire: Fire, old: Record, now: float) -> bool:
    return old.state == "over" and old.outcome is not None and is_spent(fire, old.fire, old.outcome, now)


def _values(fire: Fire, run_at: float, version: int) -> tuple[Any, ...]:
    return *fire_values(fire), *state_values(Record(fire, run_at), version, 0)


def _tuples(_: object) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A row factory: that of the connection may be another."""
    return tuple
