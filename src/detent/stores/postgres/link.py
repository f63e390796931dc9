"""Connections of the PostgreSQL store: a bounded pool for each process, with a timeout on every wait.

1. A transaction needs no session state, so that a pooler may give each one another session.
2. A round trip that times out closes its connection; the caller does not know whether it took effect.  The
   server times out first if it can.
3. A deadlock, or a connection that was lost before the commit, is a `Conflict`: nothing was changed, and the
   unit of work is repeated.
4. A process that was stopped or cut off while it sent statements would keep its locks for ever, because the
   server limits a transaction only when all of them have arrived.  A call that waits in vain for a lock ends
   such a session.
5. No message holds a password, nor a part of a URL that could be one.
6. A process has at most `pool_size` connections for calls (a parameter of the URL), and one that listens.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from detent import clock
from detent.errors import DetentError, StoreMismatch, StoreUnavailable, UsageError
from detent.stores.engine.unit import Conflict
from detent.stores.sql.driver import SOON_S
from detent.stores.sql.pool import SIZE, Pool, read_size
from detent.text import quote

if TYPE_CHECKING:
    from psycopg import Connection, Error

CONNECT_S = 5  # libpq takes whole seconds, at least two
PAUSE_S = 0.05  # the longest pause after a deadlock
PREPARE_AFTER = 3  # uses of a statement in a session, after which the server keeps its plan
PREPARED_MAX = 300
WAIT_S = 0.25  # between two checks of a deadline
SCHEMA = "detent"
SETTINGS: dict[str, str | int] = {
    "connect_timeout": CONNECT_S,
    "application_name": "detent",
    "client_encoding": "UTF8",
    "target_session_attrs": "read-write",  # of several hosts, the primary
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # milliseconds
}
_AGAIN = ("40001", "40P01", "25P03")  # serialization failure, deadlock, idle for too long
_TOO_LONG = ("57014", "55P03")  # a statement, a lock
STUCK_S = 2  # a session that waits this long for the rest of its statements will not get it
_LACKING = ("3F000", "42P01", "42883", "42704")  # no such schema, table, function, type
_REFUSED = (  # a part of the server's message, and the advice; waiting does not help
    ("certificate verify failed", "name the authority that vouches for its certificate: ?sslrootcert=FILE"),
    ("does not match host name", "write the name that its certificate is for into the URL"),
    ("root certificate file", "name a file that is there: ?sslrootcert=FILE"),
    ("does not support SSL", "switch `ssl` on there, or leave `sslmode` out of the URL"),
    ("password authentication failed", "put the user or the password right in its URL"),
    ("no password supplied", "write the password into its URL, or use a password file (~/.pgpass)"),
    ("no pg_hba.conf entry", "allow it in pg_hba.conf, or use another user or `sslmode`"),
)
_URL = 'use "postgresql://USER@HOST:PORT/DATABASE"'
logging.getLogger("psycopg").addHandler(logging.NullHandler())  # the caller reports errors


class Link:
    """A connection, for one thread at a time."""

    def __init__(self, db: Connection) -> None:
        self.db, self._pid = db, os.getpid()
        self.is_committing = False  # COMMIT was sent, and perhaps it took effect

    @property
    def is_open(self) -> bool:
        """False in a forked process too, because the connection is its parent's."""
        return not self.db.closed and self._pid == os.getpid()

    def limit(self, within_s: float) -> None:
        """How long psycopg waits in one round trip from now on."""
        bounded: Any = self.db
        bounded.within_s = within_s

    def close(self) -> None:
        if self.is_open:
            self.db.close()

    def is_stale(self) -> bool:
        """Whether the server closed the connection while it was idle."""
        poll = select.poll()  # select() fails for descriptors above 1023
        poll.register(self.db.fileno(), select.POLLIN)
        try:
            while poll.poll(0):  # its last message, then the end
                self.db.pgconn.consume_input()
        except Exception:  # any error makes the connection useless
            return True
        return False

    def value(self, statement: str, *values: Any) -> Any:
        """The first value that a statement returns."""
        cursor = self.db.execute(statement.encode(), values or None)
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


