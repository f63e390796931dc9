"""Changes pending fires in SQL: when the clock was set, and when the store may have lost data."""

from __future__ import annotations

from detent.stores.encoding import policy_of
from detent.stores.sql.dialect import Session


def move_delays(session: Session, step: float, version: int) -> None:
    """After a step of the wall clock: retries and delays move with it, because they are durations."""
    session.run_many(_MOVE_DELAYS, [(step,)])
    unpark_all(session, version)


def unpark_all(session: Session, version: int) -> None:
    session.run_many(_UNPARK_ALL, [(version,)])


def longest_pending_s(session: Session) -> float:
    """A fire that is pending may have been claimed by the claim that was lost, for the time of its policy."""
    policies = session.rows("SELECT DISTINCT policy FROM fires WHERE state = 'pending'")
    return max((policy_of(text).claim_s for (text,) in policies), default=0.0)


_MOVE_DELAYS = """
UPDATE fires SET run_at = run_at + ? WHERE state = 'pending' AND NOT (origin = 'schedule' AND run_at = due)
"""
_UNPARK_ALL = "UPDATE fires SET look_at = run_at, parked = FALSE, version = ? WHERE state = 'pending'"
