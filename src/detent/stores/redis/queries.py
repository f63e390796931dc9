"""Searches, counts and pruning on Redis: in several short calls, as a server runs one script at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from heapq import merge
from itertools import islice
from typing import Any

from detent.clock import instant
from detent.model import DEAD, Attempt, Found, Query, Row, Size, Tally
from detent.stores.base import LOOK_MAX, REMEMBER_ASKS_S, app_of
from detent.stores.encoding import live_graces, live_note
from detent.stores.engine.driver import Drop, Expect, Group, Progress
from detent.stores.engine.record import row_of
from detent.stores.redis.indexes import decoded, encoded
from detent.stores.redis.requests import Request
from detent.stores.redis.session import Session
from detent.stores.redis.tallies import slices, summed
from detent.stores.redis.values import Kept, attempts_of, records_of
from detent.stores.search import matches, page, place_of, select

PAGE = 200  # places that one call examines
NEWEST_MAX = 1000  # records of a call that reads the newest of several jobs
FEW = 1000  # open records are read as a whole, rather than searched for, if they are no more
PRUNE_MAX = 500  # records that one call deletes, or other things that it examines
REMEMBER_JOBS_S = 30 * 86_400.0  # what is known of a job without records outlives it for this long
DUE = ("due:p", "due:j", "due:h")
# Sets, and the keys of their members: a member without any of them is deleted.
USED = {"queues": (*DUE, "live", "taken", "dead"), "tasks": ("book",), "past": ("done",)}
BARE, RECORD, ROW = 2, 3, 4  # hashes of a row: without attempts, with attempts, and with the output too


Past = tuple[Kept, tuple[Attempt, ...]]


class Queries:
    def __init__(self, session: Session) -> None:
        self._session = session

    # Finding.

    def find(self, query: Query) -> Found:
        found = [self._find(app, query) for app in self._apps_of(query)]
        if query.upcoming:
            return Found(islice(merge(*found, key=lambda row: (row.run_at, row.fire.key)), query.limit))
        # Below the place where the search of one app stopped, the result would be incomplete.
        stopped_at = max((one.before for one in found if one.before), default=None)
        rows = merge(*found, key=lambda row: place_of(row.fire), reverse=True)
        known = (row for row in rows if stopped_at is None or place_of(row.fire) >= stopped_at)
        return page([*islice(known, query.limit)], query.limit, stopped_at)

    def _apps_of(self, query: Query) -> set[str]:
        """The apps that the query can match."""
        named = [{query.app}, {app_of(query.job)}, {app_of(query.key)}]
        named += [set(map(app_of, query.jobs)), set(map(app_of, query.keys))]
        meant = [apps for apps in named if apps - {""}]
        return set.intersection(*meant) if meant else self._session.apps()

    def _find(self, app: str, query: Query) -> Found:
        if query.key or query.keys:
            keys = [query.key] if query.key else query.keys
            return self._select(app, query, keys, ROW if query.key else RECORD)
        queues = [encoded(queue) for queue in query.queues] or self._members(app, "queues")
        if query.upcoming:
            return self._upcoming(app, query, queues)
        kinds = {"claimed": ("live", "taken"), "pending": DUE}.get(query.state, ())
        if kinds:
            indexes = [f"{kind}:{queue}" for queue in queues for kind in kinds]
            if sum(self._calls(app, [["ZCARD", index] for index in indexes])) <= FEW:
                found = self._calls(app, [["ZRANGE", index, 0, -1] for index in indexes])
                return self._select(app, query, _keys(found), RECORD)
        return self._search(app, query, self._sources(app, query, queues))

    def _select(self, app: str, query: Query, keys: Sequence[str], hashes: int) -> Found:
        """The result of a search among these keys."""
        rows = {one.fire.key: (one, attempts) for one, attempts in self._rows(app, keys, hashes)}
        some, before = select((one for one, _ in rows.values()), query)
        return Found((row_of(*rows[one.fire.key]) for one in some), before)

    def _rows(self, app: str, keys: Sequence[str], hashes: int = RECORD) -> list[Past]:
        return _past(self._session.find(app, ["rows", keys, hashes])[2][0], hashes)

    def _calls(self, app: str, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Run these commands.  Returns their replies."""
        found: list[Any] = self._session.find(app, ["calls", commands])[2][0]
        return found

    def _sources(self, app: str, query: Query, queues: Sequence[str]) -> list[str]:
        jobs = [job for job in query.jobs if query.job in ("", job)] if query.jobs else [query.job]
        books = [f"book:{encoded(job)}" for job in jobs if job]
        is_push, is_other = "push" in query.origins, bool({*query.origins} - {"push"})
        is_any = not query.origins
        if (is_push or is_any) and query.state == "over" and query.kinds and {*query.kinds} <= {*DEAD}:
            dead = [f"dead:{queue}" for queue in queues]
            return dead + (([*books] or ["all"]) if is_other or is_any else [])
        if query.job or query.jobs:
            return books
        tasks = self._members(app, "tasks") if is_push or is_any else []
        return [f"book:{job}" for job in tasks] + (["all"] if is_other or is_any else [])

    def _search(self, app: str, query: Query, indexes: Sequence[str]) -> Found:
        rows: list[Row] = []
        looked, before = 0, query.before
        request: dict[str, Any] = {"state": query.state[:1], "kinds": query.kinds, "is_upward": False}
        request |= {name: at.timestamp() for name in ("since", "until") if (at := getattr(query, name))}
        while indexes and query.limit > 0:
            after = {"after": [before[0].timestamp(), before[1]]} if before else {}
            count, at, key, past = self._page(app, indexes, request | after)
            found = [row_of(*one) for one in past if matches(one[0], query)]
            rows += sorted(found, key=lambda row: place_of(row.fire), reverse=True)
            looked += count
            if len(rows) >= query.limit:
                return Found(rows[: query.limit], place_of(rows[query.limit - 1].fire))
            if count < PAGE:
                break
            before = instant(at), key
            if looked >= LOOK_MAX:
                return Found(rows, before)
        return Found(rows)

    def _upcoming(self, app: str, query: Query, queues: Sequence[str]) -> Found:
        """Parked records are in two indexes: by the time when they are looked at, and by their own."""
        indexes = [f"{kind}:{queue}" for queue in queues for kind in (*DUE, "aside")]
        request: dict[str, Any] = {"state": "p", "kinds": (), "is_upward": True}
        rows: dict[str, Row] = {}
        while len(rows) < query.limit:
            count, at, key, past = self._page(app, indexes, request)
            rows |= {one.fire.key: row_of(one, attempts) for one, attempts in past if matches(one, query)}
            if count < PAGE:
                break
            request["after"] = [at, key]
        found = sorted(rows.values(), key=lambda row: (row.run_at, row.fire.key))
        return Found(found[: query.limit])

    def newest(self, app: str, jobs: Sequence[str], each: int) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {job: [] for job in jobs}
        some, span = max(1, NEWEST_MAX // each), (" wall", "-inf", "LIMIT", 0, each)
        for start in range(0, len(jobs), some):
            books = [f"book:{encoded(job)}" for job in jobs[start : start + some]]
            pages = self._calls(app, [["ZREVRANGEBYSCORE", book, *span] for book in books])
            for one, attempts in self._rows(app, _keys(pages), BARE):
                found[one.fire.job].append(row_of(one, attempts))
        return found

    def _page(
        self, app: str, indexes: Sequence[str], request: dict[str, Any]
    ) -> tuple[int, float, str, list[Past]]:
        """A page of these indexes: how many places it has, the last of them, and what matches."""
        page = ["page", request | {"indexes": indexes, "count": PAGE}]
        count, at, key, words = self._session.find(app, page)[2][0]
        return count, float(at), key.decode("utf-8", "surrogateescape"), _past(words)

    def _members(self, app: str, name: str) -> list[str]:
        return sorted(one.decode() for one in self._session.call(app, "SMEMBERS", name))

    # Counting.

    def count(self, app: str, queues: Sequence[str]) -> dict[str, Size]:
        sizes: dict[str, Size] = {}
        for queue in map(encoded, queues) if queues else self._members(app, "queues"):
            waiting = (f"due:p:{queue}", f"letters:{queue}")
            commands = [["ZCOUNT", index, "-inf", " wall"] for index in waiting]
            commands += [["ZCARD", index] for index in (*waiting, f"taken:{queue}", f"dead:{queue}")]
            *due, plain, letters, claimed, dead = self._calls(app, commands)
            size = Size(sum(due), plain + letters - sum(due), claimed, dead)
            sizes |= {decoded(queue): size} if any(size) else {}
        return sizes

    def tally(self, app: str, starts: range) -> list[Tally]:
        now, _, _ = self._session.find(app)
        found: list[tuple[int, list[bytes]]] = []
        for minutes in slices(starts, now):
            hashes = self._calls(app, [["HGETALL", f"tally:{minute}"] for minute in minutes])
            found += zip(minutes, hashes, strict=True)
        return summed(found, starts.step)

    # Pruning.

    def prune(self, app: str, older_than_s: float, keep: int) -> int:
        """Prunes the surplus first: its count includes the old fires."""
        gone, cursor = 0, b""
        while cursor != b"0":
            cursor, jobs = self._session.call(app, "SSCAN", "past", cursor or 0, "COUNT", PRUNE_MAX)
            indexes = [f"done:{job.decode()}" for job in jobs]
            counts = self._calls(app, [["ZCARD", index] for index in indexes])
            for index, count in zip(indexes, counts, strict=True):
                gone += self._prune(app, ("ZRANGE", index), count - keep)
        now, _, _ = self._session.find(app)
        before = ("-inf", f"({now - older_than_s!r}", "LIMIT")
        gone += self._prune(app, ("ZRANGEBYSCORE", "over", *before), None)
        self._tidy(app, now - max(older_than_s, REMEMBER_JOBS_S))
        return gone

    def _prune(self, app: str, command: tuple[str, ...], surplus: int | None) -> int:
        """Prune what the command finds; of a surplus only what is not kept for another reason."""
        gone = passed = 0
        while True:
            count = PRUNE_MAX if surplus is None else min(PRUNE_MAX, surplus - gone - passed)
            if count <= 0:
                return gone
            last = count if surplus is None else passed + count - 1
            now, _, (found,) = self._session.find(app, ["calls", [[*command, passed, last]]])
            keys = _keys(found)
            records = [one for one, _ in self._rows(app, keys)]
            watermarks = self._watermarks(app, records, now)
            some = [one for one in records if surplus is None or one.keep_until <= now]
            some = [one for one in some if not _is_to_come(one, watermarks)]
            if not some or self._delete(app, some):
                gone, passed = gone + len(some), passed + len(keys) - len(some)
                if len(keys) < count:
                    return gone

    def _delete(self, app: str, records: Sequence[Kept]) -> bool:
        request = Request({one.fire.key: one for one in records}, set())
        fires = [one.fire for one in records if one.fire.origin == "schedule"]
        reached = [Progress(fire.job, reached=fire.due_at.timestamp()) for fire in fires]
        request.add(Group(drops=[Drop(one.fire.key, one.version) for one in records], progress=reached))
        return bool(request.send(self._session, app, Expect())[1][0] == b"done")

    def _watermarks(self, app: str, records: Sequence[Kept], now: float) -> dict[str, float]:
        """For each job of a schedule the instant until which its plan can record nothing again."""
        jobs = sorted({one.fire.job for one in records if one.fire.origin == "schedule"})
        if not jobs:
            return {}
        found = self._session.call(app, "HMGET", "jobs", *map(encoded, jobs))
        return {
            job: min(now, float(text.split(b" ")[3])) if text else now
            for job, text in zip(jobs, found, strict=True)
        }

    # Tidying: deletes what nothing refers to any more.

    def _tidy(self, app: str, jobs_before: float) -> None:
        wall, steady, _ = self._session.find(app)
        for hash_name in self._members(app, "kinds"):
            self._tidy_hash(app, hash_name, lambda text: not live_note(_text(text), steady))
        self._tidy_hash(app, "cells:charge", lambda text: _is_spent(_text(text), steady))
        self._tidy_hash(app, "cells:lane", lambda text: not live_graces(_text(text), steady))
        self._tidy_hash(app, "asks", lambda text: float(text.split(" ")[1]) <= steady - REMEMBER_ASKS_S)
        self._tidy_hash(app, "hands", lambda text: float(text.split(" ")[0]) <= wall)
        for index in ("succeeded", "reached"):
            self._forget_jobs(app, index, jobs_before)
        used = {name: [f"{kind}:" for kind in kinds] for name, kinds in USED.items()} | {"kinds": [""]}
        self._session.find(app, *(["trim", *one] for one in used.items()))

    def _tidy_hash(self, app: str, name: str, is_over: Callable[[str], bool]) -> None:
        """Delete the fields that are over, unless they change in the meantime."""
        cursor = b""
        while cursor != b"0":
            cursor, words = self._session.call(app, "HSCAN", name, cursor or 0, "COUNT", PRUNE_MAX)
            texts = dict(zip(map(bytes.decode, words[::2]), map(bytes.decode, words[1::2]), strict=True))
            fields = [field for field, text in texts.items() if is_over(text)]
            if name == "cells:lane":
                fields = self._free_lanes(app, fields)
            request = Request({}, set())
            for field in fields:
                request.checks[name][field] = texts[field].split(" ")[0] + " "
                request.writes["HDEL"][name].append(field)
            if fields:
                request.send(self._session, app, Expect())

    def _free_lanes(self, app: str, lanes: Sequence[str]) -> list[str]:
        """Those of these lanes that have no open fires.  Deletes the names of their queues."""
        free = self._unused(app, lanes, ["ZCARD held:{}", "ZCARD waits:{}", "ZCARD rivals:{}"])
        self._session.find(app, *(["trim", f"parks:{lane}", [f"parked:{lane}|"]] for lane in free))
        return free

    def _unused(self, app: str, names: Sequence[str], counts: Sequence[str]) -> list[str]:
        """The names for which all these commands reply 0."""
        found = self._calls(app, [count.format(name).split(" ") for name in names for count in counts])
        some = len(counts)
        return [name for at, name in enumerate(names) if not any(found[at * some : (at + 1) * some])]

    def _forget_jobs(self, app: str, index: str, before: float) -> None:
        """Forget jobs that were last heard of before that instant, and have no records."""
        passed, page = 0, [b""]
        while page:
            span = ("-inf", f"({before!r}", "LIMIT", passed, PRUNE_MAX)
            page = self._session.call(app, "ZRANGEBYSCORE", index, *span)
            jobs = self._unused(app, [job.decode() for job in page], ["ZCARD book:{}", "HEXISTS jobs {}"])
            if jobs:
                request = Request({}, set())
                request.writes["ZREM"][index] += jobs
                request.send(self._session, app, Expect())
            passed += len(page) - len(jobs)


def _keys(replies: Sequence[Sequence[bytes]]) -> list[str]:
    return [key.decode("utf-8", "surrogateescape") for keys in replies for key in keys]


def _text(cell: str) -> str:
    return cell.split(" ", 3)[3]


def _is_spent(charges: str, steady: float) -> bool:
    lasts_s, uses = json.loads(charges) if charges else (0.0, [])
    return all(at <= steady - lasts_s for at, _ in uses)


def _past(words: Sequence[Any], hashes: int = RECORD) -> list[Past]:
    """The rows of these words: for each a line, a text, attempts and, if they were read, output."""
    rows = [words[place : place + hashes] for place in range(0, len(words), hashes)]
    records = records_of([word for row in rows for word in row[:2]])
    return [(one, attempts_of(*row[2:])) for one, row in zip(records, rows, strict=True)]


def _is_to_come(one: Kept, watermarks: dict[str, float]) -> bool:
    """Whether it is an instant that a plan could record again."""
    return one.fire.origin == "schedule" and one.fire.due_at.timestamp() > watermarks[one.fire.job]
