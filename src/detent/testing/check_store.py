"""The suite that every store must pass.  Each check is one rule, and its name is the rule.

The test of a backend is one call of `check_store`.  For one test result per rule, run each of `CHECKS` with
`run_check`.  The opener must return an empty store for each check.  The store's clocks must move only when a
check lets time pass.
"""

from __future__ import annotations

from collections.abc import Callable
from traceback import extract_tb
from types import FunctionType, ModuleType

from detent.errors import UsageError
from detent.stores.base import Store
from detent.testing.stores import (
    alerts,
    backlog,
    bookkeeping,
    claiming,
    counting,
    finding,
    finishing,
    lanes,
    overview,
    planning,
    queues,
)
from detent.testing.stores.fixtures import Check, FakeClock, NotOffered, World

__all__ = ["CHECKS", "Check", "FakeClock", "NotOffered", "World", "check_store", "run_check"]


def check_store(
    opener: Callable[[], Store],
    pass_time: Callable[[float], None],
    *,
    step_wall: Callable[[float], None] | None = None,
    reopen: Callable[[Store], Store] | None = None,
    new_epoch: Callable[[Store], Store] | None = None,
) -> list[str]:
    """Check every rule, and return the rules that held.  Rules that need what is not offered are skipped."""
    world, held = World(opener, pass_time, step_wall, reopen, new_epoch), []
    for check in CHECKS:
        try:
            run_check(check, world)
        except NotOffered:
            continue
        held.append(sentence(check))
    return held


def run_check(check: Check, world: World) -> None:
    """Check one rule; an `AssertionError` names the store and the rule."""
    if not __debug__:
        raise UsageError("check_store checks by assertions, which `python -O` leaves out: run it without -O")
    store = world.opener()
    try:
        check(store, world)
    except NotOffered:
        raise
    except Exception as error:
        raise AssertionError(f"{type(store).__name__}: {sentence(check)}: {_cause(error)}") from error
    finally:
        store.close()


def sentence(check: Check) -> str:
    return getattr(check, "__name__", str(check)).replace("_", " ")


def _cause(error: Exception) -> str:
    """The text of the error or, for a bare assertion, its source line."""
    where = extract_tb(error.__traceback__)[-1]
    text = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
    return f"{text or where.line} ({where.name}, line {where.lineno})"


def _checks_of(module: ModuleType) -> list[Check]:
    members = vars(module).items()
    return [
        member
        for name, member in members
        if isinstance(member, FunctionType) and member.__module__ == module.__name__ and name[0] != "_"
    ]


CHECKS: tuple[Check, ...] = (
    *_checks_of(planning),
    *_checks_of(claiming),
    *_checks_of(lanes),
    *_checks_of(backlog),
    *_checks_of(finishing),
    *_checks_of(alerts),
    *_checks_of(queues),
    *_checks_of(counting),
    *_checks_of(bookkeeping),
    *_checks_of(finding),
    *_checks_of(overview),
)
