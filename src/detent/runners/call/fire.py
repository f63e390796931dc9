"""The fire as a called function gets it.

A function gets it by a parameter that is annotated `detent.Fire`, or one with the name `fire` that the job's
arguments leave open.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple


class Fire(NamedTuple):
    """One occurrence of a job, and its running attempt."""

    key: str  # the same on every node, in every attempt, after every recovery
    app: str
    job: str
    run_id: str  # a UUID, as stable as the key
    due_at: datetime  # aware, UTC
    attempt: int  # from 1
    fence: int  # grows with every claim of the app: downstream can reject a smaller one
    node: str
    previous_success_at: datetime | None = None  # when the job last succeeded; None: unknown


def fire_of(variables: Mapping[str, str], previous_success: float | None) -> Fire:
    """Return the fire that these `DETENT_*` variables describe."""
    return Fire(
        key=variables["DETENT_FIRE"],
        app=variables["DETENT_APP"],
        job=variables["DETENT_JOB"],
        run_id=variables["DETENT_RUN_ID"],
        due_at=datetime.fromisoformat(variables["DETENT_DUE"]),
        attempt=int(variables["DETENT_ATTEMPT"]),
        fence=int(variables["DETENT_FENCE"]),
        node=variables["DETENT_NODE"],
        previous_success_at=None
        if previous_success is None
        else datetime.fromtimestamp(previous_success, UTC),
    )
