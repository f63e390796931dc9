"""What a receiver remembers of fires, so that each is handled once: the seam, and its rules.

1. By its job and key, a fire is new, running or handled.  `begin` tells which, and makes a new one running:
   of several that ask, one is told "ours".
2. Running is a lease: it ends by itself `lease_s` after the last `renew`, so that a killed process locks
   nothing for ever.  No step of a wall clock ends it (`clock.py`).  Only its owner renews, finishes
   or releases it; another's word changes nothing.
3. Handled is kept for `keep_s`, with the answer that was given.
4. For each job the newest fence is kept, until the job was not called for `keep_s`.  With `is_fenced`, an
   older one is "stale"; a fire that was handled is told so all the same, as nothing is run for it.  All of
   this is one transaction with the rest.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from detent.errors import UsageError
from detent.receive.messages import Reply
from detent.stores.registry import POSTGRES, REDIS
from detent.text import quote

ANSWER_MAX = 16_384  # bytes of an answer's body that are kept; a longer one is told without
PRUNE_EVERY = 256  # calls of `begin`, from the first one on
PRUNE_MAX = 1000  # rows at a time: nobody waits long for it
ALLOWED = 'use "sqlite:///PATH", "redis://HOST" or "postgresql://USER@HOST/DATABASE"'


class Arrival(NamedTuple):
    """One arrival of a fire at one process."""

    app: str
    job: str
    key: str
    fence: int
    owner: str  # random: whose lease it is


class BeginResult(NamedTuple):
    """What is known of a fire that arrives."""

    kind: Literal["ours", "running", "handled", "stale"]
    left_s: float = 0.0  # running: until the lease ends, unless it is renewed
    answer: str = ""  # handled: as `encode_reply` made it
    newest: int = 0  # stale: the fence that was seen


class ReceiptOptions(NamedTuple):
    """How long things last."""

    lease_s: float
    keep_s: float
    is_fenced: bool


class Receipts(Protocol):
    def begin(self, arrival: Arrival, options: ReceiptOptions) -> BeginResult: ...
    def renew(self, arrivals: Sequence[Arrival], options: ReceiptOptions) -> None: ...
    def finish(self, arrival: Arrival, answer: str, options: ReceiptOptions) -> None: ...
    def release(self, arrival: Arrival) -> None: ...
    def close(self) -> None: ...


def open_receipts(url: str) -> Receipts:
    """Where this URL says.  Only the kind that is asked for is imported."""
    scheme, colon, rest = url.partition(":")
    if colon and scheme == "sqlite":
        from detent.receive.receipts.sqlite import SqliteReceipts

        path = rest.removeprefix("///")
        if path in ("", rest) or "\0" in path:
            raise UsageError(f"bad dedupe {quote(url)}: it names no file; {ALLOWED}")
        return SqliteReceipts(path)
    if colon and scheme in POSTGRES:
        from detent.receive.receipts.postgres import PostgresReceipts

        return PostgresReceipts(url)
    if colon and scheme in REDIS:
        from detent.receive.receipts.redis import RedisReceipts

        return RedisReceipts(url)
    # The rest of a URL may hold a password: it is not repeated.
    raise UsageError(f"bad dedupe {quote(scheme + colon)}: receipts are kept in a store; {ALLOWED}")


def encode_reply(reply: Reply) -> str:
    """A reply as text."""
    body = reply.body if len(reply.body) <= ANSWER_MAX else b""
    return json.dumps([reply.status, reply.content_type, body.decode("latin-1")], separators=(",", ":"))


def replay(answer: str) -> Reply:
    """The same status again, and the body where it was kept."""
    status, content_type, body = json.loads(answer)
    return Reply(status, body.encode("latin-1"), content_type, (("Idempotent-Replayed", "true"),))
