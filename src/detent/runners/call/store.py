"""The store of the node, or trigger, that this process runs calls for: what they push or lock goes there.

A child gets it over its wire.  An environment variable would show the store's password to every program
that a call starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class NodeStore(NamedTuple):
    """Which store a node uses, for the app of this name."""

    app: str
    url: str  # "": it is not given to this process, which runs as another user
    options: Mapping[str, Any]  # `key_prefix`, `wait_replicas`
    env: Mapping[str, str]  # the node's DETENT_STORE and DETENT_CONFIG, which count for other apps too
    is_declared: bool = False  # by the app itself: who imports the app knows it

    def withheld(self) -> NodeStore:
        """For a process of another user, which must not learn the node's passwords."""
        return NodeStore(self.app, "", {}, {})


_used: list[NodeStore] = []


def set_store(store: NodeStore | None) -> None:
    """From now on; None: no longer."""
    _used[:] = [store] if store else []


def current_store() -> NodeStore | None:
    return _used[0] if _used else None
