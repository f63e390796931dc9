"""The driver on Redis: small scripts read, write, and follow a step of the server's clock.

Keys of an app begin with `<key_prefix>{detent:<app>}:`, and so are in one slot of a cluster.  A record is a
text and a line (`values`), in the hashes `texts` and `states`; `indexes` lists the indexes.  The hand is a
lease of one second: `lua/look.lua`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

from detent.errors import DetentError
from detent.model import Found, Query, Row, Size, Tally
from detent.stores.base import NOTE_PREFIX
from detent.stores.engine.driver import (
    NO_CELL,
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
from detent.stores.engine.finishing import LANE_PREFIX
from detent.stores.redis.indexes import decoded, encoded
from detent.stores.redis.queries import Queries
from detent.stores.redis.requests import Request, key_of, names_of, where
from detent.stores.redis.session import Seen, Session
from detent.stores.redis.values import Kept, records_of

WAITING = 1  # members that wait, of each lane that comes with due records: as many as decisions read


class Hand:
    """What a unit of work has read, and what it has in hand."""

    def __init__(self, token: str = "") -> None:
        self.token = token
        self.seen: dict[str, Kept] = {}
        self.taken: dict[str, dict[str, float]] = {}  # index -> keys and their scores
        self.lanes: set[str] = set()
        self.ahead: float | None = None
        self.header: Header | None = None
        # What decisions about the records in hand depend on; it came with them.
        self.known: dict[tuple[type, str], Any] = {}

    def release(self, request: Request) -> None:
        """Show again what was taken into hand, and is not written."""
        for index, scores in self.taken.items():
            for key, score in scores.items():
                if key not in request.written:
                    request.writes["ZADD XX"][index] += score, key_of(key)
        if self.lanes:
            request.writes["HDEL"]["hands"] += self.lanes


class RedisDriver:
    def __init__(self, session: Session) -> None:
        self._session, self._queries = session, Queries(session)
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
                request = Request({}, set())
                mine.release(request)
                with suppress(DetentError):  # it ends by itself
                    request.send(self._session, app, Expect())

    # Look.

    def look(self, app: str, reads: Sequence[Read]) -> tuple[Header, list[Any]]:
        hand = getattr(self._local, "hand", None) or Hand()
        known = [_recall(hand, read) for read in reads]
        if None not in known:
            if hand.header:
                return hand.header, known
            if guess := self._session.guess(app):
                hand.ahead = guess.ahead
                return guess.header, known
        empty = [_recall(Hand(), read) for read in reads]
        wanted = [read for read, reply in zip(reads, empty, strict=True) if reply is None]
        seen, replies = self._look(app, [_request(hand, read) for read in wanted])
        hand.ahead, hand.header = seen.ahead, seen.header
        _keep_references(hand, replies.pop())
        found = iter([_reply(hand, *pair) for pair in zip(wanted, replies, strict=True)])
        return seen.header, [next(found) if reply is None else reply for reply in empty]

    def _look(self, app: str, reads: list[list[Any]]) -> tuple[Seen, list[Any]]:
        """Returns a reply for each read, and what decisions about the due records depend on."""
        return self._session.run(app, "look", [WAITING, reads])

    # Commit.

    def commit(self, app: str, expect: Expect, groups: Sequence[Group]) -> Committed | None:
        hand = getattr(self._local, "hand", None) or Hand()
        left, present = dict(enumerate(groups)), set[str]()
        while True:
            dropped = self._read_dropped(app, hand, left.values())
            request = Request(hand.seen, present)
            for group in left.values():
                request.add(group)
            hand.release(request)
            seen, (said, *more) = request.send(self._session, app, expect, hand.ahead)
            if said == b"refused":
                return None
            if said == b"done":
                break
            stale = {name.decode("utf-8", "surrogateescape") for name in more[0]}
            present |= {key for key in request.inserted if f"states {key}" in stale}
            stale -= {f"states {key}" for key in (*present, *dropped)}
            gone = {place for place, group in left.items() if not stale.isdisjoint(names_of(group))}
            if gone and expect.is_whole:
                return None
            left = {place: group for place, group in left.items() if place not in gone}
        hand.taken, hand.lanes = {}, set()
        for record, indexes in request.written.values():
            record.indexes, record.until = indexes, record.expires
        done = [place in left for place in range(len(groups))]
        return Committed(seen.header, done, frozenset(request.inserted), seen.version, int(more[0]))

    def _read_dropped(self, app: str, hand: Hand, groups: Iterable[Group]) -> list[str]:
        """Read the pending records that are deleted whatever their version.  Returns their keys."""
        keys = [drop.key for group in groups for drop in group.drops if drop.version is None]
        if keys:
            _, (words, _) = self._look(app, [["fires", keys]])
            found = {one.fire.key: one for one in records_of(words) if one.state == "pending"}
            for key in keys:
                hand.seen.pop(key, None)
            hand.seen |= found
        return keys

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


def _request(hand: Hand, read: Read) -> list[Any]:
    match read:
        case Due():
            token = hand.token if read.tier == "judged" else ""
            after = [read.after.look_at, read.after.key] if read.after else []
            return ["due", _due(read), read.most, token, *after]
        case Expired():
            indexes = _live([read.queue]) if read.queue is not None else ["laned"]
            span = ("-inf", " steady", "LIMIT", 0, read.most)
            return ["found", [["ZRANGEBYSCORE", index, *span] for index in indexes]]
        case Asked():
            return ["asked", read.node, read.number or 0]
        case Fires():
            return ["fires", read.keys]
        case LaneMembers():
            return ["lanes", [encoded(lane) for lane in read.lanes], read.rivals, read.parked, read.waiting]
        case Jobs(names=None):
            return ["calls", [["HGETALL", "jobs"], ["ZRANGE", "succeeded", 0, -1, "WITHSCORES"]]]
        case Jobs():
            return ["jobs", [encoded(name) for name in read.names or ()]]
        case Planned():
            indexes = [f"{kind}:{encoded(job)}" for job in read.jobs for kind in ("instants", "extras")]
            return ["found", [["ZRANGE", index, 0, -1] for index in indexes]]
        case Cells(prefix=""):
            return ["calls", [["HGET", *where(name)] for name in read.names]]
        case Cells():
            return ["notes", where(read.prefix)[0] if read.prefix != NOTE_PREFIX else ""]
        case LastAsk():
            return ["calls", [["HGET", "asks", read.node]]]
        case Next():
            due = [f"due:{tier}:{encoded(queue)}" for queue in read.queues for tier in "pjh"]
            return ["next", due, _live(read.queues)]


def _reply(hand: Hand, read: Read, said: Any) -> Any:
    match read:
        case Due():
            found = sorted(_keep(hand, said), key=place_of)
            hand.taken.setdefault(_due(read), {}).update((one.fire.key, one.look_at) for one in found)
            hand.lanes.update(encoded(one.fire.lane) for one in found if one.fire.lane)
            return found
        case Expired():
            return sorted(_keep(hand, said), key=lambda one: one.expires)[: read.most]
        case Asked():
            found = [one for one in _keep(hand, said) if one.node == read.node]
            found = [one for one in found if read.number in (None, one.ask)]
            return sorted(found, key=lambda one: one.id)
        case Planned():
            return [one for one in _keep(hand, said) if one.state == "pending" and not one.attempt]
        case Fires():
            return _keep(hand, said)
        case LaneMembers():
            return {lane: _keep(hand, one) for lane, one in zip(read.lanes, said, strict=True)}
        case Jobs(names=None):
            succeeded = dict(_pairs(said[1]))
            return {decoded(name.decode()): _job(text, succeeded.get(name)) for name, text in _pairs(said[0])}
        case Jobs():
            jobs = {name: _job(*one) for name, one in zip(read.names or (), said, strict=True)}
            return {name: job for name, job in jobs.items() if any(job)}
        case Cells(prefix=""):
            return {name: _cell(text) for name, text in zip(read.names, said, strict=True) if text}
        case Cells():
            return _cells_under(read.prefix, said)
        case LastAsk():
            return int(said[0].split(b" ")[0]) if said[0] else 0
        case Next():
            look_at, expires = (None if one == b"inf" else float(one) for one in said)
            return Upcoming(look_at, expires)


def _recall(hand: Hand, read: Read) -> Any:
    """The reply to a read that needs no call: it names nothing, or what came with the records in hand."""
    match read:
        case Fires(keys=()) | Planned(jobs=()):
            return []
        case Cells(prefix="", names=names) | Jobs(names=tuple() as names):
            pass
        case LaneMembers(lanes=()):
            return {}
        case LaneMembers(rivals=0, parked=0) if read.waiting == WAITING:
            names = read.lanes
        case _:
            return None
    kind = type(read)
    if any((kind, name) not in hand.known for name in names):
        return None
    found = {name: hand.known[kind, name] for name in names}
    return found if kind is LaneMembers else {name: one for name, one in found.items() if any(one)}


def _keep_references(hand: Hand, said: list[Any]) -> None:
    jobs, facts, lanes, cells, members = said
    for job, one in zip(jobs, facts, strict=True):
        hand.known[Jobs, decoded(job.decode())] = _job(*one)
    for lane, cell, words in zip((decoded(lane.decode()) for lane in lanes), cells, members, strict=True):
        hand.known[Cells, LANE_PREFIX + lane] = _cell(cell)
        hand.known[LaneMembers, lane] = _keep(hand, words)


def _keep(hand: Hand, words: list[bytes]) -> list[Kept]:
    found = records_of(words)
    for one in found:
        hand.seen.setdefault(one.fire.key, one)
    return found


def _cell(text: bytes | None) -> Cell:
    if not text:
        return NO_CELL
    version, _, _, rest = text.decode("utf-8", "backslashreplace").split(" ", 3)
    return Cell(rest, int(version))


def _cells_under(prefix: str, said: list[Any]) -> dict[str, Cell]:
    cells = {}
    for hash_name, pairs in said:
        start = decoded(hash_name.decode().partition(":")[2])
        start = f"{NOTE_PREFIX}{start}/" if start else NOTE_PREFIX
        for field, text in _pairs(pairs):
            name = start + decoded(field.decode())
            if name.startswith(prefix):
                cells[name] = _cell(text)
    return cells


def _job(text: bytes | None, *times: bytes | None) -> JobState:
    """`times`: when it succeeded and was reached, its newest instant."""
    cell = _cell(text)
    at, _, revision = cell.text.partition(" ")
    known = [None if one is None else float(one) for one in times]
    return JobState(float(at) if at else None, revision, cell.version, *known)


def _pairs(words: Sequence[bytes]) -> Iterable[tuple[bytes, bytes]]:
    return zip(words[::2], words[1::2], strict=True)


# Names of indexes.


def _due(read: Due) -> str:
    return f"due:{read.tier[0]}:{encoded(read.queue)}"


def _live(queues: Sequence[str]) -> list[str]:
    return [f"{kind}:{encoded(queue)}" for queue in queues for kind in ("live", "taken")]
