"""Records which jobs this node holds, and finds out which jobs the other live nodes of the app hold.

Each node keeps a note with the digest of its job list.  The note disappears when the node stops, when its
death is proven on its host, or `HOLDS_TTL_S` after the last renewal.  The list itself never changes and is
stored once, however many nodes hold it.  A host scheduler has no live node: its trigger leaves its own note.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

from detent.model import Job, Note
from detent.stores.base import HOLDS, JOBS, TRIGGERED

if TYPE_CHECKING:
    from detent.node.store_calls import StoreCalls

HOLDS_TTL_S = 90.0  # longer than a heartbeat, so that a slow node keeps its jobs
RENEW_S = HOLDS_TTL_S / 3
LIST_TTL_S = 86_400.0
REWRITE_S = LIST_TTL_S / 4  # a node writes its list again this often
DIGITS = 16
ANY = ""  # in place of a revision: a trigger holds the job in whatever revision


class JobList:
    """The names and revisions of a node's jobs, as other nodes read them."""

    def __init__(self, jobs: Mapping[str, Job]) -> None:
        self.jobs, revisions = jobs, {name: jobs[name].revision for name in sorted(jobs)}
        text = json.dumps(revisions, separators=(",", ":"))
        self.digest = sha256(text.encode()).hexdigest()[:DIGITS]
        self.text = base64.b64encode(zlib.compress(text.encode())).decode()


class Holders:
    def __init__(self, jobs: Mapping[str, Job], call: StoreCalls) -> None:
        self._call, self._list = call, JobList(jobs)
        self._list_written_at = self._note_written_at = -math.inf
        self._lists: dict[str, Mapping[str, str]] = {}  # lists of other nodes, by digest

    @property
    def digest(self) -> str:
        return self._list.digest

    async def announce(self, jobs: Mapping[str, Job], pool: str) -> None:
        """Write this node's note and job list, if they are due."""
        call, now = self._call, self._call.ports.monotonic()
        note = call.ports.store.note
        if self._list.jobs is not jobs:
            self._list, self._list_written_at, self._note_written_at = JobList(jobs), -math.inf, -math.inf
        digest = self._list.digest
        if now >= self._list_written_at + REWRITE_S:
            await call(pool, note, call.app, JOBS + digest, self._list.text, LIST_TTL_S)
            self._list_written_at = now
        if now >= self._note_written_at + RENEW_S:
            await call(pool, note, call.app, HOLDS + call.instance, digest, HOLDS_TTL_S)
            self._note_written_at = now

    def announce_again(self) -> None:
        """Make the note and the list due: the store may have lost them."""
        self._list_written_at = self._note_written_at = -math.inf

    async def held_by_others(self, jobs: Mapping[str, Job], in_force: Mapping[str, str]) -> set[str]:
        """Return the jobs in force that another live node holds and we do not.  A job that we hold in
        another revision counts only if a live node holds the revision that is in force."""
        foreign = {name for name in in_force if name not in jobs or jobs[name].revision != in_force[name]}
        held = await self._held() if foreign else {}
        if held is None:
            return foreign
        return {
            name for name in foreign & held.keys() if name not in jobs or held[name] & {in_force[name], ANY}
        }

    async def _held(self) -> dict[str, set[str]] | None:
        """Return the revisions of each job that other live nodes hold.  None: a list is missing."""
        held = {note.name.removeprefix(TRIGGERED): {ANY} for note in await self._notes(TRIGGERED)}
        for note in await self._notes(HOLDS):
            jobs = {} if note.name == HOLDS + self._call.instance else await self._list_of(note.text)
            if jobs is None:
                return None
            for name, revision in jobs.items():
                held.setdefault(name, set()).add(revision)
        return held

    async def _list_of(self, digest: str) -> Mapping[str, str] | None:
        if digest not in self._lists and (found := await self._notes(JOBS + digest)):
            self._lists[digest] = jobs_in(found[0].text)
        return self._lists.get(digest)

    async def _notes(self, prefix: str) -> list[Note]:
        return await self._call("look", self._call.ports.store.notes, self._call.app, prefix)


def jobs_in(text: str) -> dict[str, str]:
    """Return the revision of each job of a list, by name."""
    found: dict[str, str] = json.loads(zlib.decompress(base64.b64decode(text)))
    return found
