"""The PostgreSQL store: a schema in a database that nodes on many hosts share.

Every call is one call of a function in the database (`sql/*.sql`), which decides by the server's clock and
under its locks.  This module only builds and reads the documents.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from detent import clock
from detent.clock import instant
from detent.model import (
    Ask,
    Cause,
    Claim,
    Fire,
    Found,
    Grants,
    Note,
    Outcome,
    Plan,
    Query,
    Rate,
    Report,
    Size,
    Usage,
    Verdict,
    Watermarks,
)
from detent.stores.encoding import outcome_of
from detent.stores.postgres.link import LATER_S, SCHEMA, SOON_S, Link, Links
from detent.stores.postgres.listen import Listener
from detent.stores.postgres.schema import prepare, schema_name
from detent.stores.postgres.values import (
    Json,
    ask_json,
    claim_json,
    fire_json,
    first_of,
    fresh_of,
    grants_of,
    note_of,
    outcome_text,
    plain,
    plan_json,
    put_json,
    query_json,
    report_json,
    row_of,
    verdict_of,
    watermarks_of,
)
from detent.stores.record import page

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection

SOON_MAX = 1000  # fires that one `put` records within `SOON_S`
PRUNE_MAX = 5000  # rows of one call; other calls run between two


class PostgresStore:
    def __init__(
        self, url: str, schema: str = SCHEMA, boottime: Callable[[], float] = clock.boottime
    ) -> None:
        self._links = Links(url, schema_name(schema or SCHEMA), self._prepare)
        self._boottime = boottime
        self._is_ready = False  # the schema was checked
        # The newest reply: epoch and clock of the store, and our clock before and after the call.
        self._memory: tuple[str, float, float, float] | None = None
        self._remembering = threading.Lock()
        self._listener = Listener(self._links)

    # Planning.

    def set_jobs(self, app: str, seen: int, revisions: Mapping[str, str]) -> Watermarks:
        document = {"app": app, "seen": seen, "revisions": dict(revisions)}
        return watermarks_of(self._call("set_jobs", document, LATER_S))

    def look(self, app: str) -> Watermarks:
        return watermarks_of(self._call("look", {"app": app}))

    def advance(self, app: str, plans: Sequence[Plan]) -> Watermarks:
        document = {
            "app": app,
            "plans": [plan_json(plan, place) for place, plan in enumerate(plans)],
            "fires": [
                fire_json(fire, 0) | {"plan": n} for n, plan in enumerate(plans) for fire in plan.fires
            ],
        }
        return watermarks_of(self._call("advance", document, LATER_S))

    def put(self, fires: Sequence[Fire], delay_s: float = 0) -> list[bool]:
        within_s = SOON_S if len(fires) <= SOON_MAX else LATER_S
        return fresh_of(self._call("put", put_json(fires, delay_s), within_s), fires)

    def put_in(self, connection: Connection[Any], fires: Sequence[Fire], delay_s: float = 0) -> list[bool]:
        """`put` in the transaction of the caller's connection: it takes effect when that commits."""
        self._see_to_schema()
        with connection.cursor(row_factory=first_of) as cursor:
            cursor.execute(*self._putting(fires, delay_s))
            return fresh_of(cursor.fetchone(), fires)

    async def aput_in(
        self, connection: AsyncConnection[Any], fires: Sequence[Fire], delay_s: float = 0
    ) -> list[bool]:
        """`put_in` for an asynchronous connection."""
        import asyncio

        await asyncio.to_thread(self._see_to_schema)
        async with connection.cursor(row_factory=first_of) as cursor:
            await cursor.execute(*self._putting(fires, delay_s))
            return fresh_of(await cursor.fetchone(), fires)

    # Running.

    def claim(self, ask: Ask) -> Grants:
        return grants_of(self._call("claim", ask_json(ask)), ask.node)

    def renew(self, claims: Sequence[Claim]) -> list[Outcome | None]:
        document = {"claims": [claim_json(claim, place) for place, claim in enumerate(claims)]}
        return [outcome_of(stop) for stop in self._call("renew", document)["stops"]]

    def finish(self, reports: Sequence[Report]) -> list[Verdict | None]:
        document = {"reports": [report_json(report) for report in reports]}
        return [verdict_of(one) for one in self._call("finish", document)["verdicts"]]

    def finish_and_claim(self, reports: Sequence[Report], ask: Ask) -> tuple[list[Verdict | None], Grants]:
        """Two transactions: a single one would hold the locks of freed lanes while it waits for others."""
        return self.finish(reports), self.claim(ask)

    def cancel(self, key: str, reason: str = "", cause: Cause = "stopped") -> bool:
        document = {"key": key, "stop": outcome_text(Outcome("cancelled", reason, cause))}
        return bool(self._call("cancel", document)["done"])

    # Queues.

    def charge(self, app: str, name: str, rate: Rate, count: int = 1) -> Usage:
        document = {"app": app, "name": plain(name), "rate": rate._asdict(), "count": count}
        said = self._call("charge", document)
        return Usage(said["used"], float(said["free_in"]))

    def reset(self, app: str, name: str) -> None:
        self._call("reset", {"app": app, "name": plain(name)})

    def forget(self, keys: Sequence[str]) -> int:
        return int(self._call("forget", {"keys": list(keys)}, LATER_S)["gone"])

    def count(self, app: str, queues: Sequence[str] = ()) -> dict[str, Size]:
        said = self._call("count", {"app": app, "queues": list(queues)}, LATER_S)
        return {queue: Size(**size) for queue, size in said["sizes"].items()}

    # Records.

    def find(self, query: Query) -> Found:
        said = self._call("find", query_json(query), LATER_S)
        rows, stopped_at = [row_of(one) for one in said["rows"]], said["stopped_at"]
        if query.upcoming:
            return Found(rows)
        return page(rows, query.limit, (instant(stopped_at[0]), stopped_at[1]) if stopped_at else None)

    def apps(self) -> list[str]:
        return sorted(self._call("apps", {})["apps"])

    def prune(self, app: str, older_than_s: float, keep: int) -> int:
        document = {"app": app, "older_than": older_than_s, "keep": keep, "most": PRUNE_MAX}
        gone = batch = self._call("prune", document, LATER_S)["gone"]
        while batch == PRUNE_MAX:
            batch = self._call("prune", document, LATER_S)["gone"]
            gone += batch
        return int(gone)

    def note(self, app: str, name: str, text: str, ttl_s: float = 0) -> None:
        self._call("note", {"app": app, "name": name, "text": plain(text), "ttl": ttl_s})

    def notes(self, app: str, prefix: str = "") -> list[Note]:
        return [note_of(one) for one in self._call("notes", {"app": app, "prefix": prefix})["notes"]]

    def wait(self, app: str, seconds: float) -> bool:
        return self._listener.wait(app, seconds)

    def close(self) -> None:
        self._listener.close()
        self._links.close()

    # Calls.

    def _prepare(self, link: Link) -> None:
        prepare(link, self._links.schema)
        self._is_ready = True

    def _see_to_schema(self) -> None:
        """Prepare the schema on our own connection: an error would abort the caller's transaction."""
        if not self._is_ready:
            self._links.open().close()

    def _putting(self, fires: Sequence[Fire], delay_s: float) -> tuple[bytes, tuple[str]]:
        text = json.dumps(put_json(fires, delay_s), separators=(",", ":"))
        return f'SELECT "{self._links.schema}".put_in(%s::jsonb)::text'.encode(), (text,)

    def _call(self, verb: str, document: Json, within_s: float = SOON_S) -> Any:
        sent = self._boottime()
        text = json.dumps(document | {"memory": self._remembered(sent)}, separators=(",", ":"))
        said = json.loads(self._links.call(verb, text, within_s))
        if "epoch" in said:
            self._remember(said["epoch"], said["mono"], sent)
        return said

    def _remembered(self, now: float) -> Json:
        """The store's clock at the newest reply, and how long ago that was by a clock that is never set."""
        if self._memory is None:
            return {}
        epoch, mono, asked, answered = self._memory
        return {"epoch": epoch, "mono": mono, "least": now - answered, "most": now - asked}

    def _remember(self, epoch: str, mono: float, asked: float) -> None:
        """Keep the newest reply; another thread may have got a newer one."""
        with self._remembering:
            if self._memory is None or self._memory[0] != epoch or self._memory[1] < mono:
                self._memory = epoch, mono, asked, self._boottime()
