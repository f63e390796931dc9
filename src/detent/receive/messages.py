"""Requests and replies as plain values, independent of any web framework.

A refusal is a JSON reply with the name of the error and a message; it never contains a secret.  The status
tells the caller what to do: `2xx` done, `4xx` give up, `5xx` try again.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from detent.errors import DetentError, SignatureError, UsageError

JSON, TEXT, BYTES = "application/json", "text/plain; charset=utf-8", "application/octet-stream"

RefusalName = Literal[
    "BadMethod", "BadFire", "BadPath", "UnknownJob", "StaleFence", "BodyTooLarge", "NoSecret", "NoJobs",
    "NotRecorded", "AlreadyRunning",
]  # fmt: skip
STATUSES: dict[RefusalName, int] = {
    "BadMethod": 400,
    "BadFire": 400,
    "BadPath": 404,
    "UnknownJob": 404,
    "StaleFence": 409,
    "BodyTooLarge": 413,
    "NoSecret": 500,  # a fault of the receiver, not of the caller
    "NoJobs": 503,
    "NotRecorded": 503,
    # Not 409: the outcome is still unknown.  A caller that gives up on 4xx would record the fire as rejected,
    # although it may succeed.  A caller that tries again gets the recorded answer, or runs the fire.
    "AlreadyRunning": 503,
}


class Incoming(NamedTuple):
    """A request, as an adapter passes it on."""

    method: str
    target: str  # path?query, exactly as the server received it
    path: str  # decoded, without the query and without the mount point
    headers: Mapping[str, str]  # names in lower case
    body: bytes | None = b""  # None: larger than the receiver accepts


class Reply(NamedTuple):
    """An answer.  A job's function may return one to choose its status."""

    status: int = 200
    body: bytes = b""
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()

    def all_headers(self) -> list[tuple[str, str]]:
        length = [] if self.status == 204 else [("Content-Length", str(len(self.body)))]
        kind = [("Content-Type", self.content_type)] if self.body else []
        return [*kind, *length, *self.headers]

    @property
    def is_final(self) -> bool:
        """True if the caller does not try again after this status."""
        return 200 <= self.status < 300 or 400 <= self.status < 500


class Reject(Exception):
    """Raised by a job's function: this fire cannot succeed, and must not be tried again."""

    def __init__(self, why: str, status: int = 422) -> None:
        if not 400 <= status < 500:
            raise UsageError(f"bad status {status}: a rejection has one of 400–499")
        super().__init__(why)
        self.status = status


class Refusal(DetentError):
    """A request that is answered before any job's function runs."""

    def __init__(self, name: RefusalName, message: str, wait_s: int = 0) -> None:
        super().__init__(message)
        self.name, self.wait_s = name, wait_s  # wait_s: when to try again; 0: unknown


def refuse(error: Refusal | SignatureError) -> Reply:
    if isinstance(error, SignatureError):
        return _error(401, type(error).__name__, str(error))
    headers = (("Retry-After", str(error.wait_s)),) if error.wait_s else ()
    return _error(STATUSES[error.name], error.name, str(error))._replace(headers=headers)


def reject(error: Reject) -> Reply:
    return _error(error.status, "Rejected", str(error))


def fail(error: BaseException) -> Reply:
    """Name only the type of the error: its text may contain anything, and belongs into the app's log."""
    return _error(500, "Failed", f"the job raised {type(error).__name__}")


def _error(status: int, name: str, message: str) -> Reply:
    return _json({"error": name, "message": message})._replace(status=status)


def _json(value: Any) -> Reply:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return Reply(200, f"{text}\n".encode("utf-8", "backslashreplace"), JSON)


def reply_of(value: Any) -> Reply | None:
    """Convert what a job's function returned.  None: the value cannot be sent, although the work is done."""
    match value:
        case Reply():
            if not 200 <= value.status <= 599:
                return None
            return value._replace(body=b"") if value.status in (204, 304) else value
        case None:
            return Reply(204)
        case str():
            return Reply(200, value.encode("utf-8", "backslashreplace"))
        case bytes():
            return Reply(200, value, BYTES)
    try:
        return _json(value)
    except (TypeError, ValueError, RecursionError):
        return None


def gather(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by their names in lower case.  A repeated header is joined by commas, as HTTP says."""
    found: dict[str, str] = {}
    for raw_name, raw in pairs:
        name, value = raw_name.decode("latin-1").lower(), decode(raw)
        found[name] = f"{found[name]},{value}" if name in found else value
    return found


def decode(raw: bytes) -> str:
    """Decode a header's value: UTF-8, as detent sends it, or else Latin-1."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def requote(path: str | bytes) -> str:
    """Percent-encode a decoded path."""
    return quote(path, safe="/:@!$&'()*+,;=~-._")
