"""Remembers which fires a receiver has handled, so that each is handled once: the interface and its rules.

1. A fire, identified by its job and key, is new, running or handled.  `begin` returns which, and marks a new
   fire as running: of several concurrent callers, exactly one gets "ours".
2. Running is a lease.  It ends `lease_s` after the last `renew`, so a killed process blocks nothing for ever.
   No step of a wall clock ends it (`clock.py`).  Only its owner can renew, finish or release it.
3. A handled fire is kept for `keep_s`, with its answer.
4. The newest fence of each job is kept until the job was not called for `keep_s`.  With `is_fenced`, an older
   fence is "stale", unless the fire is handled: its answer runs nothing.
"""

import json
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from detent.errors import UsageError
from detent.receive.messages import Reply
from detent.stores.registry import POSTGRES, REDIS
from detent.text import quote

ANSWER_MAX = 16_384  # bytes: the body of a longer answer is not kept
PRUNE_EVERY = 256  # calls of `begin`, from the first one on
PRUNE_MAX = 1000  # rows of one pruning, which delays a call
ALLOWED = 'use "sqlite:///PATH", "redis://HOST" or "postgresql://USER@HOST/DATABASE"'


class Arrival(NamedTuple):
    """One request for a fire at one process."""

    app: str
    job: str
    key: str
    fence: int
    owner: str  # random; identifies the lease


class BeginResult(NamedTuple):
    kind: Literal["ours", "running", "handled", "stale"]
    left_s: float = 0.0  # running: until the lease ends, unless it is renewed
    answer: str = ""  # handled: as `encode_reply` made it
    newest: int = 0  # stale: the newest fence


class ReceiptOptions(NamedTuple):
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
    """Open the receipts at this URL.  Only the driver of its scheme is imported."""
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
    # The rest of the URL may contain a password, so the message leaves it out.
    raise UsageError(f"bad dedupe {quote(scheme + colon)}: receipts are kept in a store; {ALLOWED}")


def encode_reply(reply: Reply) -> str:
    body = reply.body if len(reply.body) <= ANSWER_MAX else b""
    return json.dumps([reply.status, reply.content_type, body.decode("latin-1")], separators=(",", ":"))


def replay(answer: str) -> Reply:
    """The recorded reply: the same status, and the body if it was kept."""
    status, content_type, body = json.loads(answer)
    return Reply(status, body.encode("latin-1"), content_type, (("Idempotent-Replayed", "true"),))
