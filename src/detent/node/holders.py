"""Which jobs the living nodes of an app hold.

The jobs of an app are the union of what its living nodes hold.  Each heartbeat names a list of jobs by its
digest; the list itself is in the store once, however many nodes hold it, and never changes.  A job of a host
scheduler has no living node: its trigger leaves a note of its own.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any

from detent.model import Job, Note
from detent.stores.base import JOBS, NODE, TRIGGERED

LIST_TTL_S = 86_400.0
REWRITE_S = LIST_TTL_S / 4  # a list is written again this often, while a node holds it
DIGITS = 16

Notes = Callable[[str], Awaitable[list[Note]]]  # the notes of the app under a prefix


class JobList:
    """The jobs of one node, as other nodes read them."""

    def __init__(self, jobs: Mapping[str, Job]) -> None:
        self.jobs, revisions = jobs, {name: jobs[name].revision for name in sorted(jobs)}
        text = json.dumps(revisions, separators=(",", ":"))
        self.digest = sha256(text.encode()).hexdigest()[:DIGITS]
        self.text = base64.b64encode(zlib.compress(text.encode())).decode()


class Holders:
    def __init__(self, life: str) -> None:
        self._life = life
        self._lists: dict[str, Mapping[str, str]] = {}  # by digest: a list never changes

    async def held(self, notes: Notes) -> set[str] | None:
        """The jobs that other living nodes and triggers hold.  None: a node does not say what it holds."""
        names = {note.name.removeprefix(TRIGGERED) for note in await notes(TRIGGERED)}
        for note in await notes(NODE):
            if note.name == NODE + self._life:
                continue
            digest = _digest_in(note.text)
            jobs = {} if digest == "" else await self._list(digest, notes) if digest else None
            if jobs is None:
                return None
            names.update(jobs)
        return names

    async def _list(self, digest: str, notes: Notes) -> Mapping[str, str] | None:
        if digest not in self._lists and (found := await notes(JOBS + digest)):
            self._lists[digest] = jobs_in(found[0].text)
        return self._lists.get(digest)


def jobs_in(text: str) -> dict[str, str]:
    """Name and revision of each job of a list."""
    found: dict[str, str] = json.loads(zlib.decompress(base64.b64decode(text)))
    return found


def _digest_in(heartbeat: str) -> str | None:
    """Of the list that a node holds; "": it plans no jobs; None: it does not say."""
    try:
        said: Any = json.loads(heartbeat)
    except ValueError:
        return None
    digest = said.get("list") if isinstance(said, dict) else None
    return digest if isinstance(digest, str) else None
