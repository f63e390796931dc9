"""The store of the node or trigger for which this process runs calls: they push to it and lock in it.

A child gets it over its socket.  An environment variable would show the store's password to every program
that a call starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class NodeStore(NamedTuple):
    app: str
    url: str  # "": withheld, as this process runs as another user
    options: Mapping[str, Any]  # `key_prefix`, `wait_replicas`
    env: Mapping[str, str]  # the node's DETENT_STORE and DETENT_CONFIG, which apply to other apps too
    is_declared: bool = False  # by the app itself: a process that imports the app knows it

    def withheld(self) -> NodeStore:
        """Return it without passwords, for a process of another user."""
        return NodeStore(self.app, "", {}, {})


is_child = False  # this process exists to run calls: an app that a call imports does not start here
_used: list[NodeStore] = []


def set_store(store: NodeStore | None) -> None:
    _used[:] = [store] if store else []


def current_store() -> NodeStore | None:
    return _used[0] if _used else None
