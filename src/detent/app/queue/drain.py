"""All that is due on an app's queues, run here and now: for tests.

- The functions are called in the caller's own thread, whatever their isolation.
- What follows from a message, and what is due again at once, is run too.  What is due later is left: move
  the clock, and drain again.
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

ATTEMPTS_MAX = 100_000  # of one drain: a task that pushes itself would never end


class Drained(NamedTuple):
    """How an attempt of a message ended."""

    task: str
    key: str
    outcome: Kind
    reason: str
    cause: Cause
    attempt: int
    again_in_s: float | None = None  # None: the message is over
    result: Any = None
    error: BaseException | None = None  # what it raised


def drain(app: Detent) -> list[Drained]:
    """Every attempt that was made, in order."""
    tasks, done = app.tasks(), list[Drained]()
    queues = with_priorities(
        sorted({queue for task in tasks.values() for queue in (task.queue, *task.queues)})
    )
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
