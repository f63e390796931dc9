"""The store of a chaos run: a real server that keeps what it acknowledged, or a SQLite file.

A server has its own wall clock.  It can be killed and restarted with its data, and stopped and continued;
nodes reach it through proxies.  A file can be locked; its clock is that of the host, which all nodes
share.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Protocol

from tests.equipment.mysql_server import MysqlServer
from tests.equipment.mysql_server import new_server as new_mysql
from tests.equipment.postgres_server import Server, new_server
from tests.equipment.redis_server import RedisServer
from tests.equipment.wall_clock import WallClock

from detent.warden.program import kernel

DURABLE = ("fsync=on", "synchronous_commit=on", "max_connections=100")
# MariaDB aborts if its wall clock jumps by an hour while it waits for the doublewrite buffer, which only a
# power cut needs.
MYSQL_DURABLE = (
    "--skip-innodb-doublewrite",
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-buffer-pool-size=64M",
)
OF_A_SERVER = frozenset({"node", "net", "clock", "store", "store-clock", "fleet"})
OF_A_FILE = frozenset({"node", "file", "store-clock", "fleet"})
LOCK = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=10, isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


class StoreClock:
    """The wall clock of the server, with a history of its steps."""

    def __init__(self, clock: WallClock) -> None:
        self._clock = clock
        self.preload = clock.env
        self.env = dict(os.environ) | clock.env
        self.offset = time.time() - time.monotonic()  # of the real clock
        self.history: list[tuple[float, float]] = [(time.monotonic(), 0.0)]  # when, and how far ahead

    @property
    def ahead_s(self) -> float:
        return self._clock.ahead_s

    def set(self, ahead_s: float) -> None:
        self._clock.set(ahead_s)
        self.history.append((time.monotonic(), ahead_s))

    def now(self) -> float:
        return time.monotonic() + self.offset + self.ahead_s


class ChaosStore(Protocol):
    clock: StoreClock
    keeps_epoch: bool  # whether a restart begins no new epoch
    targets: frozenset[str]  # targets of its faults
    node_env: dict[str, str]  # of its nodes

    @property
    def url(self) -> str:
        """The URL without a proxy."""

    @property
    def target(self) -> int | str:
        """The address for a proxy."""

    def url_by(self, port: int) -> str: ...

    def kill(self) -> None: ...

    def start(self) -> None: ...

    def signal(self, signum: int) -> None: ...

    def lock(self, seconds: float) -> None:
        """Block all writes for this long."""

    def is_locked_by(self, pids: Sequence[int]) -> bool:
        """Whether one of these processes blocks all writes."""

    def remove(self) -> None: ...


class ChaosServer:
    """What both servers share: no client can block all writes."""

    targets = OF_A_SERVER
    node_env: ClassVar[dict[str, str]] = {}  # each node has its own clock

    def lock(self, seconds: float) -> None:
        raise NotImplementedError

    def is_locked_by(self, pids: Sequence[int]) -> bool:
        return False


class ChaosRedis(ChaosServer):
    keeps_epoch = False

    def __init__(self, folder: Path, skew: Path) -> None:
        self.clock = StoreClock(WallClock(skew, folder / "store-clock"))
        self._server = RedisServer(folder / "redis", env=self.clock.env)

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def target(self) -> int:
        return self._server.port

    def url_by(self, port: int) -> str:
        return f"redis://127.0.0.1:{port}"

    def kill(self) -> None:
        self._server.end()

    def start(self) -> None:
        self._server.start()

    def signal(self, signum: int) -> None:
        self._server.process.send_signal(signum)

    def remove(self) -> None:
        self._server.end()


class ChaosPostgres(ChaosServer):
    keeps_epoch = True

    def __init__(self, _: Path, skew: Path) -> None:
        self._server: Server = new_server(*DURABLE)
        self.clock = readable_clock(self._server.directory, skew)
        self._server.env = self.clock.env
        self._server.make()
        self._server.start()

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def target(self) -> str:
        return str(self._server.directory / ".s.PGSQL.5432")

    def url_by(self, port: int) -> str:
        return f"postgresql://postgres@127.0.0.1:{port}/postgres"

    def kill(self) -> None:
        self._server.stop()

    def start(self) -> None:
        self._server.start()

    def signal(self, signum: int) -> None:
        """Signal all processes of the server, because they wait for each other."""
        for pid in kernel.descendants({self._server.pid}):
            with suppress(ProcessLookupError):
                os.kill(pid, signum)

    def remove(self) -> None:
        self.signal(signal.SIGCONT)
        self._server.remove()


class ChaosMysql(ChaosServer):
    keeps_epoch = True
    database = "chaos"

    def __init__(self, _: Path, skew: Path) -> None:
        self._server: MysqlServer = new_mysql(*MYSQL_DURABLE)
        self.clock = readable_clock(self._server.directory, skew)
        self._server.make()
        self._server.env = self.clock.env
        self._server.start()
        self._server.sql(f"CREATE DATABASE {self.database}")

    @property
    def url(self) -> str:
        return self._server.url(self.database)

    @property
    def target(self) -> int:
        return self._server.port

    def url_by(self, port: int) -> str:
        return self._server.url(self.database, port)

    def kill(self) -> None:
        self._server.kill()

    def start(self) -> None:
        self._server.start()

    def signal(self, signum: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._server.pid, signum)

    def remove(self) -> None:
        self.signal(signal.SIGCONT)
        self._server.remove()


def readable_clock(folder: Path, skew: Path) -> StoreClock:
    """A clock for a server whose user cannot read the folder of the run."""
    library = folder / "skew.so"
    shutil.copy(skew, library)
    library.chmod(0o755)
    clock = StoreClock(WallClock(library, folder / "store-clock"))
    (folder / "store-clock").chmod(0o644)
    return clock


class ChaosSqlite:
    """One file, and nodes on one host.  There is no network, so proxies have no effect."""

    keeps_epoch = True
    targets = OF_A_FILE
    target = 0

    def __init__(self, folder: Path, skew: Path) -> None:
        self.clock = StoreClock(WallClock(skew, folder / "store-clock"))
        self.node_env = self.clock.preload
        self._file = folder / "store" / "detent.db"

    @property
    def url(self) -> str:
        return f"sqlite:///{self._file}"

    def url_by(self, port: int) -> str:
        return self.url

    def kill(self) -> None:
        raise NotImplementedError

    def start(self) -> None:
        raise NotImplementedError

    def signal(self, signum: int) -> None:
        """SQLite has no server process."""

    def lock(self, seconds: float) -> None:
        """Lock the file in another process, like a backup does."""
        words = [sys.executable, "-I", "-c", LOCK, str(self._file)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdin and other.stdout and other.stdout.readline(), "the file could not be locked"
            time.sleep(seconds)
            other.stdin.close()

    def is_locked_by(self, pids: Sequence[int]) -> bool:
        """Whether it holds SQLite's write lock, or detent's writer lock."""
        names = (self._file.with_name(self._file.name + end) for end in ("-shm", "-writer"))
        inodes, found = {str(name.stat().st_ino) for name in names if name.exists()}, set()
        for line in Path("/proc/locks").read_text().splitlines():
            held = line.split()  # 1: POSIX ADVISORY WRITE 4711 08:01:1234 120 120
            if "->" not in held and held[3] == "WRITE" and int(held[4]) in pids:
                found.add(held[5].rpartition(":")[2])
        return bool(inodes & found)

    def remove(self) -> None:
        """The run removes its folder."""


STORES: dict[str, Callable[[Path, Path], ChaosStore]] = {
    "redis": ChaosRedis,
    "postgres": ChaosPostgres,
    "mysql": ChaosMysql,
    "sqlite": ChaosSqlite,
}
