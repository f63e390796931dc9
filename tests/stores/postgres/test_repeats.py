"""An ask and its repetition beside each other, after a while in which nothing got through to PostgreSQL.

What was held up arrives at last, beside what was sent since.  It tells of too little time, and may be taken
for a sign that the server's clock was set.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Barrier, Event
from typing import Any

from psycopg.errors import SerializationFailure
from tests.equipment.postgres_server import (
    PATIENCE_S,
    ClockedStore,
    Server,
    Session,
    held,
    new_name,
    wait_until,
)

from detent.model import Ask, Report
from detent.stores.postgres.store import PostgresStore
from detent.stores.postgres.values import ask_json
from detent.testing.stores.fixtures import DONE, TTL_S, Asker, FakeClock, finish, fire

HOLE_S = 20.0  # nothing gets through for so long
ROUNDS = 15
LIVES_S = 3.0


def test_the_clock_is_not_corrected_beside_a_call_that_uses_it(
    server: Server, clocked: ClockedStore, clock: FakeClock
) -> None:
    clocked.put([fire("a.b@1"), fire("a.c@1", queue="db")])
    watermarks = clocked.look("a")
    known = {"epoch": watermarks.epoch, "mono": clock.wall()}
    clock.pass_time(HOLE_S)
    late = {"memory": known | {"least": 0.0, "most": 0.1}}
    since = {"memory": known | {"least": HOLE_S, "most": HOLE_S + 0.1}}
    sessions = [Session(server, clocked) for _ in range(3)]
    with ThreadPoolExecutor(2) as pool:
        first, second, third = sessions
        first.call("notes", {"app": "a", "prefix": ""} | late, clock.wall())  # the clock seems to be ahead
        ask = ask_json(Ask("a", "n2", 1, ttl_s=TTL_S)) | since
        setting = pool.submit(_send, second, ask, clock.wall())
        wait_until(lambda: held(server, clocked))
        first.db.commit()
        setting.result(PATIENCE_S)
        ask = ask_json(Ask("a", "n3", 1, queues=("db",), ttl_s=TTL_S)) | late
        going_by_it = pool.submit(_send, third, ask, clock.wall())
        wait_until(lambda: going_by_it.done() or held(server, clocked))
        second.db.commit()
        [claim] = going_by_it.result(PATIENCE_S)["claims"]
    for session in sessions:
        session.close()
    clock.pass_time(TTL_S - 1)
    document = {"claims": [{"place": 0, "key": claim["key"], "fence": claim["fence"], "ttl": TTL_S}]}
    assert clocked._call("renew", document)["stops"] == [None], "it lives for its ttl"


def _send(session: Session, ask: Any, wall: float) -> Any:
    """As a link does it: what has changed nothing is sent again."""
    while True:
        try:
            return session.call("claim", ask, wall)
        except SerializationFailure:
            session.db.rollback()


class Caller(PostgresStore):
    """One whose own clock stands still: what it sends may arrive later."""

    def __init__(self, server: Server, schema: str) -> None:
        self.at_s = 0.0
        super().__init__(server.url, schema, lambda: self.at_s)

    def knows(self, memory: tuple[str, float], at_s: float) -> Caller:
        self._memory, self.at_s = (*memory, 0.0, 0.0), at_s
        return self


def test_a_repeated_ask_gets_all_claims_of_the_first_even_if_that_arrives_late(server: Server) -> None:
    schema, chance = new_name(), Random(1)
    late, again, other, busy = (Caller(server, schema) for _ in range(4))
    gate = Barrier(4)

    def send(number: int, caller: Caller, ask: Ask | None) -> Any:
        gate.wait(PATIENCE_S)
        Event().wait(chance.random() * 0.003)
        return caller.claim(ask).claims if ask else caller.notes("a")

    busy.put([fire("a.b@0")])
    finish(busy, Asker(busy, "n0").claim_one())
    with ThreadPoolExecutor(4) as pool:
        for number in range(1, ROUNDS + 1):
            busy.put([fire(f"a.b{n}@{number}", "Forbid") for n in range(3)])
            lost = Asker(busy, f"dead-{number}").claim()
            busy.put([fire(f"a.c@{number}")])
            _forget_some_time(server, schema, [claim.fire.key for claim in lost])
            memory = _memory(server, schema)
            ask = Ask("a", "n1", number, limit=9, ttl_s=LIVES_S)
            calls = [
                (late.knows(memory, 0.01), ask),
                (again.knows(memory, HOLE_S), ask),
                (other.knows(memory, 0.01), None),
                (busy.knows(memory, 0.01), None),
            ]
            _, told, *_ = [
                one.result(PATIENCE_S) for one in [pool.submit(send, number, *call) for call in calls]
            ]
            kept = server.sql(f"SELECT key FROM {schema}.fires WHERE state = 'claimed' AND node = 'n1'")
            assert sorted(claim.fire.key for claim in told) == sorted(key for (key,) in kept)
            again.knows(_memory(server, schema), HOLE_S)
            assert again.renew(told) == [None] * len(told), "and each lives"
            rest = again.claim(ask._replace(node="n2")).claims
            assert len(told) + len(rest) == len(lost) + 1, "what it was not granted is for the next"
            again.finish([Report(claim, DONE) for claim in (*told, *rest)])
    for caller in (late, again, other, busy):
        caller.close()


def _forget_some_time(server: Server, schema: str, keys: list[str]) -> None:
    """As if nobody had called for a while, in which these claims expired."""
    server.sql(f"UPDATE {schema}.fires SET expires = 1 WHERE key = ANY (%s)", keys)
    server.sql(f"UPDATE {schema}.world SET seen = seen - {HOLE_S}")


def _memory(server: Server, schema: str) -> tuple[str, float]:
    """What one knows who called before that."""
    look = "SELECT era, extract(epoch FROM clock_timestamp())::float8 - steps"
    [(epoch, mono)] = server.sql(f"{look} FROM {schema}.world")
    return epoch, mono - HOLE_S
