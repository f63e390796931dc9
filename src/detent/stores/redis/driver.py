"""The driver on Redis: three small scripts read, write, and follow a step of the server's clock.

Keys of an app begin with `<key_prefix>{detent:<app>}:`, and so are in one slot of a cluster.  A record is a
text and a line (`values`), in the hashes `texts` and `states`; `indexes` lists the indexes.  The hand is a
lease of one second: `lua/look.lua`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

from detent.errors import DetentError
from detent.model import Found, Query, Row, Size, Tally
from detent.stores.engine.driver import (
    Asked,
    Cell,
    Cells,
    Committed,
    Due,
    Expect,
    Expired,
    Fires,
    Group,
    Header,
    Jobs,
    JobState,
    LaneMembers,
    LastAsk,
    Next,
    Planned,
    Read,
    Upcoming,
    place_of,
)
from detent.stores.redis.indexes import decoded, encoded, names_of
from detent.stores.redis.queries import Queries
from detent.stores.redis.requests import Request, groups_with, where
from detent.stores.redis.session import Seen, Session
from detent.stores.redis.values import Kept, records_of

NO_REPLIES: dict[type, Any] = {Fires: [], Planned: [], LaneMembers: {}, Jobs: {}, Cells: {}}


class Hand:
    """What a unit of work has read, and what it has in hand."""

    def __init__(self, token: str = "") -> None:
        self.token = token
        self.seen: dict[str, Kept] = {}
        self.taken: dict[str, set[str]] = {}  # index -> keys
        self.lanes: set[str] = set()
        self.ahead: float | None = None
        self.header: Header | None = None
        # What decisions about the records in hand depend on; it came with them.
        self.jobs: dict[str, JobState] = {}
        self.members: dict[str, list[Kept]] = {}
        self.cells: dict[str, Cell] = {}


class RedisDriver:
    def __init__(self, session: Session) -> None:
        self._session, self._queries = session, Queries(session, self._free)
        self._tokens = map(f"{os.urandom(6).hex()}.{{}}".format, count())
        self._local = threading.local()

    @contextmanager
    def hand(self, app: str) -> Iterator[None]:
        outer, mine = getattr(self._local, "hand", None), Hand(next(self._tokens))
        self._local.hand = mine
        try:
            yield
        finally:
            self._local.hand = outer
            if mine.taken:
                with suppress(DetentError):  # it ends by itself
                    self._send(app, "commit", Expect(), (Request({}, set()), mine))

    # Look.

    def look(self, app: str, reads: Sequence[Read]) -> tuple[Header, list[Any]]:
        hand = getattr(self._local, "hand", None) or Hand()
        wanted = [read for read in reads if not _is_empty(read)]
        if not wanted and (guess := self._session.guess(app)):
            hand.ahead = guess.ahead
            return guess.header, [_no_reply(read) for read in reads]
        if hand.header and wanted and all(_is_known(hand, read) for read in wanted):
            return hand.header, [_no_reply(r) if _is_empty(r) else _recall(hand, r) for r in reads]
        seen, replies = self._session.run(app, "look", [_said(hand, read) for read in wanted])
        hand.ahead, hand.header = seen.ahead, seen.header
        if len(replies) > len(wanted):
            _keep_references(hand, replies.pop())
        found = iter([_reply(hand, *pair) for pair in zip(wanted, replies, strict=True)])
        return seen.header, [_no_reply(read) if _is_empty(read) else next(found) for read in reads]

    # Commit.

    def commit(self, app: str, expect: Expect, groups: Sequence[Group]) -> Committed | None:
        hand = getattr(self._local, "hand", None) or Hand()
        left, present = dict(enumerate(groups)), set[str]()
        while True:
            hidden = self._read_dropped(app, hand, left.values())
            request = Request(hand.seen, present)
            for group in left.values():
                request.add(group)
            seen, said = self._send(app, "commit", expect, (request, hand))
            if said[0] == b"refused":
                return None
            if said[0] == b"done":
                break
            present.update(key.decode() for key in said[2])
            stale = {name.decode() for name in said[1]}
            for key in hidden:
                hand.seen.pop(key, None)
            gone = groups_with(left.items(), stale - {f"r{key}" for key in hidden})
            if gone and expect.is_whole:
                return None
            left = {place: group for place, group in left.items() if place not in gone}
        hand.taken, hand.lanes = {}, set()
        for batch in request.batches.values():
            for record in batch.records:
                if isinstance(record, Kept):
                    record.names, record.until = names_of(record), record.expires
        done = [place in left for place in range(len(groups))]
        fresh, version = frozenset(request.inserted), seen.version
        return Committed(seen.header, done, fresh, version, int(said[1]))

    def _read_dropped(self, app: str, hand: Hand, groups: Any) -> list[str]:
        """Read the pending records that are deleted whatever their version.  Returns their keys."""
        keys = [drop.key for group in groups for drop in group.drops if drop.version is None]
        if not keys:
            return []
        for key in keys:
            hand.seen.pop(key, None)
        _, (words,) = self._session.run(app, "look", [["fires", keys]])
        for one in records_of(words):
            if one.state == "pending":
                hand.seen[one.fire.key] = one
        return keys

    def _send(
        self, app: str, script: str, expect: Expect, what: tuple[Request, Hand]
    ) -> tuple[Seen, list[Any]]:
        (request, hand), words = what, list[bytes]()
        said = request.said(expect, hand.ahead, words)
        written = {key for batch in request.batches.values() for key in batch.keys}
        left = [
            [index, [key for key in keys if key.encode("utf-8", "surrogateescape") not in written]]
            for index, keys in hand.taken.items()
        ]
        said |= {"hand": [one for one in left if one[1]], "lanes": sorted(hand.lanes)}
        return self._session.run(app, script, said, words)

    def _free(self, app: str, records: Sequence[Kept], groups: Sequence[Group]) -> bool:
        """Commit deletions, also on a full server."""
        hand = Hand()
        hand.seen = {one.fire.key: one for one in records}
        request = Request(hand.seen, set())
        for group in groups:
            request.add(group)
        return bool(self._send(app, "free", Expect(), (request, hand))[1][0] == b"done")

    # Queries.

    def find(self, query: Query) -> Found:
        return self._queries.find(query)

    def newest(self, app: str, jobs: Sequence[str], each: int) -> dict[str, list[Row]]:
        return self._queries.newest(app, jobs, each)

    def tally(self, app: str, starts: range) -> list[Tally]:
        return self._queries.tally(app, starts)

    def count(self, app: str, queues: Sequence[str]) -> Mapping[str, Size]:
        return self._queries.count(app, queues)

    def apps(self) -> list[str]:
        return sorted(self._session.apps())

    def prune(self, app: str, older_than_s: float, keep: int) -> int:
        return self._queries.prune(app, older_than_s, keep)

    def wait(self, app: str, seconds: float) -> bool:
        return self._session.wait(app, seconds)

    def close(self) -> None:
        self._session.close()


# Reads and replies.


def _said(hand: Hand, read: Read) -> list[Any]:
    match read:
        case Due():
            at, key = (read.after.look_at, read.after.key) if read.after else (None, "")
            token = hand.token if read.tier == "judged" else None
            return ["due", _due(read), read.most, at, key, token]
        case Expired():
            return ["expired", _live([read.queue]) if read.queue is not None else ["laned"], read.most]
        case Asked():
            return ["asked", read.node, read.number]
        case Fires():
            return ["fires", read.keys]
        case LaneMembers():
            return ["lanes", [encoded(lane) for lane in read.lanes], read.rivals, read.parked]
        case Jobs(names=None):
            return ["all_jobs"]
        case Jobs():
            return ["jobs", [encoded(name) for name in read.names or ()]]
        case Planned():
            return ["planned", [encoded(job) for job in read.jobs]]
        case Cells(prefix=""):
            return ["cells", [word for name in read.names for word in where(name)]]
        case Cells():
            hash_name, _ = where(read.prefix)
            return ["under", "" if hash_name == "notes:" else hash_name]
        case LastAsk():
            return ["last_ask", read.node]
        case Next():
            due = [f"due:{tier}:{encoded(queue)}" for queue in read.queues for tier in "pjh"]
            return ["next", due, _live(read.queues)]


def _reply(hand: Hand, read: Read, said: Any) -> Any:
    match read:
        case Due():
            found = sorted(_kept(hand, said), key=place_of)
            hand.taken.setdefault(_due(read), set()).update(one.fire.key for one in found)
            hand.lanes.update(encoded(one.fire.lane) for one in found if one.fire.lane)
            return found
        case Expired():
            return sorted(_kept(hand, said), key=lambda one: one.expires)[: read.most]
        case Asked():
            found = [one for one in _kept(hand, said) if one.node == read.node]
            found = [one for one in found if read.number in (None, one.ask)]
            return sorted(found, key=lambda one: one.id)
        case Planned():
            return [one for one in _kept(hand, said) if one.state == "pending" and not one.attempt]
        case Fires():
            return _kept(hand, said)
        case LaneMembers():
            return {lane: _kept(hand, one) for lane, one in zip(read.lanes, said, strict=True)}
        case Jobs(names=None):
            jobs, succeeded = (dict(zip(one[::2], one[1::2], strict=True)) for one in said)
            return {
                decoded(name.decode()): _job(text, succeeded.get(name), None, None)
                for name, text in jobs.items()
            }
        case Jobs():
            jobs = {name: _job(*one) for name, one in zip(read.names or (), said, strict=True)}
            return {name: job for name, job in jobs.items() if any(job)}
        case Cells(prefix=""):
            return {name: _cell(text) for name, text in zip(read.names, said, strict=True) if text}
        case Cells():
            return _cells_under(read.prefix, said)
        case LastAsk():
            return int(said.split(b" ")[0]) if said else 0
        case Next():
            look_at, expires = (None if one is None else float(one) for one in said)
            return Upcoming(look_at, expires)


# Reads that need no call.


def _is_empty(read: Read) -> bool:
    match read:
        case Fires():
            return not read.keys
        case LaneMembers():
            return not read.lanes
        case Jobs() | Cells(prefix=""):
            return read.names == ()
        case Planned():
            return not read.jobs
    return False


def _no_reply(read: Read) -> Any:
    return NO_REPLIES[type(read)].copy()


def _is_known(hand: Hand, read: Read) -> bool:
    match read:
        case Cells(prefix=""):
            return all(name in hand.cells for name in read.names)
        case Jobs(names=tuple()):
            return all(name in hand.jobs for name in read.names or ())
        case LaneMembers(rivals=0, parked=0):
            return all(lane in hand.members for lane in read.lanes)
    return False


def _recall(hand: Hand, read: Read) -> Any:
    match read:
        case Cells():
            return {name: cell for name in read.names if (cell := hand.cells[name]).version}
        case Jobs():
            return {name: job for name in read.names or () if any(job := hand.jobs[name])}
        case LaneMembers():
            return {lane: hand.members[lane] for lane in read.lanes}


def _keep_references(hand: Hand, said: list[Any]) -> None:
    jobs, facts, lanes, cells, members = said
    hand.jobs |= {decoded(job.decode()): _job(*one) for job, one in zip(jobs, facts, strict=True)}
    for lane, cell, words in zip((decoded(lane.decode()) for lane in lanes), cells, members, strict=True):
        hand.cells[f"lane/{lane}"] = _cell(cell)
        hand.members[lane] = _kept(hand, words)


# Replies.


def _kept(hand: Hand, words: list[bytes]) -> list[Kept]:
    found = records_of(words)
    for one in found:
        hand.seen.setdefault(one.fire.key, one)
    return found


def _cell(text: bytes | None) -> Cell:
    version, _, rest = (text or b"0").decode("utf-8", "backslashreplace").partition(" ")
    return Cell(rest, int(version))


def _cells_under(prefix: str, said: list[Any]) -> dict[str, Cell]:
    cells = {}
    for hash_name, pairs in said:
        start = decoded(hash_name.decode().partition(":")[2])
        start = f"note/{start}/" if start else "note/"
        for field, text in zip(pairs[::2], pairs[1::2], strict=True):
            name = start + field.decode("utf-8", "surrogateescape")
            if name.startswith(prefix):
                cells[name] = _cell(text)
    return cells


def _job(text: bytes | None, succeeded: Any, reached: Any, newest: Any) -> JobState:
    version, at, revision = text.decode().split(" ", 2) if text else ("0", None, "")
    times = [None if one is None else float(one) for one in (at, succeeded, reached, newest)]
    return JobState(times[0], revision, int(version), times[1], times[2], times[3])


# Names of indexes.


def _due(read: Due) -> str:
    return f"due:{read.tier[0]}:{encoded(read.queue)}"


def _live(queues: Sequence[str]) -> list[str]:
    return [f"{kind}:{encoded(queue)}" for queue in queues for kind in ("live", "taken")]
