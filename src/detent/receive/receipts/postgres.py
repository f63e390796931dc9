"""Receipts in PostgreSQL: a schema of their own, `detent_receive`, whose functions are in `postgres.sql`.

Each call is one round trip with a bounded wait.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from itertools import count
from typing import Any

from detent.receive.receipts.base import PRUNE_EVERY, PRUNE_MAX, Arrival, BeginResult, ReceiptOptions
from detent.receive.receipts.clock import ClockMemory, Reading
from detent.stores.postgres.link import SOON_S, Link, Links

SCHEMA = "detent_receive"
_EXISTS = (  # not to_regclass(): a session caches a negative result
    "SELECT count(*) FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace"
    f" WHERE nspname = '{SCHEMA}' AND relname = 'clock'"
)


class PostgresReceipts:
    def __init__(self, url: str) -> None:
        self._links, self._begun, self._clock = Links(url, SCHEMA, _prepare), count(), ClockMemory()

    def begin(self, arrival: Arrival, options: ReceiptOptions) -> BeginResult:
        prune = PRUNE_MAX if next(self._begun) % PRUNE_EVERY == 0 else 0
        answer = self._call("begin", arrival, {**options._asdict(), "prune": prune})
        return BeginResult(**answer["found"])

    def renew(self, arrivals: Sequence[Arrival], options: ReceiptOptions) -> None:
        for one in arrivals:
            self._call("renew", one, options._asdict())

    def finish(self, arrival: Arrival, answer: str, options: ReceiptOptions) -> None:
        self._call("finish", arrival, {**options._asdict(), "answer": answer})

    def release(self, arrival: Arrival) -> None:
        self._call("release", arrival, {})

    def close(self) -> None:
        self._links.close()

    def _call(self, verb: str, arrival: Arrival, fields: dict[str, Any]) -> Any:
        memory, asked_at = self._clock.recall()
        document = {**arrival._asdict(), "job": f"{arrival.app}.{arrival.job}", **fields}
        document["memory"] = memory._asdict()
        answer = json.loads(self._links.call(verb, json.dumps(document), SOON_S))
        self._clock.learn(Reading(*answer["reading"]), asked_at)
        return answer


def _prepare(link: Link) -> None:
    """Create the schema if it does not exist.  One process does it; the others wait."""
    if link.run(_EXISTS, SOON_S) != "0":
        return
    script = (files("detent.receive.receipts") / "postgres.sql").read_text(encoding="utf-8")
    link.run(f"BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('{SCHEMA}', 0))", SOON_S)
    try:
        if link.run(_EXISTS, SOON_S) == "0":
            link.run(script, SOON_S)
    finally:
        if link.is_open:
            link.run("COMMIT", SOON_S)  # after an error it rolls back
