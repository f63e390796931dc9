"""The fire as a job's function gets it, read from the headers that tell of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from detent import clock
from detent.core.text import quote
from detent.receive.messages import BadFire

KEY_MAX = 500  # characters: of a key and of a run id, which are kept
UNIX_MAX = 253_402_300_799  # the last second that a datetime can name
FENCE_MAX = 2**53 - 1
ATTEMPT_MAX = 1_000_000

_NUMBER = re.compile(r"[0-9]{1,16}", re.ASCII)


class ReceivedFire(NamedTuple):
    """One occurrence of a job, and the attempt of it that is under way."""

    key: str  # the same in every attempt, on every node, after every recovery
    app: str
    job: str
    run_id: str  # a UUID; as steady as the key
    due_at: datetime  # the nominal instant; aware, UTC
    started_at: datetime  # when this attempt was sent
    attempt: int  # from 1
    fence: int  # grows with every claim of the app: whoever stores a result can refuse a smaller one
    body: bytes = b""  # as it was sent
    previous_success_at: datetime | None = None  # when the job last succeeded, where that is known
    secret_index: int = 0  # which of the receiver's secrets signed it


def read_fire(headers: Mapping[str, str], app: str, job: str) -> ReceivedFire:
    """The fire that these headers tell of; `BadFire` if they do not."""
    due_at = _instant(headers, "X-Cron-Fire-Time")
    previous = "X-Cron-Previous-Success-Time"
    return ReceivedFire(
        key=_text(headers, "Idempotency-Key"),
        app=app,
        job=job,
        run_id=_text(headers, "X-Cron-Run-Id"),
        due_at=due_at,
        started_at=_instant(headers, "X-Cron-Fire-Time-Actual"),
        attempt=_number(headers, "X-Cron-Attempt", 1, ATTEMPT_MAX),
        fence=_number(headers, "X-Cron-Fence", 0, FENCE_MAX),
        previous_success_at=_instant(headers, previous) if previous.lower() in headers else None,
    )


def _text(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name.lower(), "").strip()
    if not value:
        raise BadFire(f"the header {name} is missing or empty: a fire has one")
    if len(value) > KEY_MAX or not value.isprintable():
        raise BadFire(f"bad header {name}: allowed are {KEY_MAX} printable characters")
    return value


def _number(headers: Mapping[str, str], name: str, low: int, high: int) -> int:
    value = _text(headers, name)
    if not _NUMBER.fullmatch(value) or not low <= int(value) <= high:
        raise BadFire(f"bad header {name} {quote(value)}: it must be a whole number from {low} to {high}")
    return int(value)


def _instant(headers: Mapping[str, str], name: str) -> datetime:
    return clock.instant(_number(headers, name, 0, UNIX_MAX))
