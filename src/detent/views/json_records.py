"""Describes fires as JSON records with stable names, and in one word for tables.  Pure."""

import json
from datetime import datetime
from typing import Any

from detent.model import Attempt, Outcome, Rate, Row
from detent.views.formatting import iso


def names_record(name: str) -> dict[str, Any]:
    """Split `app.job`."""
    app, _, job = name.partition(".")
    return {"app": app, "job": job}


def fire_record(row: Row, *, with_output: bool = False) -> dict[str, Any]:
    fire, outcome = row.fire, row.outcome if row.state == "over" else None
    return {
        **names_record(fire.job),
        "fire": fire.key,
        "run_id": fire.run_id,
        "origin": fire.origin,
        "due_at": iso(fire.due_at),
        "first_at": iso(fire.first_at) if fire.instants > 1 else None,
        "instants": fire.instants,
        "state": row.state,
        **outcome_record(outcome),
        "node": row.node or None,
        "fence": row.fence or None,
        "over_at": iso(row.over_at),
        "took_ms": _milliseconds(took_s(row)),
        "attempts": [_attempt_record(attempt, with_output) for attempt in row.attempts],
    }


def outcome_record(outcome: Outcome | None) -> dict[str, Any]:
    kind, reason, cause = outcome[:3] if outcome else (None, None, None)
    return {"outcome": kind, "reason": reason, "cause": cause}


def _attempt_record(attempt: Attempt, with_output: bool) -> dict[str, Any]:
    record = {
        "attempt": attempt.number,
        "node": attempt.node,
        "fence": attempt.fence,
        "started_at": iso(attempt.started_at),
        "ended_at": iso(attempt.ended_at),
        **outcome_record(attempt.outcome),
        "status": attempt.status,
        "took_ms": _milliseconds(attempt_took_s(attempt)),
        "result": json.loads(attempt.result) if attempt.result else None,
    }
    return record | ({"output": attempt.tail.decode("utf-8", "replace")} if with_output else {})


def rate_record(rate: Rate) -> dict[str, Any]:
    return {"most": rate.most, "per_s": rate.window_s, "smooth": rate.smooth, "by_key": rate.by_key}


def took_s(row: Row) -> float | None:
    """The sum of the known durations of its attempts; None if none is known."""
    known = [took for attempt in row.attempts if (took := attempt_took_s(attempt)) is not None]
    return sum(known) if known else None


def attempt_took_s(attempt: Attempt) -> float | None:
    """None for a lost attempt that another node settled: its duration is not known."""
    return None if attempt.outcome.kind == "lost" and not attempt.took_s else attempt.took_s


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def started_at(row: Row) -> datetime | None:
    """When its first attempt started."""
    return row.attempts[0].started_at if row.attempts else row.claimed_at if row.attempt else None


def state_text(row: Row) -> str:
    """The outcome of a fire that is over; else `running`, `stopping` or `waiting`."""
    if row.state == "over":
        return row.outcome.kind if row.outcome else "over"
    if row.state == "claimed":
        return "stopping" if row.stop else "running"
    return "waiting"
