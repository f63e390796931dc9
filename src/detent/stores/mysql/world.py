"""Reads the state of a MySQL store as a whole, its epoch and its clock, and corrects it.

Every transaction that writes holds a shared lock of the gate.  So the clock is never corrected while a
transaction uses it, whose writes would not be corrected with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from detent.stores.base import leap
from detent.stores.engine.driver import Header
from detent.stores.mysql.schema import NOW, SYSTEMS
from detent.stores.mysql.session import MysqlSession
from detent.stores.sql.corrections import correct
from detent.stores.sql.server_clock import Correction, Recollection, World, judge

SHARE = "SELECT one FROM gate LOCK IN SHARE MODE"
EXCLUDE = "SELECT one FROM gate FOR UPDATE"
SLOW_S, READS = 0.25, 3  # a slower reading of the clock is repeated; readings at most


class Sight(NamedTuple):
    """The state of the store as it was read."""

    header: Header
    world: World
    correction: Correction | None  # to be made before it can be used


class Observer:
    """Reads the state of the store, and remembers what it needs to judge the next reading."""

    def __init__(self, boottime: Callable[[], float]) -> None:
        self._boottime, self._recollection = boottime, Recollection()
        self._seen = ("", 0.0)  # the newest `World.seen`, and its epoch
        self.kind = ""  # of the server

    def read(self, session: MysqlSession, app: str) -> Sight:
        for _ in range(READS):
            sent, statement = self._boottime(), _READ.format(SYSTEMS[self.kind])
            ((wall, system, generation, controls, *state),) = session.rows(statement, (app,))
            answered = self._boottime()
            if answered - sent <= SLOW_S:
                break
        world = World(*state)
        # If a newer state was seen in this epoch, the server has lost data, as after the restore of a backup.
        has_lost = self._seen[0] == world.epoch and self._seen[1] > world.seen
        memory = self._recollection.recall(sent, answered)
        correction = judge(world, memory, wall, "" if has_lost else system)
        if correction:
            corrected = correction.world._replace(system=system, seen=max(correction.now, world.seen))
            correction = correction._replace(world=corrected)
        else:
            self._recollection.learn(world.epoch, wall - world.steps, sent, answered)
            self._seen = world.epoch, world.seen
        header = Header(wall, wall - world.steps, world.epoch, world.quarantined_until, generation, controls)
        return Sight(header, world, correction)


def new_version() -> int:
    """Random, so that commits need not wait for each other to count."""
    return int.from_bytes(os.urandom(8), "big") >> 2 | 1


def set_right(session: MysqlSession, correction: Correction, wall: float) -> None:
    """Correct the state of the store.  The transaction has the gate for itself."""
    if correction.is_new_epoch:
        for app, fence in session.rows("SELECT app, fence FROM apps WHERE fence IS NOT NULL FOR UPDATE"):
            session.rows("UPDATE apps SET fence = ? WHERE app = ?", (leap(fence, wall), app))
    correct(session, correction, new_version(), os.urandom(8).hex())


_READ = f"""
SELECT {NOW}, {{}}, COALESCE(generation, 0), COALESCE(controls, 0),
    {", ".join(f"`{name}`" for name in World._fields)}
FROM world LEFT JOIN apps ON app = ?
"""
