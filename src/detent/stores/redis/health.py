"""Checks whether a Redis server can be a store, and whether its settings keep what it acknowledged.

`refusal` runs before a server is used, and reads only INFO.  `promise` also reads CONFIG if the user may; it
is for `detent doctor` and the start of a node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from detent.errors import DetentError, StoreMismatch, StoreUnavailable
from detent.stores.base import Diagnosis
from detent.text import plural

if TYPE_CHECKING:
    from detent.stores.redis.servers import RedisServers

OLDEST = (6, 2)
NO_EVICTION = "noeviction"
READ_ONLY = "is a read-only replica: name its master"
AWAY = ("LOADING", "BUSY", "MASTERDOWN", "NOREPLICAS", "MISCONF", "CLUSTERDOWN", "TRYAGAIN", "UNBLOCKED")
AGAIN = "a fire may be launched again, with the same key and a higher fence"
RIGHTS = "its user needs +@read +@write +@scripting +info +time +wait on the keys of the prefix"
UNREAD = "could not be read"


def refusal(info: bytes) -> str:
    """Why a server with this INFO cannot be a store; "": it can."""
    server = _info(info)
    version = server.get("redis_version", "")
    if tuple(int(part) for part in version.split(".")[:2] if part.isdecimal()) < OLDEST:
        return f"is version {version}: a store needs {OLDEST[0]}.{OLDEST[1]} or newer"
    if server.get("role") == "slave":
        return READ_ONLY
    policy = server.get("maxmemory_policy", NO_EVICTION)
    if policy != NO_EVICTION:
        consequence = "which deletes records when memory runs out"
        return f"has maxmemory-policy {policy}, {consequence}: set it to {NO_EVICTION}"
    return ""


def explain(where: str, said: str) -> DetentError:
    """The error for an error reply of the server."""
    if said.startswith(("WRONGPASS", "NOAUTH", "ERR AUTH", "ERR invalid password")):
        return StoreMismatch(f"{where} refuses the user or the password: correct them in its URL")
    if said.startswith("READONLY"):
        return StoreMismatch(f"{where} {READ_ONLY}")
    if "NOPERM" in said:
        return StoreMismatch(f"{where} denies a command that a store needs: {said}; {RIGHTS}")
    if said.startswith("OOM") or "OOM command" in said:
        return StoreUnavailable(f"{where} is full: raise its maxmemory, or `detent prune`")
    if said.startswith(AWAY):
        return StoreUnavailable(f"{where} does not answer: {said}")
    if "DETENT-SCHEMA" in said:
        return StoreMismatch(
            f"{where} holds data of an incompatible version of detent: upgrade the older one"
        )
    return StoreMismatch(f"{where} refuses: {said}")


def promise(url: str, wait_replicas: int) -> tuple[Diagnosis, ...]:
    """Whether acknowledged writes survive a crash, a full memory and a failover."""
    from detent.stores.redis.servers import RedisServers

    connected = RedisServers(url)
    try:
        servers = [_info(server) for server in connected.send_each("INFO")]
        settings = _settings(connected) or [{}] * len(servers)
    except DetentError as error:
        return (Diagnosis("durability", "weak", str(error), "its durability is unknown"),)
    finally:
        connected.close()
    rows = (
        [_durability(*one) for one in zip(settings, servers, strict=True)],
        [_eviction(server) for server in servers],
        [_failover(server, wait_replicas, connected.has_sentinels) for server in servers],
    )
    return tuple(max(some, key=lambda row: ("ok", "weak", "bad").index(row.state)) for some in rows)


def _durability(settings: Mapping[str, str], server: Mapping[str, str]) -> Diagnosis:
    append, sync = settings.get("appendonly", ""), settings.get("appendfsync", "")
    consequence = f"after a crash {AGAIN}"
    if append == "yes" and sync == "always":
        return Diagnosis("durability", "ok", "appendonly yes, appendfsync always")
    if append == "yes":
        found = f"appendfsync {sync}"
        consequence = f"a crash of its host may lose the last second: {AGAIN}"
    elif append:
        found = f"appendonly {append}"
        consequence = f"a crash loses what was recorded since the last snapshot: {AGAIN}"
    elif server.get("aof_enabled") == "0":
        found = "appendonly no"
    else:
        found = f"appendfsync {UNREAD}: its user may not use CONFIG"
    return Diagnosis("durability", "weak", found, consequence, "set appendonly yes and appendfsync always")


def _eviction(server: Mapping[str, str]) -> Diagnosis:
    policy = server.get("maxmemory_policy", UNREAD)
    if policy == NO_EVICTION:
        return Diagnosis("eviction", "ok", f"maxmemory-policy {policy}")
    consequence = "it is refused: it would delete records when memory runs out"
    return Diagnosis("eviction", "bad", f"maxmemory-policy {policy}", consequence, f"set it to {NO_EVICTION}")


def _failover(server: Mapping[str, str], wait_replicas: int, is_guarded: bool) -> Diagnosis:
    replicas = int(server.get("connected_slaves", "0"))
    if server.get("role") == "slave":
        consequence = "it is refused: nothing can be recorded there"
        return Diagnosis("failover", "bad", "a read-only replica", consequence, "name its master")
    if not replicas and not is_guarded:
        return Diagnosis("failover", "ok", "no replicas: it cannot fail over to a stale one")
    found = f"{plural(replicas, 'replica')}, wait_replicas {wait_replicas}"
    if not replicas:
        found = "no replica is connected"
        consequence = f"a replica that returns and is promoted may lack acknowledged writes: {AGAIN}"
        advice = "start its replicas, and set store.wait_replicas to their number"
    elif wait_replicas >= replicas:
        consequence = f"a promoted replica that lost its data lacks acknowledged writes: {AGAIN}"
        advice = "disable automatic failover, or accept the risk"
    else:
        consequence = f"a promoted replica may lack acknowledged writes: {AGAIN}"
        advice = f"set store.wait_replicas to {replicas}: it makes that rare"
    return Diagnosis("failover", "weak", found, consequence, advice)


def _settings(servers: RedisServers) -> list[dict[str, str]]:
    """The settings of each server; empty if the user may not read them."""
    try:
        found = [[word.decode() for word in one] for one in servers.send_each("CONFIG", "GET", "append*")]
    except DetentError:  # an ACL may forbid it
        return []
    return [dict(zip(words[::2], words[1::2], strict=True)) for words in found]


def _info(server: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in server.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}
