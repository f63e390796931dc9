"""The columns of a fire and of an attempt, and their values."""

from __future__ import annotations

import json
from typing import Any

from detent.clock import instant
from detent.model import Attempt, Fire, Outcome, Row, Verdict
from detent.stores.base import app_of
from detent.stores.encoding import instant_of, outcome_of, outcome_text, policy_of, policy_text, seconds_of
from detent.stores.engine.record import Record

FIRE = (
    "key", "app", "job", "due", "run_id", "queue", "lane", "start_by", "policy", "origin", "revision",
    "payload", "first", "instants",
)  # fmt: skip
STATE = (
    "version", "tier", "state", "run_at", "look_at", "parked", "waits", "attempt", "recorded", "fence",
    "node", "ask", "ttl", "expires", "ran_node", "ran_fence", "ran_at", "disposition", "stop", "outcome",
    "verdict", "kind", "over_at", "keep_until",
)  # fmt: skip
COLUMNS = (*FIRE, *STATE)
SELECT = ", ".join(("id", *COLUMNS))
ROW = (*FIRE, "state", "attempt", "node", "fence", "run_at", "ran_at", "over_at", "outcome", "stop")
ATTEMPT = (
    "fire", "number", "node", "fence", "started", "ended", "outcome", "status", "took", "result", "tail",
)  # fmt: skip


def fire_values(fire: Fire) -> tuple[Any, ...]:
    return (
        fire.key, app_of(fire.job), fire.job, fire.due_at.timestamp(), fire.run_id, fire.queue, fire.lane,
        seconds_of(fire.start_by), policy_text(fire.policy), fire.origin, fire.revision, fire.payload,
        seconds_of(fire.first_at), fire.instants,
    )  # fmt: skip


def state_values(record: Record, version: int, first_fence: int) -> tuple[Any, ...]:
    """A fence below 0 stands for a new one: see `driver.Write`."""
    fence, ran_fence = (
        first_fence - number - 1 if number < 0 else number for number in (record.fence, record.ran_fence)
    )
    return (
        version, record.tier, record.state, record.run_at, record.look_at, record.is_parked, record.waits,
        record.attempt, record.recorded, fence, record.node, record.ask, record.ttl_s, record.expires,
        record.ran_node, ran_fence, record.ran_at, _text(record.disposition),
        _text(record.stop), _text(record.outcome), _verdict_text(record.verdict),
        record.outcome.kind if record.outcome else "", record.over_at, min(record.keep_until, 9e15),
    )  # fmt: skip


def record_of(row: tuple[Any, ...]) -> Record:
    (
        id, key, _, job, due, run_id, queue, lane, start_by, policy, origin, revision, payload, first,
        instants, version, tier, state, run_at, look_at, parked, waits, attempt, recorded, fence, node, ask,
        ttl_s, expires, ran_node, ran_fence, ran_at, disposition, stop, outcome, verdict, _, over_at,
        keep_until,
    ) = row  # fmt: skip
    record = object.__new__(Record)
    record.fire = Fire(
        key, job, instant(due), run_id, queue, lane, instant_of(start_by), policy_of(policy), origin,
        revision, payload, instant_of(first), instants,
    )  # fmt: skip
    record.id, record.version, record.tier, record.state = id, version, tier, state
    record.run_at, record.look_at, record.is_parked, record.waits = run_at, look_at, bool(parked), bool(waits)
    record.attempt, record.recorded = attempt, recorded
    record.fence, record.node, record.ask, record.ttl_s, record.expires = fence, node, ask, ttl_s, expires
    record.ran_node, record.ran_fence, record.ran_at = ran_node, ran_fence, ran_at
    record.disposition, record.stop = outcome_of(disposition), outcome_of(stop)
    record.outcome, record.verdict = outcome_of(outcome), _verdict_of(verdict)
    record.over_at, record.keep_until = over_at, keep_until
    return record


def row_of(row: tuple[Any, ...]) -> Row:
    """Of the columns `ROW`: a fire without its attempts."""
    (
        key, _, job, due, run_id, queue, lane, start_by, policy, origin, revision, payload, first, instants,
        state, attempt, node, fence, run_at, ran_at, over_at, outcome, stop,
    ) = row  # fmt: skip
    due_at = instant(due)
    fire = Fire(
        key, job, due_at, run_id, queue, lane, instant_of(start_by), policy_of(policy), origin, revision,
        payload, instant_of(first), instants,
    )  # fmt: skip
    return Row(
        fire, state, attempt, node, fence, due_at if run_at == due else instant(run_at),
        instant(ran_at) if ran_at else None, instant(over_at) if over_at else None, outcome_of(outcome),
        outcome_of(stop),
    )  # fmt: skip


def attempt_values(fire: int, one: Attempt) -> tuple[Any, ...]:
    started, ended = one.started_at.timestamp(), one.ended_at.timestamp()
    outcome = outcome_text(one.outcome)
    return (
        fire, one.number, one.node, one.fence, started, ended, outcome, one.status, one.took_s, one.result,
        one.tail,
    )  # fmt: skip


def attempt_of(row: tuple[Any, ...]) -> Attempt:
    """Of the columns `ATTEMPT` but the first."""
    number, node, fence, started, ended, outcome, status, took_s, result, tail = row
    said = outcome_of(outcome) or Outcome("lost")
    return Attempt(
        number, node, fence, instant(started), instant(ended), said, status, took_s, bytes(tail), result
    )


def _text(outcome: Outcome | None) -> str | None:
    return None if outcome is None else outcome_text(outcome)


def _verdict_text(verdict: Verdict | None) -> str | None:
    return None if verdict is None else json.dumps(verdict)


def _verdict_of(text: str | None) -> Verdict | None:
    if text is None:
        return None
    outcome, again_in_s, counts = json.loads(text)
    return Verdict(Outcome(*outcome), again_in_s, counts)
