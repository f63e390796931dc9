"""The state of a PostgreSQL store as a whole: its clocks and its epoch, and how they are corrected."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any, NamedTuple

from detent.stores.base import leap
from detent.stores.engine.driver import Header
from detent.stores.postgres.schema import SYSTEM
from detent.stores.postgres.session import PostgresSession, Reading
from detent.stores.sql.corrections import correct
from detent.stores.sql.dialect import Statement, Steps
from detent.stores.sql.server_clock import Correction, World

BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
WALL, STEADY = Reading("detent.now"), Reading("detent.steady")


class State(NamedTuple):
    """What every look and commit reads first."""

    world: World
    wall: float
    system: str
    app_id: int | None  # None: the app has no row yet
    generation: int
    controls: int
    answered: float  # by the client's clock

    @property
    def steady(self) -> float:
        return self.wall - self.world.steps

    @property
    def header(self) -> Header:
        world = self.world
        calm = world.quarantined_until
        return Header(self.wall, self.steady, world.epoch, calm, self.generation, self.controls)


def unknown_header() -> Header:
    """Stands for the header that the server reads in the same round trip."""
    return Header(WALL, STEADY, "")


def beginning(schema: str, app: str, limits_s: tuple[float, float]) -> Steps[tuple[Any, ...]]:
    """Begin a transaction, with limits of a statement and of a pause.  Returns the row of the header.

    Plans must not depend on how full the tables were when a session began: they go by indexes."""
    statement_ms, idle_ms = (str(round(limit_s * 1000)) for limit_s in limits_s)
    settings = (f'"{schema}", pg_temp', statement_ms, statement_ms, idle_ms)
    _, found = yield [(BEGIN, ()), (_header(schema, _SETTINGS), (*settings, app))]
    return found[0]


def heading(schema: str, app: str, fences: Statement) -> Steps[tuple[Any, ...]]:
    """Read the header again, with a version and these fences.  Returns its row."""
    text, values = fences
    (found,) = yield [(_header(schema, f"nextval('versions'), {text}"), (*values, app))]
    return found[0]


def state_of(row: tuple[Any, ...], answered: float) -> State:
    *world, wall, system, app_id, generation, controls, _, _ = row[: len(World._fields) + 7]
    return State(World(*world), wall, system, app_id, generation, controls, answered)


@lru_cache
def _header(schema: str, more: str) -> str:
    return _HEADER.format(f'"{schema}".', more)


def locking_world(*, exclusively: bool) -> Steps[None]:
    """While a commit relies on the clock and the controls as it read them, no transaction changes them."""
    yield [(_LOCK if exclusively else _LOCK_SHARED, ())]


def set_right(session: PostgresSession, correction: Correction, wall: float) -> World:
    """Write a correction.  In a new epoch, the fences leap."""
    ((version,),) = session.rows("SELECT nextval('versions')")
    if correction.is_new_epoch:
        for (app_id,) in session.rows("SELECT id FROM apps ORDER BY id"):
            ((last,),) = session.rows(f"SELECT last_value FROM fence_{app_id}")
            session.rows(f"SELECT setval('fence_{app_id}', ?)", (leap(last, wall),))
    return correct(session, correction, version, os.urandom(8).hex())


def new_app(session: PostgresSession, app: str, wall: float) -> int:
    """Record an app and its fences, unless another transaction has.  Returns its id."""
    session.send("INSERT INTO apps (app) VALUES (?) ON CONFLICT DO NOTHING", (app,))
    ((app_id,),) = session.rows("SELECT id FROM apps WHERE app = ?", (app,))
    first = leap(0, wall) + 1
    session.send(f"CREATE SEQUENCE IF NOT EXISTS fence_{app_id} MINVALUE 0 START {first}")
    return int(app_id)


_SETTINGS = """
set_config('search_path', ?, true), set_config('statement_timeout', ?, true),
       set_config('lock_timeout', ?, true), set_config('idle_in_transaction_session_timeout', ?, true),
       set_config('synchronous_commit', 'on', true), set_config('jit', 'off', true),
       set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true), set_config('enable_bitmapscan', 'off', true)
"""
_HEADER = f"""
SELECT {", ".join(f"world.{name}" for name in World._fields)}, now.wall, {SYSTEM.format("{0}")},
       apps.id, coalesce(apps.generation, 0), coalesce(apps.controls, 0),
       set_config('detent.now', now.wall::text, true),
       set_config('detent.steady', (now.wall - world.steps)::text, true), {{1}}
FROM {{0}}world CROSS JOIN (SELECT {{0}}clock() AS wall) AS now LEFT JOIN {{0}}apps ON apps.app = ?
"""
SEEN = """
UPDATE world SET seen = ? WHERE one IN (SELECT one FROM world WHERE seen < ? FOR UPDATE SKIP LOCKED)
"""
_LOCK_SHARED = "SELECT pg_advisory_xact_lock_shared(1685352052, 'world'::regclass::oid::integer)"
_LOCK = "SELECT pg_advisory_xact_lock(1685352052, 'world'::regclass::oid::integer)"
