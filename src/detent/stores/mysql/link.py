"""Connections of the MySQL store: a bounded pool for each process, with a timeout on every wait.

1. A call that times out closes its connection; the caller does not know whether it took effect.
2. The server ends a transaction whose client is silent for `IDLE_S`, and releases its locks.
3. A deadlock, a lock that is held for too long, and a connection that the server closed before the commit are
   a `Conflict`: nothing was changed, and the unit of work is repeated.
4. No message holds a user or a password.
5. A process has at most `pool_size` connections.  A forked process opens its own, and does not touch those
   that it inherited.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from detent import clock
from detent.errors import DetentError, StoreMismatch, StoreUnavailable
from detent.stores.engine.unit import Conflict
from detent.stores.mysql.url import Address
from detent.stores.sql.dialect import Rows, Statement

if TYPE_CHECKING:
    from pymysql.connections import Connection
    from pymysql.cursors import Cursor

CONNECT_S = 5
SOON_S = 5  # for a statement on which a claim depends
LATER_S = 30  # for a statement that may read or change a hundred thousand rows
LOCK_S = 1  # the longest wait for a row that another transaction has locked
IDLE_S = 2  # the longest pause between two statements of a transaction
REST_S = 600  # the longest pause between two transactions of a connection
STATEMENT_MAX = 1 << 20  # characters of statements that are sent together
_SETTINGS = (
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; "
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', "
    f"innodb_lock_wait_timeout = {LOCK_S}, wait_timeout = {REST_S}"
)
_BEGIN = f"SET SESSION wait_timeout = {IDLE_S}; START TRANSACTION"
_BEGIN_READING = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION READ ONLY"
_COMMIT = f"COMMIT; SET SESSION wait_timeout = {REST_S}"
_CONFLICTS = (1205, 1213)  # a lock that is held for too long, a deadlock
_NO_RIGHT = "the user has not all rights on the database: GRANT ALL ON DATABASE.* TO …"
_NO_ENTRY = "the user or the password is wrong: put them right in its URL"
_REFUSED = {  # waiting does not help
    1044: _NO_RIGHT,
    1045: _NO_ENTRY,
    1049: "there is no such database: CREATE DATABASE …",
    1142: _NO_RIGHT,
    1698: _NO_ENTRY,
    2026: "its certificate is not trusted: name the authority that vouches for it, ?ssl_ca=FILE",
}
_READ_ONLY = (1290, 1792, 1836)
_FULL = (1021, 1030, 1114)
_CLOSED = (1927, 2006, 2013, 4031)  # killed, gone, lost, silent for too long
_SILENT = (0, 2003, 2005, *_CLOSED)


class Link:
    """A connection, for one thread at a time.  Statements without a result are sent with the next one."""

    def __init__(self, db: Connection[Cursor]) -> None:
        self.db = db
        self._waiting: list[str] = []

    def rows(self, statement: str, values: Sequence[Any] = ()) -> Rows:
        """Execute statements that are one text.  Returns the rows of the last one."""
        return self.several([(statement, values)])[-1]

    def several(self, statements: Sequence[Statement]) -> list[Rows]:
        """Execute statements in one round trip.  Returns the rows of each."""
        with self.db.cursor() as cursor:
            texts, self._waiting = self._waiting, []
            count = len(texts)
            texts += [cursor.mogrify(text, values or None) for text, values in statements]
            if not texts:
                return []
            cursor.execute("; ".join(texts))
            found = [list(cursor.fetchall())]
            while cursor.nextset():
                found.append(list(cursor.fetchall()))
            return found[count:]

    def send(self, statement: str, all_values: Iterable[Sequence[Any]]) -> None:
        """Execute a statement for each row of values, before the next one that returns rows."""
        with self.db.cursor() as cursor:
            self._waiting += [cursor.mogrify(statement, values) for values in all_values]
        if sum(map(len, self._waiting)) > STATEMENT_MAX:
            self.rows("DO 0")

    def insert(self, statement: str, rows: Sequence[Sequence[Any]]) -> int:
        """Insert rows, many with one statement.  Returns how many rows are new, if none is changed."""
        if self._waiting:
            self.rows("DO 0")
        with self.db.cursor() as cursor:
            return cursor.executemany(statement, rows) or 0

    def roll_back(self) -> None:
        self._waiting.clear()
        self.rows(f"ROLLBACK; SET SESSION wait_timeout = {REST_S}")

    def close(self) -> None:
        with suppress(Exception):
            self.db.close()


class Links:
    """The connection pool of a store.  `prepare` sees each new connection."""

    def __init__(self, address: Address, prepare: Callable[[Link], None]) -> None:
        self.address, self._prepare = address, prepare
        self._free = _no_links()
        self._pid, self._lock = os.getpid(), threading.Lock()
        self._places = threading.BoundedSemaphore(address.pool_size)

    def writing(self, first: str, within_s: int = SOON_S) -> AbstractContextManager[Link]:
        """A transaction that begins with this statement.  It is committed, unless an exception ends it."""
        return self._transaction(f"{_BEGIN}; {first}", within_s, is_unit=True)

    def reading(self, within_s: int = SOON_S) -> AbstractContextManager[Link]:
        """A transaction that reads one state of the database, and waits for no lock."""
        return self._transaction(_BEGIN_READING, within_s)

    def look(self, statement: str, *values: Any) -> Rows:
        """Execute one statement that reads."""
        with self._place(SOON_S), self._words():
            link, found = self._start(SOON_S, statement, values)
            self._give_back(link, SOON_S)
            return found

    def close(self) -> None:
        with self._lock:
            free, self._free = self._free, _no_links()
        for link in free[SOON_S] + free[LATER_S] if self._pid == os.getpid() else ():
            link.close()

    def open(self, within_s: int = SOON_S) -> Link:
        """A connection outside the pool."""
        import pymysql
        from pymysql.constants import CLIENT

        with self._words():
            link = Link(
                pymysql.connect(
                    **self.address.arguments,
                    charset="utf8mb4",
                    autocommit=True,
                    client_flag=CLIENT.MULTI_STATEMENTS,
                    connect_timeout=CONNECT_S,
                    read_timeout=within_s,
                    write_timeout=SOON_S,
                )
            )
            try:
                link.rows(_SETTINGS)
                self._prepare(link)
            except BaseException:
                link.close()
                raise
        return link

    @contextmanager
    def _transaction(self, begin: str, within_s: int, *, is_unit: bool = False) -> Iterator[Link]:
        with self._place(within_s), self._words():
            link, _ = self._start(within_s, begin)
            try:
                yield link
                is_unit = False  # a commit that was sent may have taken effect
                link.rows(_COMMIT)
            except BaseException as error:
                if not isinstance(error, Conflict | DetentError) and _code(error) not in _CONFLICTS:
                    link.close()  # this rolls back
                    if is_unit and _is_closed(error):
                        raise Conflict from error
                    raise
                self._roll_back(link, within_s)
                raise
            self._give_back(link, within_s)

    def _roll_back(self, link: Link, within_s: int) -> None:
        try:
            link.roll_back()
        except BaseException:
            link.close()
            raise
        self._give_back(link, within_s)

    @contextmanager
    def _place(self, within_s: int) -> Iterator[None]:
        if not self._places.acquire(timeout=within_s):
            raise StoreUnavailable(
                f"the store {self.address.name} was not called: all {self.address.pool_size} connections of "
                "this process were busy; raise pool_size in the store's URL, or use fewer threads"
            )
        try:
            yield
        finally:
            self._places.release()

    def _start(self, within_s: int, statement: str, values: Sequence[Any] = ()) -> tuple[Link, Rows]:
        """A connection on which a first statement was executed, and its rows.  The server may have closed the
        connections in the pool: then nothing has happened yet, and a new one is opened."""
        began_at = clock.monotonic()
        while link := self._take(within_s):
            try:
                return link, link.rows(statement, values)
            except Exception as error:
                link.close()
                if _code(error) in _CONFLICTS:
                    raise
            if clock.monotonic() - began_at > LOCK_S:  # the server does not answer
                break
        link = self.open(within_s)
        try:
            return link, link.rows(statement, values)
        except BaseException:
            link.close()
            raise

    def _take(self, within_s: int) -> Link | None:
        with self._lock:
            if self._pid != os.getpid():  # the connections are those of the parent
                self._pid, self._free = os.getpid(), _no_links()
            return self._free[within_s].pop() if self._free[within_s] else None

    def _give_back(self, link: Link, within_s: int) -> None:
        with self._lock:
            self._free[within_s].append(link)

    # Errors.

    @contextmanager
    def _words(self) -> Iterator[None]:
        import pymysql

        try:
            yield
        except pymysql.MySQLError as error:
            raise self._explain(error) from error
        except RuntimeError as error:
            if "cryptography" not in str(error):
                raise
            raise StoreMismatch(
                f"the store {self.address.name} cannot be used: {error}: pip install 'detent[mysql]'"
            ) from error
        except DetentError:
            raise
        except OSError as error:
            raise StoreUnavailable(f"the store {self.address.name} did not answer: {error}") from error

    def _explain(self, error: Exception) -> Exception:
        store = f"the store {self.address.name}"
        code, text = _code(error), str(error.args[-1] if error.args else "")
        if code in _CONFLICTS:
            return Conflict()
        if code in _REFUSED:
            return StoreMismatch(f"{store} cannot be used: {_REFUSED[code]}")
        if code in _READ_ONLY:
            return StoreUnavailable(f"{store} is read-only, a replica perhaps: name the primary server")
        if code in _FULL:
            return StoreUnavailable(f"{store} has no room left ({text}): no outcome is lost")
        if code in _SILENT:
            return StoreUnavailable(f"{store} did not answer: {text or 'the connection was closed'}")
        return StoreUnavailable(f"{store} failed: {text} ({code})")


def _code(error: BaseException) -> int:
    """The number of an error of MySQL; 0: it has none."""
    first = error.args[0] if error.args else 0
    return first if isinstance(first, int) and len(error.args) == 2 else 0


def _is_closed(error: BaseException) -> bool:
    """Whether the server closed the connection; False if it did not answer in time."""
    return _code(error) in _CLOSED and not isinstance(error.__context__, TimeoutError)


def _no_links() -> dict[int, list[Link]]:
    return {SOON_S: [], LATER_S: []}
