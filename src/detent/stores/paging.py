"""Where one search stops, and the next one continues."""

from __future__ import annotations

from detent.model import Fire, Found, Place, Row


def page(rows: list[Row], limit: int, stopped_at: Place | None) -> Found:
    """The result of a search.  With `limit` rows, the next search continues after the last of them."""
    if 0 < limit <= len(rows):
        return Found(rows, place_of(rows[-1].fire))
    return Found(rows, stopped_at)


def place_of(fire: Fire) -> Place:
    return fire.due_at, fire.key
