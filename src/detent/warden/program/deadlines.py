"""Pure: when work has to end, and for which cause.

1. What has begun to end goes on ending; the first cause stands.
2. A command that ended by itself has no cause, however its leftovers are ended.
3. SIGTERM when it begins; SIGKILL `kill_after_s` later, and never later than trust lasts, than a
   stop allows, nor than `ORPHAN_S` after the node is gone.
"""

import math
from typing import Literal, NamedTuple

Cause = Literal["", "timeout", "stop", "trust", "error"]
ORPHAN_S = 1.0  # from SIGTERM to SIGKILL for work whose node is gone


class Terms(NamedTuple):
    """Until when work may go on.  Instants are seconds of the clock that also counts sleep."""

    trusted_by: float
    term_by: float
    timeout_by: float = math.inf
    kill_after_s: float = 10.0


class Seen(NamedTuple):
    """What has happened to the work so far."""

    main_ended: bool = False
    stopped_by: float = math.inf  # told to stop, and to be dead by then
    hung_up_at: float = math.inf


class Ending(NamedTuple):
    """Work that was sent SIGTERM."""

    cause: Cause
    kill_by: float


def begin(terms: Terms, seen: Seen, now: float) -> Ending | None:
    """Whether it must begin to end now."""
    causes: list[tuple[bool, Cause]] = [
        (seen.main_ended, ""),
        (seen.stopped_by < math.inf, "stop"),
        (now >= seen.hung_up_at, "trust"),
        (now >= terms.term_by, "trust"),
        (now >= terms.timeout_by, "timeout"),
    ]
    cause = next((cause for is_so, cause in causes if is_so), None)
    return None if cause is None else Ending(cause, now + terms.kill_after_s)


def kill_at(terms: Terms, seen: Seen, ending: Ending) -> float:
    """When SIGKILL is due."""
    return min(ending.kill_by, terms.trusted_by, seen.stopped_by, seen.hung_up_at + ORPHAN_S)


def next_at(terms: Terms, seen: Seen, ending: Ending | None) -> float:
    """When to look again, if nothing happens before."""
    if ending is None:
        return min(terms.term_by, terms.timeout_by, seen.hung_up_at)
    return kill_at(terms, seen, ending)
