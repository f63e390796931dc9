"""Receipts in PostgreSQL: a schema of their own, `detent_receive`, whose functions are in `postgres.sql`.

Each call is one transaction, and every wait has a limit.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from importlib.resources import files
from itertools import count
from typing import Any

from detent.errors import StoreUnavailable
from detent.receive.receipts.base import PRUNE_EVERY, PRUNE_MAX, Arrival, BeginResult, ReceiptOptions
from detent.receive.receipts.clock import ClockMemory, Reading
from detent.stores.engine.unit import Conflict
from detent.stores.postgres.link import Link, Links

TRIES = 4  # of a call that failed with a deadlock
LIMIT_MS = 4000  # of a statement; less than the client waits
SCHEMA = "detent_receive"
_EXISTS = (  # not to_regclass(): a session caches a negative result
    "SELECT count(*) FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace"
    f" WHERE nspname = '{SCHEMA}' AND relname = 'clock'"
)

_SETTINGS = f"""
SELECT set_config('synchronous_commit', 'on', true), set_config('jit', 'off', true),
       set_config('statement_timeout', '{LIMIT_MS}', true), set_config('lock_timeout', '{LIMIT_MS}', true)
""".encode()


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
        document = {**arrival._asdict(), "job": f"{arrival.app}.{arrival.job}", "verb": verb, **fields}
        document["memory"] = memory._asdict()
        answer = self._answer("begin" if verb == "begin" else "settle", json.dumps(document))
        self._clock.learn(Reading(*answer["reading"]), asked_at)
        return answer

    def _answer(self, function: str, document: str) -> Any:
        """Call a function of the schema.  A deadlock has changed nothing: the call is repeated."""
        for _ in range(TRIES):
            with suppress(Conflict), self._links.link() as link, link.db.pipeline(), link.db.transaction():
                link.db.execute(_SETTINGS)
                call = f"SELECT {SCHEMA}.{function}(%s::jsonb)".encode()
                link.is_committing = True  # with the end of this block
                return link.db.execute(call, (document,)).fetchall()[0][0]
        raise StoreUnavailable(f"the receipts in {self._links.name} are too busy: try again")


def _prepare(link: Link) -> None:
    """Create the schema if it does not exist.  One process does it; the others wait."""
    if link.value(_EXISTS):
        return
    with link.db.transaction():
        link.value(f"SELECT pg_advisory_xact_lock(hashtextextended('{SCHEMA}', 0))")
        if not link.value(_EXISTS):
            link.db.execute((files("detent.receive.receipts") / "postgres.sql").read_bytes())
