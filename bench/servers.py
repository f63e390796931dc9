"""Servers for a benchmark, which keep what they acknowledged (fsync).

A Redis server is the machine's own if there is one, as users have it.  The one that pip installs for the
tests is compiled for any machine, which makes its Lua slower.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from tests.equipment.postgres_server import Server, new_server
from tests.equipment.redis_server import RedisServer, server_binary

__all__ = ["RedisServer", "Server", "benchmark_binary", "postgres_server", "redis_server", "redis_version"]
DURABLE = ("fsync=on", "synchronous_commit=on", "full_page_writes=on", "shared_buffers=128MB")


@contextmanager
def redis_server(*settings: str) -> Iterator[RedisServer]:
    """`appendfsync always`, unless the settings override it."""
    with tempfile.TemporaryDirectory(prefix="detent-bench-") as folder:
        server = RedisServer(Path(folder), *settings, binary=_redis_binary())
        try:
            yield server
        finally:
            server.end()


def _redis_binary() -> str:
    return shutil.which("valkey-server") or shutil.which("redis-server") or server_binary()


def redis_version() -> str:
    """Return the name and version of the server."""
    said = subprocess.run([_redis_binary(), "--version"], capture_output=True, text=True, check=True).stdout
    whole = " ".join(said.split()[:3]).replace(" v=", " ")
    return f"{whole}, {'of the tests' if _redis_binary() == server_binary() else 'of the machine'}"


@contextmanager
def postgres_server(*settings: str) -> Iterator[Server]:
    server = new_server(*DURABLE, *settings)
    try:
        server.make()
        server.start()
        yield server
    finally:
        server.remove()


def benchmark_binary() -> str | None:
    """Return the path of redis-benchmark, or an empty text."""
    beside = Path(server_binary()).with_name("valkey-benchmark")
    if beside.exists():
        return str(beside)
    return shutil.which("valkey-benchmark") or shutil.which("redis-benchmark")
