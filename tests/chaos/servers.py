"""The store of a chaos run: a real server that keeps all it acknowledged, with a wall clock of its own.

It can be killed and started again with its data, and stopped and continued; nodes reach it by ports of
proxies.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from tests.e2e.wall_clock import WallClock
from tests.stores.postgres_server import Server, new_server
from tests.stores.redis_server import RedisServer

from detent.node.wardenry import kernel

DURABLE = ("fsync=on", "synchronous_commit=on", "max_connections=100")


class StoreClock:
    """The wall clock of the server; what it showed when is remembered."""

    def __init__(self, clock: WallClock) -> None:
        self._clock = clock
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
    keeps_era: bool  # a restart is no new era, before which the longest claim must have expired: a hook's

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

    def remove(self) -> None: ...


class ChaosRedis:
    keeps_era = False

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


class ChaosPostgres:
    keeps_era = True

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


STORES: dict[str, Callable[[Path, Path], ChaosStore]] = {"redis": ChaosRedis, "postgres": ChaosPostgres}
