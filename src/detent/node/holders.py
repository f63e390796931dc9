"""Which jobs the living nodes of an app hold.

The jobs of an app are the union of what its living nodes hold.  Each node keeps a note with the digest of its
list of jobs.  The note goes when the node stops, when its death is proven on its host, or `HOLDS_TTL_S` after
the node last renewed it.  The list itself is in the store once, however many nodes hold it; it never changes.
A job of a host scheduler has no living node: its trigger leaves a note of its own.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256

from detent.model import Job, Note
from detent.stores.base import HOLDS, JOBS, TRIGGERED

HOLDS_TTL_S = 90.0  # longer than a heartbeat: a node that is only slow must not lose its jobs
RENEW_S = HOLDS_TTL_S / 3
LIST_TTL_S = 86_400.0
REWRITE_S = LIST_TTL_S / 4  # a list is written again this often, while a node holds it
DIGITS = 16
ANY = ""  # instead of a revision

Notes = Callable[[str], Awaitable[list[Note]]]  # the notes of the app under a prefix


class JobList:
    """The jobs of one node, as other nodes read them."""

    def __init__(self, jobs: Mapping[str, Job]) -> None:
        self.jobs, revisions = jobs, {name: jobs[name].revision for name in sorted(jobs)}
        text = json.dumps(revisions, separators=(",", ":"))
        self.digest = sha256(text.encode()).hexdigest()[:DIGITS]
        self.text = base64.b64encode(zlib.compress(text.encode())).decode()


class Holders:
    def __init__(self, instance: str) -> None:
        self._instance = instance
        self._lists: dict[str, Mapping[str, str]] = {}  # by digest: a list never changes

    async def held(self, notes: Notes) -> dict[str, set[str]] | None:
        """The revisions of each job that other living nodes hold, or `ANY` where a trigger holds the job.
        None: the list of a node is not there."""
        held = {note.name.removeprefix(TRIGGERED): {ANY} for note in await notes(TRIGGERED)}
        for note in await notes(HOLDS):
            jobs = {} if note.name == HOLDS + self._instance else await self._list(note.text, notes)
            if jobs is None:
                return None
            for name, revision in jobs.items():
                held.setdefault(name, set()).add(revision)
        return held

    async def _list(self, digest: str, notes: Notes) -> Mapping[str, str] | None:
        if digest not in self._lists and (found := await notes(JOBS + digest)):
            self._lists[digest] = jobs_in(found[0].text)
        return self._lists.get(digest)


def jobs_in(text: str) -> dict[str, str]:
    """Name and revision of each job of a list."""
    found: dict[str, str] = json.loads(zlib.decompress(base64.b64decode(text)))
    return found
