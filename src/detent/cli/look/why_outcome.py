"""What became of a fire, in plain words: sentences for `detent why`.  Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from detent.cli.formatting import duration, iso, relative
from detent.model import Outcome, Row

ON_TIME_S = 1.0  # later than this is worth a word


def outcome_sentences(row: Row, now: datetime) -> list[str]:
    """Sentences: how the fire ended or stands, why, and how late it began."""
    if row.state == "over":
        said = [_over(row)]
    elif row.state == "claimed":
        said = [_running(row, now)]
    else:
        said = [_pending(row, now)]
    return said + _start(row)


def _over(row: Row) -> str:
    if row.fire.instants > 1:
        return _span(row)
    return _ENDED[row.outcome.kind](row, row.outcome) if row.outcome else "it is over"


def _span(row: Row) -> str:
    fire = row.fire
    since, until = iso(fire.first_at), iso(fire.due_at)
    return (
        f"it was missed: it is one of {fire.instants:,} instants from {since} to {until}"
        f" that came while no node was alive, and catch_up: {fire.policy.catch_up} does not make them good"
    )


def _running(row: Row, now: datetime) -> str:
    so_far = f", for {duration((now - row.claimed_at).total_seconds())} so far" if row.claimed_at else ""
    stop = f"; it was told to stop: {row.stop.reason or row.stop.kind}" if row.stop else ""
    return f"it runs{so_far}: attempt {row.attempt} on {row.node}{stop}"


def _pending(row: Row, now: datetime) -> str:
    if row.attempt and row.outcome:
        again = f"; attempt {row.attempt + 1} is due {relative(row.run_at, now)}" if row.run_at else ""
        return f"attempt {row.attempt} {row.outcome.kind}: {row.outcome.reason}{again}"
    if row.fire.due_at > now:
        return f"it is planned, and due {relative(row.fire.due_at, now)}"
    waits = "for a place in its lane, or " if row.fire.lane else ""
    return f"it was due {relative(row.fire.due_at, now)}, and waits: {waits}for a node that has room for it"


def _start(row: Row) -> list[str]:
    """How late the first attempt began."""
    first = row.attempts[0] if row.attempts else None
    started_at = first.started_at if first else row.claimed_at if row.attempt else None
    if started_at is None:
        return []
    late_s = (started_at - row.fire.due_at).total_seconds()
    when = "in time" if late_s < ON_TIME_S else f"{duration(late_s)} after it was due"
    return [f"it started {when}, on {first.node if first else row.node}"]


# Each outcome has its sentence.


def _succeeded(row: Row, outcome: Outcome) -> str:
    tries = f", at attempt {row.attempt}" if row.attempt > 1 else ""
    return f"it succeeded{tries}"


def _failed(row: Row, outcome: Outcome) -> str:
    if outcome.cause == "lane":
        return (
            f"it failed, and when its retry was due, {outcome.by} was running: under Forbid it was given up"
        )
    tries = f", at each of {row.attempt} attempts" if row.attempt > 1 else ""
    return f"it failed{tries}: {outcome.reason}" if outcome.reason else f"it failed{tries}"


def _skipped(row: Row, outcome: Outcome) -> str:
    policy, other = row.fire.policy, outcome.by
    if outcome.cause == "paused":
        return f"it was skipped: the job was {outcome.reason}"
    if outcome.cause != "lane" or not other:
        return f"it was skipped: {outcome.reason}"
    if policy.concurrency == "Queue":
        return f"it was skipped: {other} was waiting for the lane already, and under Queue only one waits"
    width = "one" if policy.max_running == 1 else str(policy.max_running)
    return f"it was skipped: {other} was still running, and {policy.concurrency} lets {width} run at a time"


def _missed(row: Row, outcome: Outcome) -> str:
    if outcome.cause == "newer-instant":
        return (
            "it was missed: no node could run it in its time, and when one could, a newer instant was due;"
            f" catch_up: {row.fire.policy.catch_up} runs that one only"
        )
    if row.fire.start_by is None:
        return f"it was missed: {outcome.reason}"
    return (
        f"it was missed: it had to start by {iso(row.fire.start_by)}, and until then"
        " no node was alive or had room, or its lane was taken"
    )


def _lost(row: Row, outcome: Outcome) -> str:
    why = outcome.reason or "its node died or lost its claim"
    return f"it was lost: {why}; on_lost: {row.fire.policy.on_lost}"


_ENDED: dict[str, Callable[[Row, Outcome], str]] = {
    "succeeded": _succeeded,
    "failed": _failed,
    "rejected": lambda row, outcome: f"the app refused it: {outcome.reason}",
    "timed-out": lambda row, outcome: f"it took longer than it may, and was ended: {outcome.reason}",
    "skipped": _skipped,
    "replaced": lambda row, outcome: f"a newer fire took its place, {outcome.by} (concurrency: Replace)",
    "lost": _lost,
    "missed": _missed,
    "cancelled": lambda row, outcome: f"it was cancelled: {outcome.reason}",
}
