"""A planted bug: a subclass of a part of the simulator, or a function that replaces one of detent's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple

from detent.node.node import Node
from detent.testing.sim.checked_store import CheckedDriver
from detent.testing.sim.warden import SimWarden

KINDS: dict[type, str] = {Node: "node_type", CheckedDriver: "driver_type", SimWarden: "warden_type"}
MUTANTS: dict[str, Mutant] = {}
Function = Callable[..., Any]


class Mutant(NamedTuple):
    name: str
    scenario: str  # in which the search for it starts
    choices: dict[str, Any]  # arguments of `Sim`
    owner: Any = None  # of the function that is replaced
    attribute: str = ""
    replacement: Function | None = None

    @contextmanager
    def planted(self) -> Iterator[dict[str, Any]]:
        """Plant the bug.  Yields the arguments of `Sim`."""
        original = getattr(self.owner, self.attribute, None)
        if original and self.replacement:
            setattr(self.owner, self.attribute, _replaced(original, self.replacement))
        try:
            yield self.choices
        finally:
            if original:
                setattr(self.owner, self.attribute, original)


def part(scenario: str = "rough") -> Callable[[type], type]:
    """Register a class that replaces the node, the driver or the warden."""

    def register(mutant: type) -> type:
        choices = {name: mutant for kind, name in KINDS.items() if issubclass(mutant, kind)}
        MUTANTS[mutant.__name__] = Mutant(mutant.__name__, scenario, choices)
        return mutant

    return register


def patch(owner: Any, attribute: str, scenario: str = "rough") -> Callable[[Function], Function]:
    """Register a function that replaces one of a module or class, and gets the original first."""

    def register(mutant: Function) -> Function:
        MUTANTS[mutant.__name__] = Mutant(mutant.__name__, scenario, {}, owner, attribute, mutant)
        return mutant

    return register


def _replaced(original: Function, mutant: Function) -> Function:
    @wraps(original)
    def call(*args: Any, **fields: Any) -> Any:
        return mutant(original, *args, **fields)

    return call
