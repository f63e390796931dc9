"""A MariaDB or MySQL server that the tests own: in a directory of its own, gone when they end.

The server refuses to run as root, so root starts it as another user.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import pymysql

from detent.clock import monotonic
from detent.stores.mysql.link import Link
from detent.stores.mysql.schema import SYSTEMS
from detent.stores.mysql.store import MysqlStore
from detent.stores.sql.dialect import Rows
from detent.testing.stores.fixtures import FakeClock

PATIENCE_S = 60.0
PASSWORD = "s3cret-word"
QUICK = (
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=0",
    "--innodb-buffer-pool-size=64M",
    "--max-connections=200",
)
PLAIN: dict[str, Any] = {"ssl_disabled": True}  # with TLS, PyMySQL loads all certificates for each connection
TABLES = ("fires", "attempts", "cells", "asks", "jobs", "apps", "wakeups", "fences")


class MysqlServer:
    def __init__(self, directory: Path, settings: Sequence[str] = QUICK) -> None:
        self.directory, self.data, self._settings = directory, directory / "data", settings
        self.port, self.socket = _free_port(), str(directory / "socket")
        self.env: Mapping[str, str] | None = None  # None: that of the tests
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: str, port: int | None = None) -> str:
        return f"mysql://detent:{PASSWORD}@127.0.0.1:{port or self.port}/{database}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def make(self) -> None:
        options = ("--auth-root-authentication-method=normal", "--skip-test-db", "--no-defaults")
        line = [_program("mariadb-install-db"), *options, f"--datadir={self.data}"]
        # Its temporary folder is its own: in a shared one, another server that starts deletes its tables.
        env = {**os.environ, "TMPDIR": str(self.directory)}
        done = subprocess.run(line, capture_output=True, cwd=self.directory, env=env, **server_user())
        assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()

    def start(self) -> None:
        words = [_program("mariadbd"), "--no-defaults", f"--datadir={self.data}", f"--socket={self.socket}"]
        words += [f"--port={self.port}", "--bind-address=127.0.0.1", "--skip-name-resolve", "--skip-log-bin"]
        words += [f"--tmpdir={self.directory}"]  # a server that starts deletes the temporary tables in it
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*words, *self._settings],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=self.env,
                **server_user(),
            )
        deadline = monotonic() + PATIENCE_S
        while not self._answers():
            assert self._process.poll() is None, (self.directory / "log").read_text()
            assert monotonic() < deadline, "the server does not answer"
            threading.Event().wait(0.05)
        for host in ("localhost", "127.0.0.1"):
            self.sql(f"CREATE USER IF NOT EXISTS detent@'{host}' IDENTIFIED BY '{PASSWORD}'")
            self.sql(f"GRANT ALL ON *.* TO detent@'{host}'")

    def kill(self) -> None:
        """As by a crash; it recovers when it is started again."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(PATIENCE_S)

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def sql(self, statement: str, *values: Any, database: str | None = None) -> Rows:
        with (
            pymysql.connect(
                unix_socket=self.socket,
                user="root",
                database=database,
                autocommit=True,
                connect_timeout=5,
                **PLAIN,
            ) as db,
            db.cursor() as cursor,
        ):
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())

    def new_database(self) -> str:
        name = new_name()
        self.sql(f"CREATE DATABASE {name}")
        return name

    def _answers(self) -> bool:
        try:
            self.sql("SELECT 1")
        except pymysql.MySQLError:
            return False
        return True


def new_server(*settings: str) -> MysqlServer:
    """One with nothing in it, not started yet."""
    _program("mariadbd")
    directory = Path(tempfile.mkdtemp(prefix="detent-my-"))
    if user := server_user().get("user"):
        shutil.chown(directory, user)
    return MysqlServer(directory, settings or QUICK)


@cache
def shared_mysql() -> MysqlServer:
    """The one that most tests of this process share, each with a database of its own."""
    server = new_server()
    atexit.register(server.remove)
    server.make()
    server.start()
    return server


def open_for(url: str, path: Path) -> MysqlStore:
    """The store of a race, which has a database of its own."""
    name = f"race_{path.parent.name}".replace("-", "_").lower()[-60:]
    store = MysqlStore(f"{url.rpartition('/')[0]}/{name}")
    arguments = {
        name: value for name, value in store.database.links.address.arguments.items() if name != "database"
    }
    with pymysql.connect(**arguments) as db, db.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE IF NOT EXISTS {name}")
    return store


def _program(name: str) -> str:
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin")
    return found or _skip(f"needs {name}: apt-get install mariadb-server")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def server_user() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    for name in ("mysql", "nobody"):
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": ()}
    return _skip("MariaDB does not run as root, and there is no user `mysql` or `nobody`")


def _skip(why: str) -> NoReturn:
    import pytest  # late: so are processes of a race that never start a server quick

    pytest.skip(why)


_numbers = count(1)


def new_name() -> str:
    """Return a name for a new database."""
    return f"tests_{os.getpid()}_{next(_numbers)}"


# Stores whose clock a test moves.


class ClockedStore(MysqlStore):
    """Sets the clock of the session of each connection before a call uses it."""

    def __init__(self, server: MysqlServer, database: str, clock: FakeClock) -> None:
        super().__init__(server.url(database), clock.monotonic)
        self.clock, self.schema, links = clock, database, self.database.links
        links.address.arguments.update(PLAIN)
        self._pooled, links.link = links.link, self._clocked  # type: ignore[method-assign]

    @contextmanager
    def _clocked(self, *given: float) -> Iterator[Link]:
        with self._pooled(*given) as link:
            link.rows(f"SET timestamp = {self.clock.wall()!r}")
            yield link


class Databases:
    """Databases that live by the clock of a test, used again and again: it takes long to make one."""

    def __init__(self, server: MysqlServer) -> None:
        self.server = server
        self._names = [self._make() for _ in range(2)]  # a check opens one store, or a second one beside it

    def open(self, clock: FakeClock) -> ClockedStore:
        """An empty store in the database that was used the longest time ago."""
        self._names.append(database := self._names.pop(0))
        with (
            pymysql.connect(
                unix_socket=self.server.socket, user="root", database=database, autocommit=True, **PLAIN
            ) as db,
            db.cursor() as cursor,
        ):
            for table in TABLES:
                cursor.execute(f"DELETE FROM {table}")
            cursor.execute(_RESET, {"now": clock.wall()})
        return ClockedStore(self.server, database, clock)

    def open_again(self, store: ClockedStore) -> ClockedStore:
        return ClockedStore(self.server, store.schema, store.clock)

    def _make(self) -> str:
        database = self.server.new_database()
        store = MysqlStore(self.server.url(database))
        store.notes("a")
        store.close()
        return database


_RESET = f"""
UPDATE world SET epoch = UUID(), previous = '', steps = 0, quarantined_until = %(now)s, born = %(now)s,
    doubted = 0, seen = %(now)s, longest_ttl_s = 0, `system` = {SYSTEMS["MariaDB"]}
"""


@cache
def shared_databases() -> Databases:
    return Databases(shared_mysql())
