"""Receipts in PostgreSQL: a schema of our own, `detent_receive`, whose functions are `receipts_postgres.sql`.

Every call is one round trip with a bounded wait, by a connection of the calling thread.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from itertools import count
from typing import Any

from detent.receive.receipts import PRUNE_EVERY, PRUNE_MAX, Arrival, Standing, Terms
from detent.stores.postgres_link import SOON_S, Link, Links

SCHEMA = "detent_receive"
_IS_MADE = (
    f"SELECT count(*) FROM pg_proc JOIN pg_namespace n ON n.oid = pronamespace WHERE nspname = '{SCHEMA}'"
)


class PostgresReceipts:
    def __init__(self, url: str) -> None:
        self._links, self._begun = Links(url, SCHEMA, _prepare), count()

    def begin(self, arrival: Arrival, terms: Terms) -> Standing:
        prune = PRUNE_MAX if next(self._begun) % PRUNE_EVERY == 0 else 0
        return Standing(**self._call("begin", {**_told(arrival), **terms._asdict(), "prune": prune}))

    def renew(self, arrivals: Sequence[Arrival], terms: Terms) -> None:
        for one in arrivals:
            self._call("renew", {**_told(one), **terms._asdict()})

    def finish(self, arrival: Arrival, answer: str, terms: Terms) -> None:
        self._call("finish", {**_told(arrival), **terms._asdict(), "answer": answer})

    def release(self, arrival: Arrival) -> None:
        self._call("release", _told(arrival))

    def close(self) -> None:
        self._links.close()

    def _call(self, verb: str, document: dict[str, Any]) -> Any:
        return json.loads(self._links.call(verb, json.dumps(document), SOON_S))


def _told(arrival: Arrival) -> dict[str, Any]:
    return {**arrival._asdict(), "job": f"{arrival.app}.{arrival.job}"}


def _prepare(link: Link) -> None:
    """Make the schema where it is missing; of several that do, one does, and the others wait for it."""
    if link.run(_IS_MADE, SOON_S) != "0":
        return
    script = (files("detent.receive") / "receipts_postgres.sql").read_text(encoding="utf-8")
    lock = f"SELECT pg_advisory_xact_lock(hashtextextended('{SCHEMA}', 0))"
    link.run(f"BEGIN; {lock}; {script}; COMMIT", SOON_S)
