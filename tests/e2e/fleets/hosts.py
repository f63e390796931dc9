"""Several hosts on this machine that share a store: nodes with an id and a folder each, as on machines.

A node finds no lock of another, so it cannot prove another's death.  Nodes reach the store through a
proxy, tests reach it directly.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Protocol

import pytest
import yaml
from tests.equipment.fleet import PATIENCE_S, Fleet, NodeProcess, wait_for
from tests.equipment.postgres_server import Server as PostgresServer
from tests.equipment.postgres_server import shared_server
from tests.equipment.proxy import Proxy
from tests.equipment.redis_server import RedisServer

from detent.stores.base import NODE
from detent.stores.registry import open_store

STORES = ("redis", "postgres")
# For tests of what nodes do, whatever their store is.
on_redis = pytest.mark.parametrize("hosts", ["redis"], indirect=True)
on_postgres = pytest.mark.parametrize("hosts", ["postgres"], indirect=True)
SOCKET = ".s.PGSQL.5432"


class Served(Protocol):
    """A server with a store that no other test uses."""

    @property
    def url(self) -> str: ...

    @property
    def target(self) -> int | str: ...

    def url_by(self, port: int) -> str:
        """The same store, by a port of this host."""


class ServedRedis:
    def __init__(self, folder: Path, *settings: str) -> None:
        self.server = RedisServer(folder, *settings)

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def target(self) -> int:
        return self.server.port

    def url_by(self, port: int) -> str:
        return f"redis://127.0.0.1:{port}"


class ServedPostgres:
    """A database with its own role, on the shared server."""

    def __init__(self, name: str, server: PostgresServer) -> None:
        self.server, self.name = server, name.replace("-", "_")
        server.sql(f"CREATE ROLE {self.name} LOGIN")
        self.create()

    def create(self) -> None:
        self.server.sql(f"CREATE DATABASE {self.name} OWNER {self.name}")

    def hang_up(self) -> None:
        """End all sessions of the database."""
        self.server.sql(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{self.name}'"
        )

    @property
    def url(self) -> str:
        return f"postgresql://{self.name}@/{self.name}?host={self.server.directory}"

    @property
    def target(self) -> str:
        return str(self.server.directory / SOCKET)

    def url_by(self, port: int) -> str:
        return f"postgresql://{self.name}@127.0.0.1:{port}/{self.name}"


class Hosts(Fleet):
    """A fleet whose nodes have nothing in common but a manifest and a store."""

    def __init__(self, directory: Path, served: Served) -> None:
        super().__init__(directory)
        self.served, self.proxy = served, Proxy(served.target)

    @property
    def url(self) -> str:
        return self.served.url

    @property
    def node_url(self) -> str:
        return self.served.url_by(self.proxy.port)

    def launch(self, *options: str, **env: str) -> NodeProcess:
        return super().launch(*options, **self.env_of(f"host-{len(self.nodes)}"), **env)

    def env_of(self, host: str) -> dict[str, str]:
        """Return the environment of a node on this host."""
        folder = self.directory / host
        folder.mkdir(exist_ok=True)
        config = folder / "machine.yaml"
        config.write_text(yaml.safe_dump({"node": {"id": host}}))
        return {"XDG_STATE_HOME": str(folder), "DETENT_CONFIG": str(config)}

    def name_hosts(self) -> None:
        """Nodes that are started from now on have host names of their own."""
        if os.geteuid() or not shutil.which("unshare"):
            pytest.skip("needs root and unshare, for hosts with names of their own")
        set_name = 'hostname "$(basename "$XDG_STATE_HOME")" && exec "$@"'
        self._prefix = ["unshare", "--uts", "sh", "-c", set_name, "sh"]

    def end(self) -> None:
        """Stop all nodes at once."""
        living = [node for node in self.nodes if node.process.poll() is None]
        for node in living:
            node.send(signal.SIGTERM)
        assert [node.process.wait(PATIENCE_S) for node in living] == [0] * len(living)

    def assert_nothing_unclaimed(self) -> None:
        """Every start that the witness saw is an attempt of that fire, under that claim, in the store."""
        kept = {(row.fire.key, one.fence, one.node) for row in self.find() for one in row.attempts}
        assert {(one.key, one.fence, one.node) for one in self.witness.starts()} - kept == set()

    def assert_nothing_is_held(self) -> None:
        """No lane is taken, and no process of a fire is alive."""
        assert self.find(state="claimed") == []
        assert [one for one in self.witness.starts() if one.alive()] == []


@contextmanager
def hosts_on(kind: str, directory: Path) -> Iterator[Hosts]:
    """Hosts on a `redis` of their own, or on a database of the `postgres` that tests share."""
    if kind == "redis":
        redis = ServedRedis(directory / "redis")
        try:
            with watched(Hosts(directory, redis)) as hosts:
                yield hosts
        finally:
            redis.server.end()
    else:
        with watched(Hosts(directory, ServedPostgres(directory.name, shared_server()))) as hosts:
            yield hosts


@contextmanager
def watched(hosts: Hosts) -> Iterator[Hosts]:
    """Clear up the hosts, and check that they logged only events."""
    try:
        yield hosts
    finally:
        hosts.clear_up()
        hosts.proxy.close()
    hosts.assert_quiet()


def monotonic_of(instant: datetime) -> float:
    """Convert an instant to the clock of the witness."""
    return instant.timestamp() - time.time() + time.clock_gettime(time.CLOCK_MONOTONIC)


def wait_until_nodes_know_each_other(fleet: Fleet, count: int) -> None:
    """Wait until each node wrote a heartbeat, and so read those of the others, after all had started."""
    with closing(open_store(fleet.url)) as store:
        wait_for(lambda: len(store.notes("t", NODE)) == count, what="a heartbeat of each node")
        first = max(note.written_at for note in store.notes("t", NODE))
        wait_for(lambda: min(note.written_at for note in store.notes("t", NODE)) > first, what="another one")
