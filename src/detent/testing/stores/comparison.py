"""Converts answers of a store to values that two stores can be compared by: fences relative to the first one,
instants relative to the start."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from detent.model import Claim, Grants, Note, Row, Watermarks
from detent.rules.breakers import Circuit, circuit_of
from detent.stores.base import BREAKER, GONE
from detent.testing.stores.fixtures import START, later


def by_fence(grants: Grants) -> list[Claim]:
    return sorted(grants.claims, key=lambda claim: claim.fence)


def watermarks_of(watermarks: Watermarks) -> tuple[Any, ...]:
    by_job = {
        name: (seconds(watermark.at), watermark.revision) for name, watermark in watermarks.by_job.items()
    }
    return seconds(watermarks.now), watermarks.generation, by_job


def claim_of(claim: Claim, first_fence: int) -> tuple[Any, ...]:
    return claim._replace(
        fence=claim.fence - first_fence,
        expires_at=later(seconds(claim.expires_at) or 0.0),
        previous_success_at=None,
    ), seconds(claim.previous_success_at)


def row_of(row: Row, first_fence: int) -> tuple[Any, ...]:
    attempts = [
        (one.number, one.node, one.fence - first_fence, one.outcome, one.status, one.took_s)
        for one in row.attempts
    ]
    times = [seconds(at) for at in (row.run_at, row.claimed_at, row.over_at)]
    fence = row.fence - first_fence if row.fence else 0
    return row.fire, row.state, row.attempt, row.node, fence, times, row.outcome, row.stop, attempts


def notes_of(notes: Sequence[Note]) -> list[Any]:
    """Stores may write the state of a breaker and the watermark of a removed job differently."""
    return [_note_of(note) for note in notes]


def _note_of(note: Note) -> Any:
    if note.name.startswith(BREAKER):
        return circuit_parts(circuit_of(note.text))
    return note.name if note.name.startswith(GONE) else note


def circuit_parts(circuit: Circuit) -> tuple[Any, ...]:
    return circuit.errors, round(circuit.opened, 2), circuit.probe


def seconds(at: datetime | None) -> float | None:
    return None if at is None else round((at - START).total_seconds(), 3)
