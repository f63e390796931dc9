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

from detent.model import Outcome

OK, REJECTED, EXHAUSTED, INTERNAL, CONTENDED = 0, 1, 2, 3, 4
TEMPFAIL = 75  # EX_TEMPFAIL, for hosts that know it
SIGNALLED = 128  # and the signal's number
_CODES = {"succeeded": OK, "rejected": REJECTED, "missed": OK, "skipped": OK, "replaced": CONTENDED}


def exit_code_of(outcome: Outcome) -> int:
    """The exit code that an outcome stands for."""
    if is_contention(outcome):
        return CONTENDED
    return INTERNAL if outcome.cause == "no-secret" else _CODES.get(outcome.kind, EXHAUSTED)


def is_contention(outcome: Outcome) -> bool:
    """Did the fire, or its retry, not run because another fire has its lane?"""
    return outcome.cause == "lane" and outcome.kind != "replaced"
