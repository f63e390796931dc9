"""Writes what `server_clock` decided: in a transaction that has the store to itself."""

from __future__ import annotations

from detent.stores.base import CHARGE_PREFIX
from detent.stores.sql.dialect import Session
from detent.stores.sql.pending import longest_pending_s, move_delays
from detent.stores.sql.server_clock import Correction, World, moved_charges


def correct(session: Session, correction: Correction, version: int, new_epoch: str) -> World:
    """Correct the fires and charges, and the row of the table `world`, which is returned."""
    now, world = correction.now, correction.world
    if step := correction.step:
        move_delays(session, step, version)
        if step < 0:
            session.run_many(_MOVE_CLAIMS, [(step, version, correction.since)])
        session.run_many(_SHORTEN_CLAIMS, [(now, version, now)])
    if correction.stretch:
        live = min(correction.seen, now)
        session.run_many(_STRETCH_CLAIMS, [(now, version, live, correction.stretch_after, now)])
    if step or correction.stretch:
        _correct_charges(session, correction, version)
    if correction.is_new_epoch:
        calm = max(world.quarantined_until, now + longest_pending_s(session))
        world = world._replace(epoch=new_epoch, quarantined_until=calm)
    session.upsert("world", ("one", *World._fields), [(1, *world)])
    return world


def _correct_charges(session: Session, correction: Correction, version: int) -> None:
    found = session.rows(_CHARGES, (CHARGE_PREFIX, CHARGE_PREFIX + "\U0010ffff"))
    moved = [(moved_charges(text, correction), version, app, name) for app, name, text in found]
    session.run_many(_SET_CHARGES, moved)


# A claim was granted or renewed its ttl before it expires.
_MOVE_CLAIMS = """
UPDATE fires SET expires = expires - ?, version = ? WHERE state = 'claimed' AND expires - ttl > ?
"""
_SHORTEN_CLAIMS = """
UPDATE fires SET expires = ? + ttl, version = ? WHERE state = 'claimed' AND expires - ttl > ?
"""
_STRETCH_CLAIMS = """
UPDATE fires SET expires = ? + ttl, version = ?
WHERE state = 'claimed' AND expires > ? AND expires - ttl > ? AND expires - ttl < ?
"""
_CHARGES = "SELECT app, name, text FROM cells WHERE name >= ? AND name < ? AND text <> ''"
_SET_CHARGES = "UPDATE cells SET text = ?, version = ? WHERE app = ? AND name = ?"
