"""Searches, counts and pruning on Redis: in several short calls, as a server runs one script at a time."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from detent.clock import instant
from detent.model import DEAD, Found, Place, Query, Row, Size, Tally
from detent.rules.rates import charges_of
from detent.rules.tallies import MINUTE_S, start_of, tally_of
from detent.stores.base import LOOK_MAX, REMEMBER_ASKS_S, app_of
from detent.stores.encoding import live_graces, live_note
from detent.stores.engine.driver import Drop, Expect, Group, Progress
from detent.stores.paging import place_of
from detent.stores.redis.indexes import decoded, encoded
from detent.stores.redis.requests import TALLY_S, Request
from detent.stores.redis.session import Session
from detent.stores.redis.values import Kept, cell_of, pairs_of, records_of, rows_of
from detent.stores.search import matches, prunable, select

PAGE, PLACES = 500, 2000  # places that one call examines at most, and reads from all indexes together
RECORDS_MAX = 1000  # that one call reads
FEW = 1000  # open records are read as a whole, rather than searched for, if they are no more
PRUNE_MAX = 500  # records that one call deletes, or other things that it examines
MINUTES = 20  # whose tallies one call reads
REMEMBER_JOBS_S = 30 * 86_400.0  # what is known of a job without records outlives it for this long
DUE = ("due:p", "due:j", "due:h")
# Parked records are in two indexes: by the time when they are looked at, and by their own.
OPEN = {"claimed": ("live", "taken"), "pending": DUE, "upcoming": (*DUE, "aside")}
# Sets, and the keys of their members: a member without any of them is deleted.
USED = {
    "queues": ["due:p:", "due:j:", "due:h:", "live:", "taken:", "dead:"],
    "tasks": ["book:"],
    "past": ["done:"],
    "kinds": [""],
}
SORTED = ("succeeded", "reached")  # sets of jobs
BARE, RECORD, ROW = 2, 3, 4  # hashes of a row: without attempts, with attempts, and with the output too


class Queries:
    def __init__(self, session: Session) -> None:
        self._session = session

    # Finding.

    def find(self, query: Query) -> Found:
        found = [self._find(app, query) for app in self._apps_of(query)]
        # Below the place where the search of one app stopped, the result would be incomplete.
        stopped_at = max((at for _, at in found if at), default=None)
        rows = [row for some, _ in found for row in some]
        known = [row for row in rows if stopped_at is None or place_of(row.fire) >= stopped_at]
        chosen, last = select(known, query)
        return Found(chosen, last or stopped_at)

    def _apps_of(self, query: Query) -> set[str]:
        """The apps that the query can match."""
        named = [{query.app}, {app_of(query.job)}, {app_of(query.key)}]
        named += [set(map(app_of, query.jobs)), set(map(app_of, query.keys))]
        meant = [apps for apps in named if apps - {""}]
        return set.intersection(*meant) if meant else self._session.apps()

    def _find(self, app: str, query: Query) -> tuple[Iterable[Row], Place | None]:
        """All rows that may match, and the place where the search stopped."""
        if query.key or query.keys:
            keys = [query.key] if query.key else query.keys
            return self._rows(app, ["rows", keys, ROW if query.key else RECORD]), None
        queues = [encoded(queue) for queue in query.queues] or self._members(app, "queues")
        kinds = OPEN.get("upcoming" if query.upcoming else query.state, ())
        indexes = [f"{kind}:{queue}" for queue in queues for kind in kinds]
        if query.upcoming:
            return self._search(app, query, indexes)
        if indexes and self._size(app, indexes) <= FEW:
            every = [["ZRANGE", index, 0, -1] for index in indexes]
            return self._rows(app, ["found", every, RECORD]), None
        return self._search(app, query, self._sources(app, query, queues))

    def _rows(self, app: str, read: list[Any]) -> Iterable[Row]:
        return {row.fire.key: row for row in rows_of(self._read(app, read), read[-1])}.values()

    def _sources(self, app: str, query: Query, queues: Sequence[str]) -> list[str]:
        """Of the sets of indexes that have all that can match, the smallest."""
        is_push, is_other = "push" in query.origins, bool({*query.origins} - {"push"})
        choices: list[list[str]] = []
        if query.job or query.jobs:
            jobs = [job for job in query.jobs if query.job in ("", job)] if query.jobs else [query.job]
            choices.append([f"book:{encoded(job)}" for job in jobs])
        else:
            tasks = [] if is_other and not is_push else self._members(app, "tasks")
            others = [] if is_push and not is_other else ["all"]
            choices.append([f"book:{job}" for job in tasks] + others)
        if query.kinds and "succeeded" not in query.kinds:
            choices.append([f"outcome:{kind}" for kind in query.kinds])
            if query.state == "over" and query.origins == ("push",) and {*query.kinds} <= {*DEAD}:
                choices.append([f"dead:{queue}" for queue in queues])
        return min(choices, key=lambda some: self._size(app, some)) if len(choices) > 1 else choices[0]

    def _search(self, app: str, query: Query, indexes: Sequence[str]) -> tuple[Iterable[Row], Place | None]:
        rows: dict[str, Row] = {}
        looked, at = 0, b""
        request: dict[str, Any] = {"indexes": indexes, "is_upward": query.upcoming, "kinds": query.kinds}
        request["count"] = min(PAGE, max(PAGE // 10, PLACES // max(1, len(indexes))))
        request |= {"state": "p" if query.upcoming else query.state[:1], "most": query.limit}
        if not query.upcoming:
            times = {"since": query.since, "until": query.until}
            request |= {name: time.timestamp() for name, time in times.items() if time}
            if query.before:
                request["after"] = [query.before[0].timestamp(), query.before[1]]
        while indexes and len(rows) < query.limit and (query.upcoming or looked < LOOK_MAX):
            count, at, key, words = self._read(app, ["page", request])
            rows |= {row.fire.key: row for row in rows_of(words, RECORD) if matches(row, query)}
            if not at:
                break
            looked += count
            request |= {"after": [float(at), key.decode("utf-8", "surrogateescape")], "most": PAGE}
        is_end = query.upcoming or not at
        return rows.values(), None if is_end else (instant(float(at)), key.decode("utf-8", "surrogateescape"))

    def newest(self, app: str, jobs: Sequence[str], each: int) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {job: [] for job in jobs}
        some, span = max(1, RECORDS_MAX // each), (" wall", "-inf", "LIMIT", 0, each)
        for start in range(0, len(jobs), some):
            books = [f"book:{encoded(job)}" for job in jobs[start : start + some]]
            read = ["found", [["ZREVRANGEBYSCORE", book, *span] for book in books], BARE]
            for row in rows_of(self._read(app, read), BARE):
                found[row.fire.job].append(row)
        return found

    def _read(self, app: str, read: Sequence[Any]) -> Any:
        return self._session.find(app, read)[2][0]

    def _calls(self, app: str, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Run these commands.  Returns their replies."""
        found: list[Any] = self._read(app, ["calls", commands])
        return found

    def _size(self, app: str, indexes: Sequence[str]) -> int:
        return sum(self._calls(app, [["ZCARD", index] for index in indexes]))

    def _members(self, app: str, name: str) -> list[str]:
        return sorted(one.decode() for one in self._calls(app, [["SMEMBERS", name]])[0])

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
        # Those minutes that may be kept, with the one that has begun.
        first = max(starts.start, int(now) - TALLY_S) // MINUTE_S
        minutes = range(first, min(starts.stop, int(now) + MINUTE_S) // MINUTE_S)
        counts: Counter[tuple[int, bytes]] = Counter()
        for at in range(0, len(minutes), MINUTES):
            some = minutes[at : at + MINUTES]
            hashes = self._calls(app, [["HGETALL", f"tally:{minute}"] for minute in some])
            for minute, words in zip(some, hashes, strict=True):
                start = start_of(minute * MINUTE_S, starts.step)
                counts.update({(start, field): int(number) for field, number in pairs_of(words)})
        return [tally_of(start, json.loads(field), fires) for (start, field), fires in counts.items()]

    # Pruning.

    def prune(self, app: str, older_than_s: float, keep: int) -> int:
        """Prunes the surplus first: its count includes the old fires."""
        gone, cursor = 0, b""
        while cursor != b"0":
            [(cursor, jobs)] = self._calls(app, [["SSCAN", "past", cursor.decode() or 0, "COUNT", PRUNE_MAX]])
            indexes = [f"done:{job.decode()}" for job in jobs]
            counts = self._calls(app, [["ZCARD", index] for index in indexes])
            for index, count in zip(indexes, counts, strict=True):
                gone += self._prune(app, index, "+inf", (math.inf, 0), count - keep)
        now, _, _ = self._session.find(app)
        gone += self._prune(app, "over", now - older_than_s, (older_than_s, sys.maxsize), sys.maxsize)
        self._tidy(app, now - max(older_than_s, REMEMBER_JOBS_S))
        return gone

    def _prune(self, app: str, index: str, until: str | float, limits: tuple[float, int], most: int) -> int:
        """Prune the first records of an index, at most so many, if these limits allow it (`prunable`)."""
        gone = kept = 0
        while (count := min(PRUNE_MAX, most - gone - kept)) > 0:
            read = ["found", [["ZRANGEBYSCORE", index, "-inf", until, "LIMIT", kept, count]], BARE]
            now, _, (words,) = self._session.find(app, read)
            records = records_of(words)
            some = prunable(records, self._watermarks(app, records), now, limits)
            if not some or self._delete(app, some):
                gone, kept = gone + len(some), kept + len(records) - len(some)
                if len(records) < count:
                    break
        return gone

    def _delete(self, app: str, records: Sequence[Kept]) -> bool:
        request = Request({one.fire.key: one for one in records}, set())
        fires = [one.fire for one in records if one.fire.origin == "schedule"]
        reached = [Progress(fire.job, reached=fire.due_at.timestamp()) for fire in fires]
        request.add(Group(drops=[Drop(one.fire.key, one.version) for one in records], progress=reached))
        return bool(request.send(self._session, app, Expect())[1][0] == b"done")

    def _watermarks(self, app: str, records: Sequence[Kept]) -> dict[str, float]:
        jobs = sorted({one.fire.job for one in records if one.fire.origin == "schedule"})
        texts = self._calls(app, [["HGET", "jobs", encoded(job)] for job in jobs])
        return {
            job: float(cell_of(text).text.split(" ")[0])
            for job, text in zip(jobs, texts, strict=True)
            if text
        }

    # Tidying: deletes what nothing refers to any more.

    def _tidy(self, app: str, jobs_before: float) -> None:
        wall, steady, _ = self._session.find(app)
        for notes in self._members(app, "kinds"):
            self._sweep(app, notes, lambda text: not live_note(cell_of(text).text, steady))
        self._sweep(app, "cells:charge", lambda text: _is_spent(cell_of(text).text, steady))
        self._sweep(app, "asks", lambda text: float(text.split(b" ")[1]) <= steady - REMEMBER_ASKS_S)
        self._sweep(app, "hands", lambda text: float(text.split(b" ")[0]) <= wall)
        for times in SORTED:
            uses = ["ZCARD book:{}", "HEXISTS jobs {}"]
            self._sweep(app, times, lambda at: float(at) < jobs_before, uses)
        uses = ["ZCARD held:{}", "ZCARD waits:{}", "ZCARD rivals:{}"]
        lanes = self._sweep(app, "cells:lane", lambda text: not live_graces(cell_of(text).text, steady), uses)
        sets = [(f"parks:{lane}", [f"parked:{lane}|"]) for lane in lanes]
        self._session.find(app, *(["trim", *one] for one in (*sets, *USED.items())))

    def _sweep(
        self, app: str, name: str, is_over: Callable[[bytes], bool], uses: Sequence[str] = ()
    ) -> list[str]:
        """Delete members that are over, unless they change in the meantime, or one of the commands `uses`
        replies with a number.  Returns them."""
        gone, cursor = list[str](), b""
        scan, delete = ("ZSCAN", "ZREM") if name in SORTED else ("HSCAN", "HDEL")
        while cursor != b"0":
            [(cursor, words)] = self._calls(app, [[scan, name, cursor.decode() or 0, "COUNT", PRUNE_MAX]])
            texts = {member.decode(): text for member, text in pairs_of(words) if is_over(text)}
            counts = iter(self._calls(app, [use.format(one).split(" ") for one in texts for use in uses]))
            members = [one for one in texts if not sum(next(counts) for _ in uses)]
            request = Request({}, set())
            request.writes[delete][name] += members
            if scan == "HSCAN":
                request.checks[name] = {one: f"{texts[one].split(b' ')[0].decode()} " for one in members}
            if members:
                request.send(self._session, app, Expect())
            gone += members
        return gone


def _is_spent(charges: str, steady: float) -> bool:
    lasts_s, uses = charges_of(charges)
    return all(one.at <= steady - lasts_s for one in uses)
