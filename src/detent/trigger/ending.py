"""How a trigger ends: from a fire's outcome to an exit code.  Pure.

| exit | outcome |
| --- | --- |
| 0 | succeeded; or what was due is settled otherwise: paused, missed |
| 1 | rejected |
| 2 | failed, timed-out, lost, cancelled: no attempt is left |
| 3 | internal: no secret to sign with |
| 4 | the lane was full, or a newer fire took the place of this one |
"""

from __future__ import annotations

from detent.core.lanes import is_contended
from detent.model import Outcome

OK, REJECTED, EXHAUSTED, INTERNAL, CONTENDED = 0, 1, 2, 3, 4
TEMPFAIL = 75  # EX_TEMPFAIL, for hosts that know it
SIGNALLED = 128  # and the signal's number
NO_SECRET = "no secret resolves"  # as `runners.http` says it
_PAUSED = "paused"
_CODES = {"succeeded": OK, "rejected": REJECTED, "missed": OK, "replaced": CONTENDED}


def code_of(outcome: Outcome) -> int:
    """The exit code that an outcome stands for."""
    if is_contention(outcome):
        return CONTENDED
    if outcome.kind == "skipped":
        return OK
    if outcome.kind == "failed" and outcome.reason.startswith(NO_SECRET):
        return INTERNAL
    return _CODES.get(outcome.kind, EXHAUSTED)


def is_contention(outcome: Outcome) -> bool:
    """Did the fire not run because its lane was taken?"""
    return is_contended(outcome) or (outcome.kind == "skipped" and not outcome.reason.startswith(_PAUSED))


def holder_of(outcome: Outcome) -> str:
    """Who had the lane, in the words of the reason."""
    reason = outcome.reason
    return reason.partition("by ")[2] or reason.removesuffix(" waits already")
