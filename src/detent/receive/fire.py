"""The fire that a job's function receives, read from the headers of its request."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from detent import clock
from detent.messages.signing import Identity
from detent.receive.messages import Refusal
from detent.rules.planning import key_of
from detent.text import quote

KEY_MAX = 500  # characters of a key and of a run id: both are stored
UNIX_MAX = 253_402_300_799  # the last second that a datetime can represent
FENCE_MAX = 2**53 - 1
ATTEMPT_MAX = 1_000_000

_NUMBER = re.compile(r"[0-9]{1,16}", re.ASCII)
_RUN_ID = re.compile(r"[0-9A-Za-z-]+", re.ASCII)  # no dot: dots separate the signed fields
_INSTANT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", re.ASCII)


class ReceivedFire(NamedTuple):
    """One occurrence of a job, with its current attempt."""

    key: str  # the same in every attempt, on every node, after every recovery
    app: str
    job: str
    run_id: str  # a UUID; as stable as the key
    due_at: datetime  # the nominal instant; aware, UTC
    started_at: datetime  # when this attempt was sent
    attempt: int  # from 1
    fence: int  # grows with every claim of the app: storage can refuse a smaller one; 0 if it is not signed
    body: bytes = b""  # as it was sent
    previous_success_at: datetime | None = None  # when the job last succeeded, if known
    secret_index: int = 0  # which of the receiver's secrets signed it


def identity_of(headers: Mapping[str, str]) -> Identity:
    """The header values that the second signature covers; "" for a missing one, which `read_fire` refuses."""
    names = ("idempotency-key", "x-cron-run-id", "x-cron-attempt", "x-cron-fence")
    return Identity(*(headers.get(name, "").strip() for name in names))


def read_fire(headers: Mapping[str, str], app: str, job: str, *, is_identified: bool) -> ReceivedFire:
    """Read the fire from the headers, or refuse them.  If its identity is not signed, the fence is 0."""
    previous = "X-Cron-Previous-Success-Time"
    fire = ReceivedFire(
        key=_text(headers, "Idempotency-Key"),
        app=app,
        job=job,
        run_id=_text(headers, "X-Cron-Run-Id"),
        due_at=_instant(headers, "X-Cron-Fire-Time"),
        started_at=_instant(headers, "X-Cron-Fire-Time-Actual"),
        attempt=_number(headers, "X-Cron-Attempt", 1, ATTEMPT_MAX),
        fence=_number(headers, "X-Cron-Fence", 0, FENCE_MAX) if is_identified else 0,
        previous_success_at=_instant(headers, previous) if previous.lower() in headers else None,
    )
    if not _RUN_ID.fullmatch(fire.run_id):
        raise _bad("X-Cron-Run-Id", fire.run_id, "allowed are letters, digits and -, as in a UUID")
    name, at, instant = fire.key.rpartition("@")
    is_scheduled = at and name == f"{app}.{job}" and _INSTANT.fullmatch(instant)
    if is_scheduled and fire.key != (expected := key_of(name, fire.due_at)):
        raise _bad("X-Cron-Fire-Time", expected, f"the key names another fire, {quote(fire.key)}")
    return fire


def _bad(header: str, value: str, why: str) -> Refusal:
    return Refusal("BadFire", f"bad header {header} {quote(value)}: {why}")


def _text(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name.lower(), "").strip()
    if not value:
        raise Refusal("BadFire", f"the header {name} is missing or empty: every fire has one")
    if len(value) > KEY_MAX or not value.isprintable():
        raise Refusal("BadFire", f"bad header {name}: allowed are {KEY_MAX} printable characters")
    return value


def _number(headers: Mapping[str, str], name: str, low: int, high: int) -> int:
    value = _text(headers, name)
    if not _NUMBER.fullmatch(value) or not low <= int(value) <= high:
        raise _bad(name, value, f"it must be a whole number from {low} to {high}")
    return int(value)


def _instant(headers: Mapping[str, str], name: str) -> datetime:
    return clock.instant(_number(headers, name, 0, UNIX_MAX))
