"""Runs all due messages of an app at once, in the caller's thread: for tests.

Messages that follow, and retries that are due at once, run too.  Later ones stay: advance the clock and drain
again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.app.dry_run import attempt
from detent.errors import UsageError
from detent.model import Cause, Claim, Kind, Verdict
from detent.rules.rates import with_priorities
from detent.rules.settling import settle

if TYPE_CHECKING:
    from detent.app.app import Detent

ATTEMPTS_MAX = 100_000  # of one drain: a task may push itself for ever


class Drained(NamedTuple):
    """The end of one attempt of a message."""

    task: str
    key: str
    outcome: Kind
    reason: str
    cause: Cause
    attempt: int
    again_in_s: float | None = None  # None: the message has ended
    result: Any = None
    error: BaseException | None = None  # what it raised


def drain(app: Detent) -> list[Drained]:
    """Run every due message; return the attempts in order."""
    done = list[Drained]()
    names = {queue for task in app.tasks().values() for queue in (task.queue, *task.queues)}
    queues = with_priorities(sorted(names))
    while len(done) < ATTEMPTS_MAX:
        taken = app.claims.claim(queues, 1)
        done += [_drained(claim, verdict) for claim, verdict in taken.settled]
        for claim, call, _ in taken.granted:
            end, error = attempt(call, claim)
            verdict = settle(end, claim, app.claims.rng)
            app.claims.finish(claim, verdict, end)
            result = json.loads(end.result) if end.result else None
            done.append(_drained(claim, verdict)._replace(result=result, error=error))
        if not taken.granted and not taken.settled:
            return done
    raise UsageError(f"more than {ATTEMPTS_MAX:,} attempts were due: does a task push itself for ever?")


def _drained(claim: Claim, verdict: Verdict) -> Drained:
    task = claim.fire.job.partition(".")[2]
    kind, reason, cause, _ = verdict.outcome
    return Drained(task, claim.fire.key, kind, reason, cause, claim.attempt, verdict.again_in_s)
