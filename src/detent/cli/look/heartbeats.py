"""The nodes that are alive, by their heartbeats in the store and, on this host, by their locks."""

from __future__ import annotations

import json
import socket
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from detent import clock
from detent.model import Note
from detent.stores.base import NODE, Store
from detent.warden.instances import is_dead


class Heartbeat(NamedTuple):
    """What a node says of itself."""

    instance: str
    host: str
    queues: tuple[str, ...]
    outputs: Path  # on its host
    heard_at: datetime  # by the store's clock
    pid: int | None = None
    version: str = ""
    jobs: int | None = None
    fingerprint: str = ""  # of its jobs
    jobs_list: str = ""  # the digest of the list of its jobs
    began_at: datetime | None = None  # by its own clock
    clock_s: float | None = None  # its clock less the store's
    is_embedded: bool = False  # within a process that is not its own

    @property
    def is_dead(self) -> bool:
        """Whether it is proven dead.  A heartbeat expires after half a minute; on this host the lock is free
        at once."""
        return self.host == socket.gethostname() and is_dead(self.outputs)


def find_heartbeats(store: Store, app: str) -> list[Heartbeat]:
    """The app's nodes that were heard of lately."""
    return [_read(note) for note in store.notes(app, NODE)]


def live_nodes(store: Store, app: str) -> list[Heartbeat]:
    """Those that may be alive."""
    return [beat for beat in find_heartbeats(store, app) if not beat.is_dead]


def _read(note: Note) -> Heartbeat:
    """A node of another version may say more or less."""
    said = _document(note.text)
    wall, began = _number(said, "wall"), _number(said, "began")
    pid, jobs = _number(said, "pid"), _number(said, "jobs")
    return Heartbeat(
        instance=note.name.removeprefix(NODE),
        host=str(said.get("host", "")),
        queues=tuple(str(queue) for queue in said.get("queues") or ()),
        outputs=Path(str(said.get("outputs", ""))),
        heard_at=note.written_at,
        pid=None if pid is None else int(pid),
        version=str(said.get("version", "")),
        jobs=None if jobs is None else int(jobs),
        fingerprint=str(said.get("fingerprint", "")),
        jobs_list=str(said.get("list") or ""),
        began_at=None if began is None else clock.instant(began),
        clock_s=None if wall is None else wall - note.written_at.timestamp(),
        is_embedded=said.get("embedded") is True,
    )


def _document(text: str) -> dict[str, Any]:
    try:
        said = json.loads(text)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _number(said: dict[str, Any], name: str) -> float | None:
    value = said.get(name)
    return float(value) if isinstance(value, int | float) and abs(value) < 2**40 else None