class Links:
    """The connection pool of a store."""

    def __init__(self, url: str, schema: str, prepare: Callable[[Link], None]) -> None:
        self.schema, self._prepare = schema, prepare
        url, size = _split_size(url)
        self._conninfo, self.name = _read_url(url)
        self._pool = Pool(size, self.name, lambda _: self.open())

    @contextmanager
    def link(self, within_s: float = SOON_S) -> Iterator[Link]:
        """Take a connection from the pool, when one is free.  An exception ends its transaction."""
        while True:
            with self._pool.connection(within_s) as link:
                if not link.is_stale():
                    link.limit(within_s)
                    link.is_committing = False
                    with self.errors(link), _rolling_back(link):
                        yield link
                    return
                link.close()

    def look(self, statement: str) -> Any:
        """The first value that a statement returns which only reads."""
        for _ in range(2):
            with suppress(Conflict), self.link() as link:
                return link.value(statement)
        raise StoreUnavailable(f"the store {self.name} did not answer: the connection was closed")

    def open(self) -> Link:
        """A connection outside the pool, after the schema was prepared."""
        import psycopg

        try:
            db = _bounded_class().connect(self._conninfo, autocommit=True, prepare_threshold=None)
        except psycopg.Error as error:
            raise self._unreachable(str(error)) from error
        link = Link(db)
        try:
            with self.errors():
                self._prepare(link)
                if link.value("SELECT pg_backend_pid()") == db.info.backend_pid:
                    # Else there is a pooler between, and sessions change.
                    db.prepare_threshold, db.prepared_max = PREPARE_AFTER, PREPARED_MAX
        except BaseException:
            link.close()
            raise
        return link

    def close(self) -> None:
        self._pool.close()

    # Errors.

    @contextmanager
    def errors(self, link: Link | None = None) -> Iterator[None]:
        """Explain errors; with a connection of the pool, some of them are conflicts."""
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            if link and error.sqlstate in _LACKING:
                self.open().close()  # the schema was dropped: a new connection creates it
                raise Conflict from error
            is_lost = error.sqlstate is None and not isinstance(error.__cause__, TimeoutError)
            if link and is_lost and not link.is_committing:
                raise Conflict from error
            if error.sqlstate in _TOO_LONG and self._end_stuck():
                raise Conflict from error
            if error.sqlstate in _AGAIN:
                threading.Event().wait(PAUSE_S * (1 + os.urandom(1)[0]) / 256)
                raise Conflict from error
            raise self._explain(error) from error

    def _end_stuck(self) -> bool:
        """End the sessions whose client stopped in the midst of its statements.  True: there were some."""
        with suppress(DetentError), closing(self.open()) as link, self.errors():
            return bool(link.value(_END_STUCK))
        return False

    def _explain(self, error: Error) -> DetentError:
        store, code = f"the store {self.name}", error.sqlstate
        text = error.diag.message_primary or _first_line(str(error))
        if code is None:
            return StoreUnavailable(f"{store} did not answer: {text}")
        match code[:2], code:
            case _, "25006":
                return StoreUnavailable(f"{store} is read-only, a standby perhaps: name the primary server")
            case _, _ if code in _TOO_LONG:
                return StoreUnavailable(
                    f"{store} took too long ({text}): look for long transactions in pg_stat_activity"
                )
            case _, "42501":
                return StoreMismatch(
                    f'{store} refused ({text}): the user must own the schema "{self.schema}", or have '
                    "the right to create it: GRANT CREATE ON DATABASE … TO …"
                )
            case "53", _:
                return StoreUnavailable(f"{store} has no room left ({text}): no outcome is lost")
        return StoreUnavailable(f"{store} failed: {text} ({code})")

    def _unreachable(self, text: str) -> DetentError:
        if "session is read-only" in text:
            return StoreUnavailable(f"the store {self.name} is a read-only standby: name the primary server")
        said = _first_line(text)
        for part, advice in _REFUSED:
            if part in text:
                return StoreMismatch(f"the store {self.name} cannot be used: {said}: {advice}")
        return StoreUnavailable(f"the store {self.name} cannot be reached: {said}")


_END_STUCK = f"""
WITH stuck AS MATERIALIZED (
    SELECT pid FROM pg_stat_activity
    WHERE application_name = current_setting('application_name') AND datname = current_database()
      AND usename = current_user AND state = 'active' AND wait_event = 'ClientRead'
      AND clock_timestamp() - state_change > interval '{STUCK_S} s'
)
SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM stuck
"""


@contextmanager
def _rolling_back(link: Link) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(Exception):
            link.db.rollback()
        if link.db.info.transaction_status != 0:  # TransactionStatus.IDLE
            link.close()
        raise


@cache
def _bounded_class() -> Any:
    """The class of a connection whose round trips time out, made late, because psycopg is optional."""
    from psycopg import Connection, OperationalError

    class Bounded(Connection[Any]):
        within_s: float = SOON_S

        def wait(self, gen: Any, *args: Any, **limits: Any) -> Any:
            if args or limits:  # psycopg limits it, as a wait for notifications
                return super().wait(gen, *args, **limits)
            return super().wait(self._bounded(gen, clock.monotonic() + self.within_s), WAIT_S)

        def _bounded(self, gen: Any, deadline: float) -> Generator[Any, Any, Any]:
            try:
                wanted = next(gen)
                while True:
                    is_ready = yield wanted
                    if not is_ready and clock.monotonic() > deadline:
                        self.close()
                        raise OperationalError("it did not answer in time") from TimeoutError()
                    wanted = gen.send(is_ready)
            except StopIteration as end:
                return end.value

    return Bounded


def _split_size(url: str) -> tuple[str, int]:
    """The URL without `pool_size`, which libpq does not know, and the size."""
    address, mark, query = url.partition("?")
    words = [word.partition("=") for word in query.split("&")]
    sizes = [value for name, _, value in words if name == "pool_size"]
    rest = "&".join("".join(word) for word in words if word[0] != "pool_size")
    size = read_size(sizes[-1] if sizes else str(SIZE), "postgresql")
    return address + (mark and rest and mark + rest), size


def _read_url(url: str) -> tuple[str, str]:
    """The connection string, and the name for messages, which has neither user nor password."""
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict, make_conninfo
    except ImportError:
        raise UsageError(
            'the store "postgresql:" needs a driver that is not installed: pip install "detent[postgres]"'
        ) from None
    try:
        authority, _, path = url.partition("//")[2].partition("?")[0].partition("/")
        if authority.count("@") > 1 or "@" in path:  # a part of the password would be read as a host
            raise psycopg.ProgrammingError
        given = {name: value for name, value in conninfo_to_dict(url).items() if value is not None}
    except psycopg.Error:
        raise UsageError(
            f'bad store "postgresql:": it is no URL of a PostgreSQL database; {_URL}; '
            "in a name or a password, write a special character as %XX"
        ) from None
    host, port = given.get("host") or given.get("hostaddr") or "localhost", given.get("port") or 5432
    name = quote(f"postgresql://{host}:{port}/{given.get('dbname') or ''}")
    return make_conninfo("", **{**SETTINGS, **given}), name


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
