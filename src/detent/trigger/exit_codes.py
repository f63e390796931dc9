"""The exit code of a trigger, from the outcome of its fire.  Pure.

| exit | outcome |
| --- | --- |
| 0 | succeeded; or settled without running: paused, missed |
| 1 | rejected |
| 2 | failed, timed-out, lost or cancelled, and no attempt is left |
| 3 | internal: no secret to sign with |
| 4 | the lane was full, or a newer fire replaced this one |
"""

from __future__ import annotations

from detent.model import Outcome

OK, REJECTED, EXHAUSTED, INTERNAL, CONTENDED = 0, 1, 2, 3, 4
TEMPFAIL = 75  # EX_TEMPFAIL, for hosts that know it
SIGNALLED = 128  # plus the number of the signal
_CODES = {"succeeded": OK, "rejected": REJECTED, "missed": OK, "skipped": OK, "replaced": CONTENDED}


def exit_code_of(outcome: Outcome) -> int:
    if is_contention(outcome):
        return CONTENDED
    return INTERNAL if outcome.cause == "no-secret" else _CODES.get(outcome.kind, EXHAUSTED)


def is_contention(outcome: Outcome) -> bool:
    """Return whether the fire or its retry did not run because another fire has the lane."""
    return outcome.cause == "lane" and outcome.kind != "replaced"
