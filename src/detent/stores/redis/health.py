"""Checks whether a Redis server can be a store, and whether its settings keep what it acknowledged.

`refusal` runs before a server is used, and reads only INFO.  `promise` also reads CONFIG if the user may; it
is for `detent doctor` and the start of a node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from detent.errors import DetentError
from detent.stores.base import Diagnosis
from detent.text import plural

if TYPE_CHECKING:
    from detent.stores.redis.link import Link

OLDEST = (6, 2)
NO_EVICTION = "noeviction"
AGAIN = "a fire may be launched again, with the same key and a higher fence"
UNREAD = "could not be read"


def refusal(info: Mapping[Any, Any] | bytes) -> str:
    """Why a server with this INFO cannot be a store; "": it can."""
    told = _info(info)
    version = told.get("redis_version", "")
    if _version(version) < OLDEST:
        return f"is version {version}: a store needs {OLDEST[0]}.{OLDEST[1]} or newer"
    if told.get("role") == "slave":
        from detent.stores.redis.link import READ_ONLY  # late: the trigger does not need it

        return READ_ONLY
    policy = told.get("maxmemory_policy", NO_EVICTION)
    if policy != NO_EVICTION:
        return (
            f"has maxmemory-policy {policy}, which throws records away when memory runs out: "
            f"set it to {NO_EVICTION}"
        )
    return ""


def promise(url: str, wait_replicas: int) -> tuple[Diagnosis, ...]:
    """Whether acknowledged writes survive a crash, a full memory and a failover."""
    from detent.stores.redis.link import Link

    link = Link(url, 0)
    try:
        servers = [_info(told) for told in link.call_each("INFO")]
        settings = _settings(link) or [{}] * len(servers)
    except DetentError as error:
        return (Diagnosis("durability", "weak", str(error), "what it keeps is not known"),)
    finally:
        link.close()
    return (
        _worst(_durability(*one) for one in zip(settings, servers, strict=True)),
        _worst(_eviction(told) for told in servers),
        _worst(_failover(told, wait_replicas, link.is_guarded) for told in servers),
    )


def _worst(rows: Iterable[Diagnosis]) -> Diagnosis:
    return max(rows, key=lambda row: ("ok", "weak", "bad").index(row.state))


def _durability(settings: Mapping[str, str], told: Mapping[str, str]) -> Diagnosis:
    append, sync = settings.get("appendonly", ""), settings.get("appendfsync", "")
    advice = "set appendonly yes and appendfsync always"
    if not append:
        is_off = told.get("aof_enabled") == "0"
        found = "appendonly no" if is_off else f"appendfsync {UNREAD}: its user may not use CONFIG"
        return Diagnosis("durability", "weak", found, f"after a crash {AGAIN}", advice)
    if append != "yes":
        consequence = f"what was recorded since the last snapshot is gone after a crash: {AGAIN}"
        return Diagnosis("durability", "weak", f"appendonly {append}", consequence, advice)
    if sync != "always":
        consequence = f"the last second before a crash of its host may be forgotten: {AGAIN}"
        return Diagnosis("durability", "weak", f"appendfsync {sync}", consequence, advice)
    return Diagnosis("durability", "ok", "appendonly yes, appendfsync always")


def _eviction(told: Mapping[str, str]) -> Diagnosis:
    policy = told.get("maxmemory_policy", UNREAD)
    if policy == NO_EVICTION:
        return Diagnosis("eviction", "ok", f"maxmemory-policy {policy}")
    consequence = "it is refused: records would be thrown away when memory runs out"
    return Diagnosis("eviction", "bad", f"maxmemory-policy {policy}", consequence, f"set it to {NO_EVICTION}")


def _failover(told: Mapping[str, str], wait_replicas: int, is_guarded: bool) -> Diagnosis:
    replicas = int(told.get("connected_slaves", "0"))
    if told.get("role") == "slave":
        consequence, advice = "it is refused: nothing can be recorded there", "name its master"
        return Diagnosis("failover", "bad", "a read-only replica", consequence, advice)
    if not replicas and is_guarded:
        consequence = f"one that comes back and is promoted may have forgotten: {AGAIN}"
        advice = "see that its replicas run, and set store.wait_replicas to their number"
        return Diagnosis("failover", "weak", "no replica is connected", consequence, advice)
    if not replicas:
        return Diagnosis("failover", "ok", "no replicas: it cannot fail over to one that lags")
    found = f"{plural(replicas, 'replica')}, wait_replicas {wait_replicas}"
    consequence = f"a replica that is promoted may have forgotten what was acknowledged: {AGAIN}"
    advice = f"set store.wait_replicas to {replicas}: it makes that rare"
    if wait_replicas >= replicas > 0:
        consequence = f"a replica that lost its memory and is promoted has forgotten: {AGAIN}"
        advice = "have no automatic failover, or live with it"
    return Diagnosis("failover", "weak", found, consequence, advice)


def _settings(link: Link) -> list[dict[str, str]]:
    """The settings of each server; empty if the user may not read them."""
    try:
        return [_pairs(told) for told in link.call_each("CONFIG", "GET", "append*")]
    except DetentError:  # an ACL may forbid it
        return []


def _pairs(told: Any) -> dict[str, str]:
    pairs = told.items() if isinstance(told, dict) else zip(told[::2], told[1::2], strict=True)
    return {_text(name): _text(value) for name, value in pairs}


def _info(told: Mapping[Any, Any] | bytes) -> dict[str, str]:
    if isinstance(told, Mapping):
        return {_text(name): _text(value) for name, value in told.items()}
    lines = (line.partition(":") for line in told.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdecimal())


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
