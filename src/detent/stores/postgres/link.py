"""Connections of the PostgreSQL store: a bounded pool for each process, with a timeout on every wait.

1. A transaction needs no session state, so that a pooler may give each one another session.
2. A round trip that times out closes its connection; the caller does not know whether it took effect.  The
   server times out first if it can.
3. `call` is one round trip.  It retries deadlocks and lock timeouts, because they have changed nothing.
4. No message holds a password, nor a part of a URL that could be one.
5. A process has at most `pool_size` connections for calls (a parameter of the URL), and one that listens.  A
   forked process opens its own connections, and does not touch those that it inherited.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from detent import clock
from detent.errors import DetentError, StoreMismatch, StoreUnavailable, UsageError
from detent.text import quote

if TYPE_CHECKING:
    from psycopg import Connection, Error
    from psycopg.pq.abc import PGresult
    from psycopg_pool import ConnectionPool

CONNECT_S = 5  # libpq takes whole seconds, at least two
SOON_S = 5.0  # for a call on which a claim depends
LATER_S = 30.0  # for a call that may change a hundred thousand rows
SERVER_SHARE = 0.8  # of that time, after which the server times out
TRIES = 4  # of a call that failed with a deadlock
PAUSE_S = 0.05  # the longest pause between two tries
POOL_SIZE = 10  # connections of one process, unless its URL says otherwise
POOL_SIZE_MAX = 1000
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
_AGAIN = ("40001", "40P01", "55P03")  # serialisation, deadlock, lock time-out
LACKING = ("3F000", "42P01", "42883", "42704")  # no such schema, table, function, type
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
_BEGIN = (
    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;"
    " SET LOCAL synchronous_commit TO on; SET LOCAL jit TO off;"
    " SET LOCAL statement_timeout TO {ms}; SET LOCAL lock_timeout TO {ms};"
)
logging.getLogger("psycopg").addHandler(logging.NullHandler())  # the caller reports errors


class Refusal(Exception):
    """The server refused the statement, which had no effect."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


class Silence(Exception):
    """No reply: the connection broke or timed out."""


class Link:
    """A connection, for one thread at a time."""

    def __init__(self, db: Connection) -> None:
        self.db, self._pg, self._pid = db, db.pgconn, os.getpid()

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
        try:
            while self._readable(0.0):  # its last message, then the end
                self._pg.consume_input()
        except Exception:  # any error makes the connection useless
            return True
        return self._pg.status != 0  # ConnStatus.OK

    def literal(self, text: str) -> str:
        from psycopg.pq import Escaping

        return bytes(Escaping(self._pg).escape_literal(text.encode())).decode()

    def call(self, statement: str, within_s: float) -> str:
        """The value that a statement returns, in its own transaction and one round trip."""
        begin = _BEGIN.format(ms=round(within_s * SERVER_SHARE * 1000))
        return self.run(f"{begin} {statement}; COMMIT", within_s)

    def run(self, statements: str, within_s: float) -> str:
        """Execute statements.  Returns the last value that one of them returns; "": none."""
        deadline = clock.monotonic() + within_s
        try:
            results = self._exchange(statements.encode(), deadline)
        except Exception as error:
            self.close()
            raise Silence(_first_line(str(error))) from error
        value = ""
        for result in results:
            self._check(result)
            if result.ntuples:
                value = (result.get_value(0, 0) or b"").decode()
        return value

    def heard(self, within_s: float) -> list[str]:
        """Wait for notifications; returns their payloads, empty after `within_s`."""
        deadline = clock.monotonic() + within_s
        while True:
            found = list(self._notified())
            left = deadline - clock.monotonic()
            if found or left <= 0:
                return found
            if self._readable(left):
                try:
                    self._pg.consume_input()
                except Exception as error:
                    self.close()
                    raise Silence(_first_line(str(error))) from error

    def _notified(self) -> Iterator[str]:
        while one := self._pg.notifies():
            yield one.extra.decode()

    def _exchange(self, statements: bytes, deadline: float) -> list[PGresult]:
        self._pg.send_query(statements)
        while self._pg.flush():
            self._wait(deadline, writing=True)
            self._pg.consume_input()
        results: list[PGresult] = []
        while True:
            while self._pg.is_busy():
                self._wait(deadline)
                self._pg.consume_input()
            result = self._pg.get_result()
            if result is None:
                return results
            results.append(result)

    def _wait(self, deadline: float, writing: bool = False) -> None:
        left = deadline - clock.monotonic()
        if left <= 0 or not self._readable(left, writing):
            raise TimeoutError("it did not answer in time")

    def _readable(self, within_s: float, writing: bool = False) -> bool:
        poll = select.poll()  # select() fails for descriptors above 1023
        poll.register(self._pg.socket, select.POLLIN | (select.POLLOUT if writing else 0))
        return bool(poll.poll(within_s * 1000))

    def _check(self, result: PGresult) -> None:
        from psycopg.pq import DiagnosticField

        code = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
        text = (result.error_field(DiagnosticField.MESSAGE_PRIMARY) or b"").decode(errors="replace")
        if not code and not result.error_message:
            return
        if not code or self._pg.status != 0:
            self.close()
            raise Silence(text or _first_line(result.error_message.decode(errors="replace")))
        if self._pg.transaction_status != 0:  # TransactionStatus.IDLE
            self.run("ROLLBACK", SOON_S)
        raise Refusal(code, text)


