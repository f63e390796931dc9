"""Connections of the MySQL store: a bounded pool for each process, with a timeout on every wait.

1. A call that times out closes its connection; the caller does not know whether it took effect.
2. The server ends a transaction whose client is silent for `IDLE_S`, and releases its locks.
3. A deadlock, a lock that is held for too long, and a connection that the server closed before the commit are
   a `Conflict`: nothing was changed, and the unit of work is repeated.
4. No message holds a user or a password.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from detent.errors import DetentError, StoreMismatch, StoreUnavailable
from detent.stores.engine.unit import Conflict
from detent.stores.mysql.url import Address
from detent.stores.sql.dialect import Rows
from detent.stores.sql.driver import SOON_S
from detent.stores.sql.pool import REST_S, Pool

if TYPE_CHECKING:
    from pymysql.connections import Connection
    from pymysql.cursors import Cursor

CONNECT_S = 5
LOCK_S = 1  # the longest wait for a row that another transaction has locked
IDLE_S = 2  # the longest pause between two statements of a transaction
_SETTINGS = (
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; "
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', "
    f"innodb_lock_wait_timeout = {LOCK_S}, wait_timeout = {2 * REST_S}"
)
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
    """A connection, for one thread at a time."""

    def __init__(self, db: Connection[Cursor]) -> None:
        self.db = db
        self.is_committing = False  # COMMIT was sent, and the reply has not arrived

    @property
    def is_open(self) -> bool:
        return bool(self.db.open)

    def rows(self, statement: str, values: Sequence[Any] = ()) -> Rows:
        """Execute statements that are one text.  Returns the rows of the last one."""
        return self.all_rows(statement, values)[-1]

    def all_rows(self, statements: str, values: Sequence[Any] = ()) -> list[Rows]:
        """Execute statements that are one text, in one round trip.  Returns the rows of each."""
        with self.db.cursor() as cursor:
            cursor.execute(statements, values or None)
            found = [list(cursor.fetchall())]
            while cursor.nextset():
                found.append(list(cursor.fetchall()))
            return found

    def roll_back(self) -> None:
        try:
            self.rows(f"ROLLBACK; SET SESSION wait_timeout = {2 * REST_S}")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        with suppress(Exception):
            self.db.close()


class Links:
    """The connection pool of a store.  `prepare` sees each new connection."""

    def __init__(self, address: Address, prepare: Callable[[Link], None]) -> None:
        self.address, self.name, self._prepare = address, address.name, prepare
        self._pool = Pool(address.pool_size, address.name, self.open)

    @contextmanager
    def link(self, within_s: float = SOON_S) -> Iterator[Link]:
        """Take a connection from the pool, when one is free.  An exception ends its transaction."""
        with self._pool.connection(within_s, kind=within_s) as link, self._errors(link):
            link.is_committing = False
            try:
                yield link
            except BaseException as error:
                if isinstance(error, Conflict | DetentError) or _code(error) in _CONFLICTS:
                    link.roll_back()
                else:
                    link.close()  # this rolls back
                raise

    def look(self, statement: str, *values: Any) -> Rows:
        """Execute one statement that reads."""
        for _ in range(2):
            with suppress(Conflict), self.link() as link:
                return link.rows(statement, values)
        raise StoreUnavailable(f"the store {self.name} did not answer: the connection was closed")

    def close(self) -> None:
        self._pool.close()

    def open(self, within_s: float = SOON_S) -> Link:
        """A connection outside the pool."""
        import pymysql
        from pymysql.constants import CLIENT

        with self._errors():
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

    # Errors.

    @contextmanager
    def _errors(self, link: Link | None = None) -> Iterator[None]:
        import pymysql

        try:
            yield
        except pymysql.MySQLError as error:
            if link and not link.is_committing and _is_closed(error):
                raise Conflict from error
            raise self._explain(error) from error
        except RuntimeError as error:
            if "cryptography" not in str(error):
                raise
            raise StoreMismatch(
                f"the store {self.name} cannot be used: {error}: pip install 'detent[mysql]'"
            ) from error
        except DetentError:
            raise
        except OSError as error:
            raise StoreUnavailable(f"the store {self.name} did not answer: {error}") from error

    def _explain(self, error: Exception) -> Exception:
        store = f"the store {self.name}"
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
