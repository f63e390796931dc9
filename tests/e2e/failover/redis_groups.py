"""Redis servers that fail over: a master with a replica and three Sentinels, and a cluster.

Every server is known by the address of a front, so that a master can be cut off from its replica and its
Sentinels while clients still reach it: then a replica is promoted, and the old master goes on answering.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tests.equipment.fleet import LOOK_S, wait_for
from tests.equipment.proxy import Proxy
from tests.equipment.redis_server import RedisServer, free_port

# Commands that only replicas or Sentinels send, soon after connecting.
REPLICAS = re.compile(rb"REPLCONF|PSYNC", re.IGNORECASE)
SENTINELS = re.compile(rb"sentinel-")
DOWN_MS = 700  # a server that is silent for this long is down
NODE_TIMEOUT_MS = 1500
SLOTS = 16384


class Front(Proxy):
    """The address that a server is known by."""

    def __init__(self, target: int) -> None:
        self._shut_out = set[re.Pattern[bytes]]()
        self._peers: dict[re.Pattern[bytes], list[socket.socket]] = {REPLICAS: [], SENTINELS: []}
        super().__init__(target)

    def shut_out(self, peers: re.Pattern[bytes]) -> None:
        """Cut off these peers; clients still reach the server."""
        self._shut_out.add(peers)
        for one in self._peers[peers]:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def let_in(self) -> None:
        """Let all peers in again."""
        self._shut_out.clear()

    def _is_welcome(self, source: socket.socket, data: bytes) -> bool:
        for peers in filter(lambda peers: peers.search(data), self._peers):
            self._peers[peers].append(source)
        return not any(source in self._peers[peers] for peers in self._shut_out)


class Guarded:
    """A master, its replica, and three Sentinels."""

    def __init__(self, folder: Path) -> None:
        self.servers = [RedisServer(folder / f"redis-{number}") for number in range(2)]
        self.fronts = [Front(one.port) for one in self.servers]
        for server, front in zip(self.servers, self.fronts, strict=True):
            server.call("CONFIG", "SET", "replica-announce-ip", "127.0.0.1")
            server.call("CONFIG", "SET", "replica-announce-port", front.port)
        self.servers[1].call("REPLICAOF", "127.0.0.1", self.fronts[0].port)
        until("the replica follows", lambda: is_following(self.servers[1]))
        self.sentinels = [RedisServer(folder / f"sentinel-{n}", watches=self._watches()) for n in range(3)]
        for one in self.sentinels:
            until("the Sentinels know each other", lambda one=one: _knows_all(one))

    @property
    def url(self) -> str:
        return sentinel_url(self.sentinels)

    def is_promoted(self) -> bool:
        """Whether all Sentinels name the second server."""
        return all(master_of(one) == self.fronts[1].port for one in self.sentinels)

    def end(self) -> None:
        for one in (*self.sentinels, *self.servers):
            one.end()
        for front in self.fronts:
            front.close()

    def _watches(self) -> str:
        return "\n".join(
            (
                f"sentinel monitor main 127.0.0.1 {self.fronts[0].port} 2",
                f"sentinel down-after-milliseconds main {DOWN_MS}",
                "sentinel failover-timeout main 3000",
            )
        )


class Cluster:
    """Three masters, and a replica of the master with an app's slot."""

    def __init__(self, folder: Path, app: str) -> None:
        buses = [free_port() for _ in range(4)]
        timeout = ("--cluster-node-timeout", str(NODE_TIMEOUT_MS))
        settings = [("--cluster-enabled", "yes", "--cluster-port", str(bus), *timeout) for bus in buses]
        self.servers = [RedisServer(folder / f"redis-{n}", *some) for n, some in enumerate(settings)]
        *masters, self.replica = self.servers
        for number, one in enumerate(masters):
            one.call("CLUSTER", "ADDSLOTSRANGE", SLOTS * number // 3, SLOTS * (number + 1) // 3 - 1)
        for one in self.servers[1:]:
            one.call("CLUSTER", "MEET", "127.0.0.1", self.servers[0].port, buses[0])
        until("they have met", lambda: all(_is_joined(one) for one in self.servers))
        slot = int(masters[0].call("CLUSTER", "KEYSLOT", f"{{detent:{app}}}:world"))
        self.master = masters[slot * 3 // SLOTS]
        self.replica.call("CLUSTER", "REPLICATE", self.master.call("CLUSTER", "MYID").decode())
        until("the replica follows", lambda: is_following(self.replica))
        until("all know the replica", lambda: all(_has_replica(one) for one in masters))

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{one.port}" for one in self.servers)

    def is_promoted(self) -> bool:
        return bool(self.replica.call("INFO", "replication")["role"] == "master")

    def end(self) -> None:
        for one in self.servers:
            one.end()


def sentinel_url(sentinels: Sequence[RedisServer | Proxy]) -> str:
    hosts = ",".join(f"127.0.0.1:{one.port}" for one in sentinels)
    return f"redis+sentinel://{hosts}/main"


def until(what: str, look: Callable[[], object]) -> None:
    wait_for(look, what=what, every_s=LOOK_S)


def is_following(replica: RedisServer) -> bool:
    return bool(replica.call("INFO", "replication").get("master_link_status") == "up")


def master_of(sentinel: RedisServer) -> int:
    """The port that a Sentinel names."""
    return int(sentinel.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main")[1])


def _knows_all(sentinel: RedisServer) -> bool:
    """Two others, and a replica."""
    others = sentinel.call("SENTINEL", "SENTINELS", "main")
    return len(others) == 2 and len(sentinel.call("SENTINEL", "REPLICAS", "main")) == 1


def _is_joined(server: RedisServer) -> bool:
    info = server.call("CLUSTER", "INFO")
    return b"cluster_state:ok" in info and b"cluster_known_nodes:4" in info


def _has_replica(server: RedisServer) -> bool:
    return b" slave " in server.call("CLUSTER", "NODES").replace(b"myself,", b"")
