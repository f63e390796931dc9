"""A fire with its state, as the engine works on it and a driver keeps it."""

from __future__ import annotations

from typing import Literal

from detent.clock import instant
from detent.model import Attempt, Claim, Fire, Outcome, Report, Row, State, Verdict
from detent.rules.decide import is_plain
from detent.rules.lanes import OpenFire

# How an ask finds it: hooks and plain messages have indexes of their own.
Tier = Literal["plain", "judged", "hook"]


class Record:
    """Instants are Unix seconds: `expires` by the store's steady clock, the others by its wall clock."""

    def __init__(self, fire: Fire, run_at: float) -> None:
        self.fire = fire
        self.id = 0  # grows with each new record; the driver sets it
        self.version = 0  # of the record as it was read; 0: it is new
        self.state: State = "pending"
        self.tier: Tier = "hook" if fire.origin == "hook" else "plain" if is_plain(fire) else "judged"
        self.run_at = run_at  # when it is due, or due again
        self.look_at = run_at  # when an ask finds it; later than `run_at` if it is parked
        self.is_parked = False  # it waits for its lane
        self.waits = False  # it counts as waiting for its lane
        self.attempt = 0  # attempts granted
        self.recorded = 0  # attempts that ended
        self.fence, self.node, self.ask = 0, "", 0  # of its newest claim, as the next two
        self.ttl_s, self.expires = fire.policy.claim_s, 0.0
        self.ran_node, self.ran_fence, self.ran_at = "", 0, 0.0  # of its newest attempt
        self.disposition: Outcome | None = None  # it must not run, only be settled with this outcome
        self.stop: Outcome | None = None  # its node must stop it with this outcome
        self.outcome: Outcome | None = None  # of its newest attempt, or its final one
        self.verdict: Verdict | None = None  # the result of its last `finish`
        self.over_at = 0.0
        self.keep_until = 0.0  # a finished fire is not pruned for its number before

    def copy(self) -> Record:
        other = object.__new__(Record)
        other.__dict__.update(self.__dict__)
        return other

    def take_fences(self, first: int) -> None:
        """Replace a fence below 0, which stands for a new one: -1 is the first."""
        self.fence = first - self.fence - 1 if self.fence < 0 else self.fence
        self.ran_fence = first - self.ran_fence - 1 if self.ran_fence < 0 else self.ran_fence

    def is_live(self, steady: float) -> bool:
        return self.state == "claimed" and self.expires > steady


def open_fire(record: Record, now: float, steady: float) -> OpenFire:
    return OpenFire(
        fire=record.fire,
        state=record.state,
        attempt=record.attempt,
        due=record.state == "pending" and record.run_at <= now,
        live=record.is_live(steady),
        waits=record.waits,
        node=record.node,
        disposition=record.disposition,
        stop=record.stop,
        outcome=record.outcome,
        number=record.id,
    )


def claim_of(record: Record, expires_at: float, success: float | None) -> Claim:
    """The record's claim.  `success` is when the job last succeeded."""
    return Claim(
        fire=record.fire,
        node=record.node,
        fence=record.fence,
        attempt=record.attempt,
        ttl_s=record.ttl_s,
        expires_at=instant(expires_at),
        disposition=record.disposition,
        previous_success_at=None if success is None else instant(success),
    )


def attempt_of(record: Record, report: Report, now: float) -> Attempt:
    """The attempt that this report ends: the claim's own, or the lost one before it."""
    return Attempt(
        number=record.attempt,
        node=record.ran_node,
        fence=record.ran_fence,
        started_at=instant(record.ran_at),
        ended_at=instant(now),
        outcome=report.verdict.outcome,
        status=report.status,
        took_s=report.took_s,
        tail=report.tail,
        result=report.result,
    )


def row_of(record: Record, attempts: tuple[Attempt, ...]) -> Row:
    return Row(
        fire=record.fire,
        state=record.state,
        attempt=record.attempt,
        node=record.node,
        fence=record.fence,
        run_at=instant(record.run_at),
        claimed_at=instant(record.ran_at) if record.ran_at else None,
        over_at=instant(record.over_at) if record.over_at else None,
        outcome=record.outcome,
        stop=record.stop,
        attempts=attempts,
    )
