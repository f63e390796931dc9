"""The events of a node's fires: one when an attempt starts, and one when the store has recorded its verdict.

The second one reports the verdict that the store confirmed, so at most one node reports it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from detent.events import Emit, attempt_event
from detent.model import Claim, Report, Verdict
from detent.rules.lanes import LATE_S
from detent.rules.outcomes import is_contended
from detent.rules.planning import rfc3339

_LATE = timedelta(seconds=LATE_S)
EXCERPT_MAX = 200  # bytes of a failed attempt's output in its event


class Reporter:
    def __init__(self, emit: Emit) -> None:
        self._emit = emit

    def start(self, claim: Claim, now: datetime, replaces: str = "") -> None:
        fire, more = claim.fire, {"replaces": replaces} if replaces else {}
        if fire.origin in ("hook", "push"):
            return
        if fire.origin == "schedule" and claim.attempt == 1 and fire.due_at + _LATE < now:
            late_s = round((now - fire.due_at).total_seconds())
            self._emit("caught-up", **fields_of(claim), late_s=late_s)
        self._emit("fire-started", **fields_of(claim), attempt=claim.attempt, **more)

    def end(self, report: Report, verdict: Verdict | None) -> None:
        claim = report.claim
        if verdict is None:
            self._emit("fenced", **fields_of(claim), outcome_reported=report.verdict.outcome.kind)
            return
        if claim.fire.origin == "push" and verdict.outcome.kind == "succeeded":
            return  # there may be thousands a second, and `history` shows them
        event = attempt_event(claim, verdict, is_contended(verdict.outcome))
        if event:
            self._emit(event, **fields_of(claim), **_details(report, verdict))


def fields_of(claim: Claim) -> dict[str, Any]:
    """Return the fields that every event of a fire has."""
    fire, (app, _, job) = claim.fire, claim.fire.job.partition(".")
    return {
        "app": app,
        "job": job,
        "fire": fire.key,
        "run_id": fire.run_id,
        "node": claim.node,
        "fence": claim.fence,
    }


def _details(report: Report, verdict: Verdict) -> dict[str, Any]:
    claim, outcome = report.claim, verdict.outcome
    details: dict[str, Any] = {"reason": outcome.reason} if outcome.reason else {}
    if outcome.kind != "succeeded":
        details["cause"] = outcome.cause
    if verdict.again_in_s is None:
        details |= {"attempts": claim.attempt, "last_status": report.status, "outcome": outcome.kind}
    else:
        details |= {"attempt": claim.attempt, "status": report.status, "again_in_s": verdict.again_in_s}
    if outcome.kind in ("failed", "rejected") and report.tail:
        details["body_excerpt"] = report.tail[-EXCERPT_MAX:].decode("utf-8", "replace")
    if claim.fire.instants > 1 and claim.fire.first_at:
        details |= {"instants": claim.fire.instants, "first": rfc3339(claim.fire.first_at)}
    return details | {"took_ms": round(report.took_s * 1000), "due": rfc3339(claim.fire.due_at)}
