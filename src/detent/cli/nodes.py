"""The nodes that are alive, by the notes that their hearts leave in the store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from detent.stores.base import NODE, Store


class Heartbeat(NamedTuple):
    """What a node says of itself."""

    life: str
    host: str
    queues: tuple[str, ...]
    outputs: Path  # on its host


def living(store: Store, app: str) -> list[Heartbeat]:
    """The app's nodes that were heard of lately."""
    return [_read(note.name.removeprefix(NODE), note.text) for note in store.notes(app, NODE)]


def _read(life: str, text: str) -> Heartbeat:
    """A node of another version may say more or less."""
    try:
        said = json.loads(text)
    except ValueError:
        said = {}
    said = said if isinstance(said, dict) else {}
    return Heartbeat(
        life=life,
        host=str(said.get("host", "")),
        queues=tuple(str(queue) for queue in said.get("queues") or ()),
        outputs=Path(str(said.get("outputs", ""))),
    )
