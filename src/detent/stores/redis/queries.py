"""Searches, counts and pruning on Redis: in several short calls, as a server runs one script at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple

from detent.clock import instant
from detent.model import DEAD, Attempt, Found, Query, Row, Size, Tally
from detent.stores.base import LOOK_MAX, REMEMBER_ASKS_S, app_of
from detent.stores.engine.driver import Drop, Group, Progress
from detent.stores.engine.record import row_of
from detent.stores.redis.indexes import decoded, encoded
from detent.stores.redis.session import Session
from detent.stores.redis.tallies import slices, summed
from detent.stores.redis.values import Kept, attempts_of, records_of
from detent.stores.search import matches, page, place_of, select

PAGE = 200  # places that one call examines
NEWEST_MAX = 1000  # records of a call that reads the newest of several jobs
FEW = 1000  # open records are read as a whole, rather than searched for, if they are no more
PRUNE_MAX = 500  # records that one call deletes
REMEMBER_JOBS_S = 30 * 86_400.0  # what is known of a job without records outlives it for this long
TIDIED = ("cells:lane", "cells:charge", "reached", "succeeded")

Free = Callable[[str, Sequence[Kept], Sequence[Group]], bool]


class Past(NamedTuple):
    record: Kept
    attempts: tuple[Attempt, ...]


class Queries:
    def __init__(self, session: Session, free: Free) -> None:
        self._session, self._free = session, free

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
            found = self._select(app, {"read": "keys", "keys": keys, "tails": bool(query.key)}, query)
            return found or Found()
        queues = [encoded(queue) for queue in query.queues] or self._members(app, "queues")
        if query.upcoming:
            return self._upcoming(app, query, queues)
        kinds = {"claimed": ("live", "taken"), "pending": ("due:p", "due:j", "due:h")}.get(query.state, ())
        if kinds:
            indexes = [f"{kind}:{queue}" for queue in queues for kind in kinds]
            few = self._select(app, {"read": "few", "indexes": indexes, "most": FEW}, query)
            if few is not None:
                return few
        return self._search(app, query, self._sources(app, query, queues))

    def _select(self, app: str, request: dict[str, Any], query: Query) -> Found | None:
        """The result of a search that reads all its records; None: there were too many."""
        words = self._session.find(app, request)[1]
        if words is None:
            return None
        rows = {one.record.fire.key: one for one in _past(words)}
        some, before = select((one.record for one in rows.values()), query)
        return Found((row_of(one, rows[one.fire.key].attempts) for one in some), before)

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
        request = {"read": "page", "indexes": indexes, "state": query.state[:1], "kinds": query.kinds}
        request |= {name: at.timestamp() for name in ("since", "until") if (at := getattr(query, name))}
        while indexes and query.limit > 0:
            after = {"after": [before[0].timestamp(), before[1]]} if before else {}
            _, (count, at, key, words) = self._session.find(app, request | {"count": PAGE} | after)
            found = [one for one in _past(words) if matches(one.record, query)]
            rows += [
                row_of(*one) for one in sorted(found, key=lambda one: place_of(one[0].fire), reverse=True)
            ]
            looked += count
            if len(rows) >= query.limit:
                return Found(rows[: query.limit], place_of(rows[query.limit - 1].fire))
            if count < PAGE:
                break
            before = instant(float(at)), key.decode()
            if looked >= LOOK_MAX:
                return Found(rows, before)
        return Found(rows)

    def _upcoming(self, app: str, query: Query, queues: Sequence[str]) -> Found:
        """Parked records are in two indexes: by the time when they are looked at, and by their own."""
        indexes = [f"{kind}:{queue}" for queue in queues for kind in ("due:p", "due:j", "due:h", "aside")]
        request = {"read": "page", "indexes": indexes, "state": "p", "kinds": (), "is_upward": True}
        rows: dict[str, Row] = {}
        after: dict[str, Any] = {}
        while len(rows) < query.limit:
            _, (count, at, key, words) = self._session.find(app, request | {"count": PAGE} | after)
            for one in _past(words):
                if matches(one.record, query):
                    rows.setdefault(one.record.fire.key, row_of(*one))
            if count < PAGE:
                break
            after = {"after": [float(at), key.decode()]}
        found = sorted(rows.values(), key=lambda row: (row.run_at, row.fire.key))
        return Found(found[: query.limit])

    def newest(self, app: str, jobs: Sequence[str], each: int) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {job: [] for job in jobs}
        some = max(1, NEWEST_MAX // each)
        for start in range(0, len(jobs), some):
            names = [encoded(job) for job in jobs[start : start + some]]
            _, words = self._session.find(app, {"read": "newest", "jobs": names, "each": each})
            for one in _past(words):
                found[one.record.fire.job].append(row_of(*one))
        return found

    def _members(self, app: str, name: str) -> list[str]:
        return sorted(one.decode() for one in self._session.call(app, "SMEMBERS", name))

    # Counting.

    def count(self, app: str, queues: Sequence[str]) -> dict[str, Size]:
        _, found = self._session.find(app, {"read": "sizes", "queues": [encoded(one) for one in queues]})
        return {decoded(queue.decode()): Size(*numbers) for queue, *numbers in found if any(numbers)}

    def tally(self, app: str, starts: range) -> list[Tally]:
        now, _ = self._session.find(app, {"read": "keys", "keys": []})
        minutes: list[tuple[int, list[bytes]]] = []
        for first, last in slices(starts, now):
            _, found = self._session.find(app, {"read": "tally", "first": first, "last": last})
            minutes += zip(range(first, last + 1), found, strict=True)
        return summed(minutes, starts.step)

    # Pruning.

    def prune(self, app: str, older_than_s: float, keep: int) -> int:
        """Prunes the surplus first: its count includes the old fires."""
        gone, cursor = 0, b""
        while cursor != b"0":
            request = {"read": "surplus", "cursor": (cursor or b"0").decode(), "keep": keep}
            now, (cursor, jobs) = self._session.find(app, request)
            for job, surplus in zip(jobs[::2], jobs[1::2], strict=True):
                oldest = {"read": "oldest", "job": job.decode()}
                gone += self._prune(app, oldest, surplus)
        now, _ = self._session.find(app, {"read": "keys", "keys": []})
        gone += self._prune(app, {"read": "old", "before": now - older_than_s}, None)
        self._tidy(app, older_than_s)
        return gone

    def _prune(self, app: str, request: dict[str, Any], surplus: int | None) -> int:
        """Prune what the request reads; of a surplus only what is not kept for another reason."""
        gone = passed = 0
        while True:
            count = PRUNE_MAX if surplus is None else min(PRUNE_MAX, surplus - gone - passed)
            if count <= 0:
                return gone
            now, words = self._session.find(app, request | {"passed": passed, "count": count})
            records = [one.record for one in _past(words)]
            watermarks = self._watermarks(app, records, now)
            some = [one for one in records if surplus is None or one.keep_until <= now]
            some = [one for one in some if not _is_to_come(one, watermarks)]
            if not some or self._free(app, some, [_deletion(some)]):
                gone, passed = gone + len(some), passed + len(records) - len(some)
                if len(records) < count:
                    return gone

    def _watermarks(self, app: str, records: Sequence[Kept], now: float) -> dict[str, float]:
        """For each job of a schedule the instant until which its plan can record nothing again."""
        jobs = sorted({one.fire.job for one in records if one.fire.origin == "schedule"})
        if not jobs:
            return {}
        found = self._session.call(app, "HMGET", "jobs", *map(encoded, jobs))
        return {
            job: min(now, float(text.split(b" ")[1])) if text else now
            for job, text in zip(jobs, found, strict=True)
        }

    def _tidy(self, app: str, older_than_s: float) -> None:
        asked: dict[str, Any] = {
            "jobs_s": max(older_than_s, REMEMBER_JOBS_S),
            "asks_s": REMEMBER_ASKS_S,
        }
        for name in ("", *TIDIED):
            cursor = "0"
            while True:
                _, (said,) = self._session.run(app, "tidy", asked | {"hash": name, "cursor": cursor})
                cursor = said.decode()
                if cursor == "0":
                    break


def _past(words: Sequence[Any]) -> list[Past]:
    pairs = [word for place in range(0, len(words), 4) for word in words[place : place + 2]]
    histories = zip(words[2::4], words[3::4], strict=True)
    return [Past(one, attempts_of(*said)) for one, said in zip(records_of(pairs), histories, strict=True)]


def _is_to_come(one: Kept, watermarks: dict[str, float]) -> bool:
    """Whether it is an instant that a plan could record again."""
    return one.fire.origin == "schedule" and one.fire.due_at.timestamp() > watermarks[one.fire.job]


def _deletion(records: Sequence[Kept]) -> Group:
    reached = [one.fire for one in records if one.fire.origin == "schedule"]
    return Group(
        drops=[Drop(one.fire.key, one.version) for one in records],
        progress=[Progress(fire.job, reached=fire.due_at.timestamp()) for fire in reached],
    )