class Links:
    """The connection pool of a store."""

    def __init__(self, url: str, schema: str, prepare: Callable[[Link], None]) -> None:
        self.schema, self._prepare = schema, prepare
        url, self._size = _split_size(url)
        self._conninfo, self.name = _read_url(url)
        self._pools: dict[int, ConnectionPool[Connection]] = {}  # by process
        self._opening = threading.Lock()
        self._failure: DetentError | None = None  # of the newest connection that could not be opened

    def call(self, verb: str, document: str, within_s: float) -> str:
        """Call a function of the schema; returns its result."""
        for last in (False, True):
            try:
                return self._call(verb, document, within_s)
            except Refusal as refusal:
                if last or refusal.code not in LACKING:
                    raise self.explain(refusal) from refusal
                self.open().close()  # the schema was dropped: a new connection creates it
        raise AssertionError("the last try returns or raises")

    def open(self) -> Link:
        """A connection outside the pool, after the schema was prepared."""
        import psycopg

        try:
            db = _bounded_class().connect(self._conninfo, autocommit=True, prepare_threshold=None)
            link = Link(db)
        except psycopg.Error as error:
            raise self._unreachable(str(error)) from error
        link.db.pgconn.nonblocking = 1
        try:
            self._prepare(link)
            if link.run("SELECT pg_backend_pid()", SOON_S) == str(db.info.backend_pid):
                db.prepare_threshold, db.prepared_max = (
                    PREPARE_AFTER,
                    PREPARED_MAX,
                )  # else there is a pooler between, and sessions change
        except BaseException as error:
            link.close()
            if isinstance(error, Refusal | Silence):
                raise self.explain(error) from error
            raise
        return link

    def close(self) -> None:
        with self._opening:
            pool = self._pools.pop(os.getpid(), None)
        if pool is not None:
            pool.close()

    def _call(self, verb: str, document: str, within_s: float) -> str:
        deadline = clock.monotonic() + within_s
        for number in range(1, TRIES + 1):
            with self.link(deadline - clock.monotonic()) as link:
                statement = f'SELECT "{self.schema}"."{verb}"({link.literal(document)})'
                try:
                    return link.call(statement, max(deadline - clock.monotonic(), 1.0))
                except Silence as silence:
                    raise self.explain(silence) from silence
                except Refusal as refusal:
                    if refusal.code not in _AGAIN or number == TRIES or clock.monotonic() > deadline:
                        raise
            threading.Event().wait(PAUSE_S * (1 + os.urandom(1)[0]) / 256)
        raise AssertionError("the last try returns or raises")

    # The pool.

    @contextmanager
    def link(self, within_s: float = SOON_S) -> Iterator[Link]:
        """Take a connection from the pool, when one is free."""
        deadline = clock.monotonic() + within_s
        while True:
            pool = self._pool()
            link = Link(self._take(pool, deadline))
            try:
                if not link.is_stale():
                    yield link
                    return
                link.close()
            finally:
                pool.putconn(link.db)

    def _take(self, pool: ConnectionPool[Connection], deadline: float) -> Connection:
        from psycopg_pool import PoolClosed, PoolTimeout

        try:
            return pool.getconn(max(deadline - clock.monotonic(), 0.1))
        except PoolClosed as error:
            closed = StoreUnavailable(f"the store {self.name} was closed while a call waited for it")
            raise self._failure or closed from error
        except PoolTimeout as error:
            raise self._failure or StoreUnavailable(
                f"the store {self.name} was not called: all {self._size} connections of this process were "
                "busy for too long; raise pool_size in the store's URL, or use fewer threads"
            ) from error

    def _pool(self) -> ConnectionPool[Connection]:
        """The pool of this process.  An inherited pool stays in `_pools`, because the parent uses it."""
        pool = self._pools.get(os.getpid())
        if pool is not None and not pool.closed:
            return pool
        with self._opening:
            pool = self._pools.get(os.getpid())
            if pool is None or pool.closed:
                pool = self._pools[os.getpid()] = self._new_pool()
            return pool

    def _new_pool(self) -> ConnectionPool[Connection]:
        from psycopg import Connection
        from psycopg_pool import ConnectionPool

        links = self

        class Opened(Connection):  # keeps the reason of a failed connection, which the pool only logs
            @classmethod
            def connect(cls, *_: Any, **__: Any) -> Any:
                try:
                    db, links._failure = links.open().db, None
                    return db
                except DetentError as error:
                    links._failure = error
                    raise

        def give_up(pool: ConnectionPool[Connection]) -> None:
            """If the pool has no connection, let the waiting calls fail at once."""
            if not pool.get_stats().get("pool_size"):
                threading.Thread(target=pool.close, daemon=True).start()  # `close` joins this thread

        self._failure = None
        return ConnectionPool(
            connection_class=Opened,
            min_size=0,
            max_size=self._size,
            open=True,
            reconnect_timeout=0,
            reconnect_failed=give_up,
            num_workers=1,
        )

    # Errors.

    def explain(self, error: Refusal | Silence | Error) -> DetentError:
        store = f"the store {self.name}"
        if not isinstance(error, Refusal | Silence):
            text = error.diag.message_primary or _first_line(str(error))
            error = Refusal(error.sqlstate, text) if error.sqlstate else Silence(text)
        if isinstance(error, Silence):
            return StoreUnavailable(f"{store} did not answer: {error}")
        match error.code[:2], error.code:
            case _, "25006":
                return StoreUnavailable(f"{store} is read-only, a standby perhaps: name the primary server")
            case _, "57014" | "55P03" | "40P01" | "40001":
                return StoreUnavailable(
                    f"{store} took too long ({error.text}): look for long transactions in pg_stat_activity"
                )
            case _, "42501":
                return StoreMismatch(
                    f'{store} refused ({error.text}): the user must own the schema "{self.schema}", or have '
                    "the right to create it: GRANT CREATE ON DATABASE … TO …"
                )
            case "53", _:
                return StoreUnavailable(f"{store} has no room left ({error.text}): no outcome is lost")
        return StoreUnavailable(f"{store} failed: {error.text} ({error.code})")

    def _unreachable(self, text: str) -> DetentError:
        if "session is read-only" in text:
            return StoreUnavailable(f"the store {self.name} is a read-only standby: name the primary server")
        said = _first_line(text)
        for part, advice in _REFUSED:
            if part in text:
                return StoreMismatch(f"the store {self.name} cannot be used: {said}: {advice}")
        return StoreUnavailable(f"the store {self.name} cannot be reached: {said}")


@cache
def _bounded_class() -> Any:
    """The class of a connection whose round trips time out, made late, because psycopg is optional."""
    from psycopg import Connection, OperationalError

    class Bounded(Connection[Any]):
        within_s = SOON_S

        def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
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
    size = sizes[-1] if sizes else str(POOL_SIZE)
    if not (size.isascii() and size.isdecimal() and 1 <= int(size) <= POOL_SIZE_MAX):
        raise UsageError(
            f'bad store "postgresql:": pool_size is {quote(size)}; give the number of connections that one '
            f"process may open, from 1 to {POOL_SIZE_MAX:,}"
        )
    return address + (mark and rest and mark + rest), int(size)


def _read_url(url: str) -> tuple[str, str]:
    """The connection string, and the name for messages, which has neither user nor password."""
    try:
        import psycopg
        import psycopg_pool  # noqa: F401
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
