"""Checks whether the settings of a database server keep what it acknowledged.

For `detent doctor` and the start of a node.  Settings that every call or connection makes itself are not
checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from detent.errors import DetentError
from detent.stores.base import Diagnosis
from detent.text import listed, plural

AGAIN = "a fire may be launched again, with the same key and a higher fence"
CONNECTIONS_A_NODE = 5  # one for each of its concurrent calls, and one that waits


class Health(NamedTuple):
    promise: tuple[Diagnosis, ...]  # whether acknowledged writes survive a crash and a failover
    upkeep: tuple[Diagnosis, ...]  # what could make the store unavailable later


def health(url: str, look: Callable[[str], Health]) -> Health:
    try:
        return look(url)
    except DetentError as error:
        return Health((Diagnosis("durability", "weak", str(error), "its durability is unknown"),), ())


def durability(version: str, unsafe: Mapping[str, tuple[str, str]]) -> Diagnosis:
    """`unsafe`: settings that may lose acknowledged writes, as they are and as they should be."""
    if not unsafe:
        return Diagnosis("durability", "ok", f"{version}, every commit is synced")
    found = listed([f"{name} = {value}" for name, (value, _) in unsafe.items()], "and")
    advice = listed([f"{name} = {needed}" for name, (_, needed) in unsafe.items()], "and")
    consequence = f"a power cut may lose or corrupt acknowledged writes: {AGAIN}"
    return Diagnosis("durability", "weak", f"{version} with {found}", consequence, f"set {advice}")


def failover(copies: str, advice: str, *, are_there: bool, is_awaited: bool) -> Diagnosis:
    """`copies`: how many servers copy this one, in words.  `is_awaited`: a commit waits for one of them."""
    if is_awaited:
        return Diagnosis("failover", "ok", f"{copies}, and a commit waits for a synchronous one")
    if not are_there:
        return Diagnosis("failover", "ok", f"{copies}: nodes wait for a server that is down")
    consequence = f"one that takes over may lack the last acknowledged writes: {AGAIN}"
    return Diagnosis("failover", "weak", f"{copies}, none synchronous", consequence, advice)


def connections(free: int, advice: str) -> tuple[Diagnosis, ...]:
    if free >= 2 * CONNECTIONS_A_NODE:
        return ()
    consequence = f"a node needs up to {CONNECTIONS_A_NODE}; a node without a connection cannot claim"
    return (Diagnosis("connections", "weak", plural(free, "free connection"), consequence, advice),)
