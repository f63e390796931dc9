"""What comes in and what goes out, as plain values: no framework is known here.

- A refusal is an error with a status and a name; its reply is JSON with both, and never has a secret.
- `2xx` tells the caller that it is done, `4xx` to give up, `5xx` to try again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from detent.errors import DetentError, SignatureError, UsageError

JSON, TEXT, BYTES = "application/json", "text/plain; charset=utf-8", "application/octet-stream"


class Incoming(NamedTuple):
    """A request, as an adapter hands it over."""

    method: str
    target: str  # path?query, exactly as the server got it
    path: str  # decoded, without the query and without what the receiver is mounted under
    headers: Mapping[str, str]  # names in lower case
    body: bytes | None = b""  # as it was sent; None: there is more than the receiver takes


class Reply(NamedTuple):
    """An answer.  A function of a job may return one, to choose its status."""

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
        """Will the caller leave it at that?"""
        return 200 <= self.status < 300 or 400 <= self.status < 500


class Reject(Exception):
    """Raised by a job's function: this fire cannot succeed, and is not to be tried again."""

    def __init__(self, why: str, status: int = 422) -> None:
        if not 400 <= status < 500:
            raise UsageError(f"bad status {status}: a rejection has one of 400–499")
        super().__init__(why)
        self.status = status


class Refusal(DetentError):
    """A request that no job's function gets to see."""

    status = 400

    def __init__(self, message: str, wait_s: int = 0) -> None:
        super().__init__(message)
        self.wait_s = wait_s  # 0: nothing is known of when it would be welcome


class BadMethod(Refusal):
    """Not the method of this job."""


class BadFire(Refusal):
    """The headers that tell of the fire are missing, or make no sense."""


class BadPath(Refusal):
    """Nothing is served there."""

    status = 404


class UnknownJob(Refusal):
    """No job has this name."""

    status = 404


class StaleFence(Refusal):
    """A newer claim of this job was seen: whoever sent this has lost its own."""

    status = 409


class BodyTooLarge(Refusal):
    """More than the receiver takes."""

    status = 413


class NoSecret(Refusal):
    """None of the receiver's secrets can be found: not the caller's fault."""

    status = 500


class NoJobs(Refusal):
    """There is no manifest yet."""

    status = 503


class NotRecorded(Refusal):
    """The receipts could not be reached, so nothing was run."""

    status = 503


class AlreadyRunning(Refusal):
    """The same fire is being handled now.

    503, not 409: how it ends is not known yet.  A caller that gives up on 4xx would record as rejected
    what may succeed in a moment, and nobody would run it again if it does not.  One that tries again gets
    the recorded answer, or runs it.
    """

    status = 503


def refuse(error: Refusal | SignatureError) -> Reply:
    """The answer to what is refused, with the name of the error."""
    status = getattr(error, "status", 401)
    wait_s = getattr(error, "wait_s", 0)
    headers = (("Retry-After", str(wait_s)),) if wait_s else ()
    return _told(status, type(error).__name__, str(error))._replace(headers=headers)


def reject(error: Reject) -> Reply:
    return _told(error.status, "Rejected", str(error))


def fail(error: BaseException) -> Reply:
    """Only the kind of the error: its text may hold anything, and is for the app's own log."""
    return _told(500, "Failed", f"the job raised {type(error).__name__}")


def _told(status: int, name: str, message: str) -> Reply:
    return _json({"error": name, "message": message})._replace(status=status)


def _json(value: Any) -> Reply:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return Reply(200, f"{text}\n".encode("utf-8", "backslashreplace"), JSON)


def reply_of(value: Any) -> Reply | None:
    """What a function's value says; None: it cannot be said, but the work is done."""
    match value:
        case Reply():
            return _sendable(value)
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


def _sendable(reply: Reply) -> Reply | None:
    if not 200 <= reply.status <= 599:
        return None
    return reply._replace(body=b"") if reply.status in (204, 304) else reply


def gather(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by their names in lower case; one that comes twice is joined by commas, as HTTP says."""
    found: dict[str, str] = {}
    for raw_name, raw in pairs:
        name, value = raw_name.decode("latin-1").lower(), decode(raw)
        found[name] = f"{found[name]},{value}" if name in found else value
    return found


def decode(raw: bytes) -> str:
    """A header's value: UTF-8, as detent sends it, or else the bytes as they are."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def requote(path: str | bytes) -> str:
    """A decoded path, encoded as one would send it."""
    return quote(path, safe="/:@!$&'()*+,;=~-._")
