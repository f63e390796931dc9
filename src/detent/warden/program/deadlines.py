"""Decides when a task has to end, and why.  Pure.

1. A task that is being ended stays so; the first cause counts.
2. A command that exited by itself has no cause, however its leftover processes end.
3. SIGTERM comes first.  SIGKILL follows after `kill_after_s`, but no later than trust lasts, than a stop
   allows, or than `ORPHAN_S` after the node has gone.
"""

import math
from typing import Literal, NamedTuple

Cause = Literal["", "timeout", "stop", "trust", "error"]
ORPHAN_S = 1.0  # from SIGTERM to SIGKILL for a task whose node is gone


class Terms(NamedTuple):
    """Until when a task may run, in seconds of `kernel.boottime`."""

    trusted_by: float
    term_by: float
    timeout_by: float = math.inf
    kill_after_s: float = 10.0


class Seen(NamedTuple):
    main_ended: bool = False
    stopped_by: float = math.inf  # a stop was ordered: it has to be dead by then
    hung_up_at: float = math.inf


class Ending(NamedTuple):
    """The task got SIGTERM."""

    cause: Cause
    kill_by: float


def begin(terms: Terms, seen: Seen, now: float) -> Ending | None:
    """Return how to end the task; None: it may go on."""
    causes: list[tuple[bool, Cause]] = [
        (seen.main_ended, ""),
        (seen.stopped_by < math.inf, "stop"),
        (now >= seen.hung_up_at, "trust"),
        (now >= terms.term_by, "trust"),
        (now >= terms.timeout_by, "timeout"),
    ]
    cause = next((cause for applies, cause in causes if applies), None)
    return None if cause is None else Ending(cause, now + terms.kill_after_s)


def kill_at(terms: Terms, seen: Seen, ending: Ending) -> float:
    return min(ending.kill_by, terms.trusted_by, seen.stopped_by, seen.hung_up_at + ORPHAN_S)


def next_at(terms: Terms, seen: Seen, ending: Ending | None) -> float:
    """Return when the task has to be checked again, if nothing happens before."""
    if ending is None:
        return min(terms.term_by, terms.timeout_by, seen.hung_up_at)
    return kill_at(terms, seen, ending)
