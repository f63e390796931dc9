"""The driver on Redis: small scripts read, write, and follow a step of the server's clock.

Keys of an app begin with `<key_prefix>{detent:<app>}:`, and so are in one slot of a cluster.  A record is a
text and a line (`values`), in the hashes `texts` and `states`; `indexes` lists the indexes.  The hand is a
lease of one second: `lua/look.lua`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from typing import Any

from detent.errors import DetentError
from detent.stores.base import LANE_PREFIX, NOTE_PREFIX
from detent.stores.engine import driver
from detent.stores.engine.driver import Cell, Expect, Group, Header, JobState, Read, Upcoming, place_of
from detent.stores.redis.indexes import decoded, encoded
from detent.stores.redis.queries import Queries
from detent.stores.redis.requests import Request, key_of, names_of, where
from detent.stores.redis.session import Session
from detent.stores.redis.values import Kept, cell_of, pairs_of, records_of

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
        self._session, queries = session, Queries(session)
        self.find, self.newest, self.tally = queries.find, queries.newest, queries.tally
        self.count, self.prune = queries.count, queries.prune
        self.wait, self.close = session.wait, session.close
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
        questions = [_question(hand, read) for read in reads]
        seen, replies = self._session.run(app, "look", [WAITING, [request for request, _ in questions]])
        hand.ahead, hand.header = seen.ahead, seen.header
        _keep_references(hand, replies.pop())
        return seen.header, [answer(said) for (_, answer), said in zip(questions, replies, strict=True)]

    # Commit.

    def commit(self, app: str, expect: Expect, groups: Sequence[Group]) -> driver.Committed | None:
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
        return driver.Committed(seen.header, done, frozenset(request.inserted), seen.version, int(more[0]))

    def _read_dropped(self, app: str, hand: Hand, groups: Iterable[Group]) -> list[str]:
        """Read the pending records that are deleted whatever their version.  Returns their keys."""
        keys = [drop.key for group in groups for drop in group.drops if drop.version is None]
        if keys:
            _, (words, _) = self._session.run(app, "look", [WAITING, [["rows", keys]]])
            found = {one.fire.key: one for one in records_of(words) if one.state == "pending"}
            for key in keys:
                hand.seen.pop(key, None)
            hand.seen |= found
        return keys

    def apps(self) -> list[str]:
        return sorted(self._session.apps())


# Reads and replies.


def _question(hand: Hand, read: Read) -> tuple[list[Any], Callable[[Any], Any]]:
    """The request for this read, and what makes the reply out of what the script says."""

    request: list[Any]
    keep = partial(_keep, hand)
    match read:
        case driver.Due():
            index = f"due:{read.tier[0]}:{encoded(read.queue)}"
            token = hand.token if read.tier == "judged" else ""
            after = [read.after.look_at, read.after.key] if read.after else []
            return ["due", index, read.most, token, *after], lambda said: _take(hand, index, keep(said))
        case driver.Expired():
            indexes = live_indexes([read.queue]) if read.queue is not None else ["laned"]
            span = ("-inf", " steady", "LIMIT", 0, read.most)
            request = ["found", [["ZRANGEBYSCORE", index, *span] for index in indexes]]
            return request, lambda said: sorted(keep(said), key=lambda one: one.expires)[: read.most]
        case driver.Asked():
            return ["asked", read.node, read.number or 0], lambda said: _asked(read, keep(said))
        case driver.Planned():
            indexes = [f"{kind}:{encoded(job)}" for job in read.jobs for kind in ("instants", "extras")]
            request = ["found", [["ZRANGE", index, 0, -1] for index in indexes]]
            return request, lambda said: [r for r in keep(said) if r.state == "pending" and not r.attempt]
        case driver.Fires():
            return ["rows", read.keys], keep
        case driver.LaneMembers():
            request = ["lanes", [*map(encoded, read.lanes)], read.rivals, read.parked, read.waiting]
            return request, lambda said: dict(zip(read.lanes, map(keep, said), strict=True))
        case driver.Jobs(names=None):
            return ["calls", [["HGETALL", "jobs"], ["ZRANGE", "succeeded", 0, -1, "WITHSCORES"]]], _all_jobs
        case driver.Jobs():
            names = read.names or ()
            return ["jobs", [*map(encoded, names)]], lambda said: _named(names, [_job(*one) for one in said])
        case driver.Cells(prefix=""):
            request = ["calls", [["HGET", *where(name)] for name in read.names]]
            return request, lambda said: _named(read.names, map(cell_of, said))
        case driver.Cells():
            request = ["notes", where(read.prefix)[0] if read.prefix != NOTE_PREFIX else ""]
            return request, lambda said: _cells_under(read.prefix, said)
        case driver.LastAsk():
            request = ["calls", [["HGET", "asks", read.node]]]
            return request, lambda said: int(said[0].split(b" ")[0]) if said[0] else 0
        case driver.Next():
            due = [f"due:{tier}:{encoded(queue)}" for queue in read.queues for tier in "pjh"]
            request = ["next", due, live_indexes(read.queues)]
            return request, lambda said: Upcoming(_time(said[0]), _time(said[1]))


def _recall(hand: Hand, read: Read) -> Any:
    """The reply to a read that needs no call: it names nothing, or what came with the records in hand."""
    names: Sequence[str]
    match read:
        case driver.Fires(keys=()) | driver.Planned(jobs=()):
            return []
        case driver.Cells(prefix="", names=names) | driver.Jobs(names=tuple() as names):
            pass
        case driver.LaneMembers(lanes=names) if not names or read[1:] == (0, 0, WAITING):
            pass
        case _:
            return None
    kind = type(read)
    if any((kind, name) not in hand.known for name in names):
        return None
    found = [hand.known[kind, name] for name in names]
    return dict(zip(names, found, strict=True)) if kind is driver.LaneMembers else _named(names, found)


def _keep_references(hand: Hand, said: list[Any]) -> None:
    jobs, facts, lanes, cells, members = said
    for job, one in zip(jobs, facts, strict=True):
        hand.known[driver.Jobs, decoded(job.decode())] = _job(*one)
    for lane, cell, words in zip((decoded(lane.decode()) for lane in lanes), cells, members, strict=True):
        hand.known[driver.Cells, LANE_PREFIX + lane] = cell_of(cell)
        hand.known[driver.LaneMembers, lane] = _keep(hand, words)


def _keep(hand: Hand, words: list[bytes]) -> list[Kept]:
    found = records_of(words)
    for one in found:
        hand.seen.setdefault(one.fire.key, one)
    return found


def _take(hand: Hand, index: str, due: list[Kept]) -> list[Kept]:
    hand.taken.setdefault(index, {}).update((one.fire.key, one.look_at) for one in due)
    hand.lanes.update(encoded(one.fire.lane) for one in due if one.fire.lane)
    return sorted(due, key=place_of)


def _asked(read: driver.Asked, claimed: list[Kept]) -> list[Kept]:
    found = [one for one in claimed if one.node == read.node and read.number in (None, one.ask)]
    return sorted(found, key=lambda one: one.id)


def _named(names: Iterable[str], found: Iterable[Cell | JobState]) -> dict[str, Any]:
    """Those that exist."""
    return {name: one for name, one in zip(names, found, strict=True) if any(one)}


def _cells_under(prefix: str, said: list[Any]) -> dict[str, Cell]:
    cells: dict[str, Cell] = {}
    for hash_name, words in said:
        start = decoded(hash_name.decode().partition(":")[2])
        start = f"{NOTE_PREFIX}{start}/" if start else NOTE_PREFIX
        cells |= {start + decoded(field.decode()): cell_of(text) for field, text in pairs_of(words)}
    return {name: cell for name, cell in cells.items() if name.startswith(prefix)}


def _all_jobs(said: list[Any]) -> dict[str, JobState]:
    texts, succeeded = map(pairs_of, said)
    times = dict(succeeded)
    return {decoded(name.decode()): _job(text, times.get(name)) for name, text in texts}


def _job(text: bytes | None, *times: bytes | None) -> JobState:
    """`times`: when it succeeded and was reached, its newest instant."""
    cell = cell_of(text)
    at, _, revision = cell.text.partition(" ")
    known = [None if one is None else float(one) for one in times]
    return JobState(float(at) if at else None, revision, cell.version, *known)


def _time(text: bytes) -> float | None:
    return None if text == b"inf" else float(text)


def live_indexes(queues: Sequence[str]) -> list[str]:
    return [f"{kind}:{encoded(queue)}" for queue in queues for kind in ("live", "taken")]
