"""An ask and its repetition run concurrently, after a time in which no call reached PostgreSQL.

The delayed call arrives together with later ones.  It reports too little elapsed time, which looks like a
step of the server's clock.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Barrier, Event
from typing import Any

from tests.equipment.postgres_server import (
    PATIENCE_S,
    Server,
    new_name,
)

from detent.model import Ask, Report
from detent.stores.postgres.store import PostgresStore
from detent.stores.sql.server_clock import Recollection
from detent.testing.stores.fixtures import DONE, Asker, finish, fire

HOLE_S = 20.0  # nothing gets through for so long
ROUNDS = 15
LIVES_S = 3.0


class Caller(PostgresStore):
    """A client whose clock stands still, so that its calls seem delayed."""

    def __init__(self, server: Server, schema: str) -> None:
        self.at_s = 0.0
        super().__init__(server.url, schema, lambda: self.at_s)

    def knows(self, memory: tuple[str, float], at_s: float) -> Caller:
        self.driver._recollection = Recollection()
        self.driver._recollection.learn(*memory, 0.0, 0.0)
        self.at_s = at_s
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
            _, granted, *_ = [
                one.result(PATIENCE_S) for one in [pool.submit(send, number, *call) for call in calls]
            ]
            kept = server.sql(f"SELECT key FROM {schema}.fires WHERE state = 'claimed' AND node = 'n1'")
            assert sorted(claim.fire.key for claim in granted) == sorted(key for (key,) in kept)
            again.knows(_memory(server, schema), HOLE_S)
            assert again.renew(granted) == [None] * len(granted), "and each lives"
            rest = again.claim(ask._replace(node="n2")).claims
            assert len(granted) + len(rest) == len(lost) + 1, "what it was not granted is for the next"
            again.finish([Report(claim, DONE) for claim in (*granted, *rest)])
    for caller in (late, again, other, busy):
        caller.close()


def _forget_some_time(server: Server, schema: str, keys: list[str]) -> None:
    """Simulates a time without calls, in which these claims expired."""
    server.sql(f"UPDATE {schema}.fires SET expires = 1 WHERE key = ANY (%s)", keys)
    server.sql(f"UPDATE {schema}.world SET seen = seen - {HOLE_S}")


def _memory(server: Server, schema: str) -> tuple[str, float]:
    """The memory of a client that called before that time."""
    look = "SELECT epoch, extract(epoch FROM clock_timestamp())::float8 - steps"
    [(epoch, mono)] = server.sql(f"{look} FROM {schema}.world")
    return epoch, mono - HOLE_S
