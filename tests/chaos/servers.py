"""The store of a chaos run: a real server that keeps all it acknowledged, or one file of SQLite.

A server has a wall clock of its own; it can be killed and started again with its data, and stopped and
continued; nodes reach it by ports of proxies.  A file can be locked; its clock is that of the host, which all
nodes share.
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

from tests.equipment.postgres_server import Server, new_server
from tests.equipment.redis_server import RedisServer
from tests.equipment.wall_clock import WallClock

from detent.warden.program import kernel

DURABLE = ("fsync=on", "synchronous_commit=on", "max_connections=100")
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
    """The wall clock of the server; what it showed when is remembered."""

    def __init__(self, clock: WallClock) -> None:
        self._clock = clock
        self.preload = clock.env
        self.env = dict(os.environ) | clock.env
        self.offset = time.time() - time.monotonic()  # of an honest clock
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
    keeps_epoch: bool  # a restart is no new epoch, before which the longest claim must have expired: a hook's
    targets: frozenset[str]  # of the faults that it can suffer
    node_env: dict[str, str]  # of its nodes

    @property
    def url(self) -> str:
        """The way there without a proxy."""

    @property
    def target(self) -> int | str:
        """What a proxy is to connect to."""

    def url_by(self, port: int) -> str: ...

    def kill(self) -> None: ...

    def start(self) -> None: ...

    def signal(self, signum: int) -> None: ...

    def lock(self, seconds: float) -> None:
        """Let no node write for so long."""

    def is_locked_by(self, pids: Sequence[int]) -> bool:
        """Does one of these processes keep all others from writing?"""

    def remove(self) -> None: ...


class ChaosServer:
    """What the servers have in common: no process of a client locks all of one."""

    targets = OF_A_SERVER
    node_env: ClassVar[dict[str, str]] = {}  # each node has a clock of its own

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
        folder = self._server.directory  # its user may read nothing of ours
        library = folder / "skew.so"
        shutil.copy(skew, library)
        library.chmod(0o755)
        self.clock = StoreClock(WallClock(library, folder / "store-clock"))
        (folder / "store-clock").chmod(0o644)
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
        """To all processes of the server: one that still ran could hold what another waits for."""
        for pid in kernel.descendants({self._server.pid}):
            with suppress(ProcessLookupError):
                os.kill(pid, signum)

    def remove(self) -> None:
        self.signal(signal.SIGCONT)
        self._server.remove()


class ChaosSqlite:
    """One file, and nodes on one host.  Nothing is between a node and the file: proxies lead nowhere."""

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
        """There is no process of its own."""

    def lock(self, seconds: float) -> None:
        """By another process, as a backup or a database browser does it."""
        words = [sys.executable, "-I", "-c", LOCK, str(self._file)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdin and other.stdout and other.stdout.readline(), "the file could not be locked"
            time.sleep(seconds)
            other.stdin.close()

    def is_locked_by(self, pids: Sequence[int]) -> bool:
        """It has SQLite's lock for writers, or the turn of the next one."""
        names = (self._file.with_name(self._file.name + end) for end in ("-shm", "-writer"))
        inodes, found = {str(name.stat().st_ino) for name in names if name.exists()}, set()
        for line in Path("/proc/locks").read_text().splitlines():
            held = line.split()  # 1: POSIX ADVISORY WRITE 4711 08:01:1234 120 120
            if "->" not in held and held[3] == "WRITE" and int(held[4]) in pids:
                found.add(held[5].rpartition(":")[2])
        return bool(inodes & found)

    def remove(self) -> None:
        """Its folder goes with that of the run."""


STORES: dict[str, Callable[[Path, Path], ChaosStore]] = {
    "redis": ChaosRedis,
    "postgres": ChaosPostgres,
    "sqlite": ChaosSqlite,
}
