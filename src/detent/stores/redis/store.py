"""The Redis store: a Redis or Valkey server, 6.2 or newer, that nodes on many hosts share.

Every call is one Lua script for each app that it touches, whatever the size of its batch.  The server's clock
is the store's clock; `header.lua` describes how claims survive a step of it, and when a new epoch begins.
The keys of an app begin with `<key_prefix>{detent:<app>}:`, and so are in one slot of a cluster.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from detent import clock
from detent.clock import instant
from detent.errors import StoreUnavailable, UsageError
from detent.model import (
    Ask,
    Cause,
    Claim,
    Fire,
    Found,
    Grants,
    Note,
    Outcome,
    Plan,
    Query,
    Rate,
    Report,
    Row,
    Size,
    Usage,
    Verdict,
    Watermarks,
)
from detent.stores.base import LOOK_MAX, app_of
from detent.stores.encoding import outcome_of, stop_text
from detent.stores.record import matches, page, place_of
from detent.stores.redis.health import refusal
from detent.stores.redis.script import script_of
from detent.stores.redis.values import (
    ask_values,
    claims_of,
    note_of,
    of_json,
    plan_values,
    put_values,
    query_values,
    report_values,
    row_of,
    to_json,
    verdict_of,
    watermarks_of,
)

if TYPE_CHECKING:
    from detent.stores.redis.lean_link import LeanLink
    from detent.stores.redis.link import Link

BLOCK_S = 2.0  # one blocking read; shorter than the client's timeout
READS = ("find",)

Asked = TypeVar("Asked")
Said = TypeVar("Said")


class Seen(NamedTuple):
    """The newest reply for an app, as the server wrote it, and when it arrived."""

    epoch: bytes
    mono: bytes
    longest: bytes
    at: float


class Answer(NamedTuple):
    now: float
    epoch: str
    value: Any
    texts: list[Any]


class RedisStore:
    def __init__(
        self,
        url: str,
        key_prefix: str = "",
        wait_replicas: int = 0,
        wall: Callable[[], float] | None = None,
        elapsed: Callable[[], float] = clock.boottime,
        *,
        link: LeanLink | None = None,
    ) -> None:
        """`wall` replaces the server's clock in tests; `link` replaces redis-py."""
        if "{}" in key_prefix:
            raise UsageError('bad key_prefix: "{}" would scatter the keys over a cluster; leave it out')
        self._link, self._prefix = link or _usual_link(url, wait_replicas), key_prefix
        self._waits, self._wall, self._elapsed = wait_replicas > 0, wall, elapsed
        self._seen: dict[str, Seen] = {}
        self._met: set[tuple[str, str]] = set()  # apps and epochs whose server was checked
        self._heard: dict[str, bytes] = {}  # app -> its newest wake-up
        self._closing = threading.Event()

    # Planning.

    def set_jobs(self, app: str, seen: int, revisions: Mapping[str, str]) -> Watermarks:
        return self._read_watermarks(app, "set_jobs", {"seen": seen, "revisions": dict(revisions)})

    def look(self, app: str) -> Watermarks:
        return self._read_watermarks(app, "look", {})

    def advance(self, app: str, plans: Sequence[Plan]) -> Watermarks:
        texts: list[bytes] = []
        return self._read_watermarks(app, "advance", [plan_values(plan, texts) for plan in plans], texts)

    def put(self, fires: Sequence[Fire], delay_s: float = 0) -> list[bool]:
        def put(app: str, some: list[Fire]) -> Sequence[bool]:
            rules, words = put_values(some)
            answer = self._call(app, "put", {"delay_s": delay_s, "rules": rules}, words)
            return [is_new == 1 for is_new in answer.texts]

        jobs = [fire.job for fire in fires]
        starts = {job: f"{app_of(job)}." for job in set(jobs)}
        for fire in fires:
            if not fire.key.startswith(starts[fire.job]):
                raise UsageError(f"the key {fire.key} must begin with its app, as its job {fire.job} does")
        return _for_each_app(put, fires, jobs)

    # Running.

    def claim(self, ask: Ask) -> Grants:
        if ask.dead:  # an instance may have claims of other apps
            for app in self._apps() - {ask.app}:
                self._call(app, "declare_dead", list(ask.dead))
        return self._grants(ask, self._call(ask.app, "claim", ask_values(ask)))

    def renew(self, claims: Sequence[Claim]) -> list[Outcome | None]:
        def renew(app: str, some: list[Claim]) -> Sequence[Outcome | None]:
            values = [{"key": one.fire.key, "fence": one.fence, "ttl_s": one.ttl_s} for one in some]
            return [outcome_of(text or None) for text in self._call(app, "renew", values).value]

        return _for_each_app(renew, claims, [claim.fire.job for claim in claims])

    def finish(self, reports: Sequence[Report]) -> list[Verdict | None]:
        def finish(app: str, some: list[Report]) -> Sequence[Verdict | None]:
            said = self._call(app, "finish", {"count": len(some)}, report_values(some)).texts
            return [verdict_of(one, report.verdict) for one, report in zip(said, some, strict=True)]

        return _for_each_app(finish, reports, [report.claim.fire.job for report in reports])

    def finish_and_claim(self, reports: Sequence[Report], ask: Ask) -> tuple[list[Verdict | None], Grants]:
        if ask.dead or any(app_of(report.claim.fire.job) != ask.app for report in reports):
            return self.finish(reports), self.claim(ask)
        asked = {"count": len(reports), "ask": ask_values(ask)}
        answer = self._call(ask.app, "finish_and_claim", asked, report_values(reports))
        said, words = answer.texts[: len(reports)], answer.texts[len(reports) :]
        verdicts = [verdict_of(one, report.verdict) for one, report in zip(said, reports, strict=True)]
        return verdicts, self._grants(ask, answer._replace(texts=words))

    def cancel(self, key: str, reason: str = "", cause: Cause = "stopped") -> bool:
        said = stop_text(Outcome("cancelled", reason, cause))
        return bool(self._call(app_of(key), "cancel", {"key": key, "reason": said}).value)

    # Queues.

    def charge(self, app: str, name: str, rate: Rate, count: int = 1) -> Usage:
        found = self._call(app, "charge", {"name": name, "rate": rate._asdict(), "count": count}).value
        return Usage(found["used"], float(found["free_in_s"]))

    def reset(self, app: str, name: str) -> None:
        self._call(app, "reset", {"name": name})

    def forget(self, keys: Sequence[str]) -> int:
        by_app: dict[str, list[str]] = {}
        for key in dict.fromkeys(keys):
            by_app.setdefault(app_of(key), []).append(key)
        return sum(int(self._call(app, "forget", {"keys": some}).value) for app, some in by_app.items())

    def count(self, app: str, queues: Sequence[str] = ()) -> dict[str, Size]:
        found = self._call(app, "count", {"queues": list(queues)}).value or {}
        return {queue: Size(*numbers) for queue, numbers in found.items() if any(numbers)}

    # Records.

    def find(self, query: Query) -> Found:
        found = [self._find(app, query) for app in self._searched(query)]
        if query.upcoming:
            rows = merge(*found, key=lambda row: (row.run_at, row.fire.key))
            return Found(islice(rows, query.limit))
        # Below the place where the search of one app stopped, the result would be incomplete.
        stopped_at = max((one.before for one in found if one.before), default=None)
        rows = merge(*found, key=lambda row: place_of(row.fire), reverse=True)
        known = (row for row in rows if stopped_at is None or place_of(row.fire) >= stopped_at)
        return page([*islice(known, query.limit)], query.limit, stopped_at)

    def apps(self) -> list[str]:
        return sorted(self._apps())

    def prune(self, app: str, older_than_s: float, keep: int) -> int:
        """Prunes the surplus first: its count includes the old fires."""
        surplus = self._prune(app, "prune_surplus", {"keep": keep, "cursor": "0", "job": "", "passed": 0})
        old = self._prune(app, "prune_old", {"older_than_s": older_than_s, "passed": 0})
        for what in ("reached", "succeeded"):
            self._prune(app, "prune_jobs", {"of": what, "older_than_s": older_than_s, "cursor": "0"})
        self._call(app, "tidy_up", {})
        return surplus + old

    def note(self, app: str, name: str, text: str, ttl_s: float = 0) -> None:
        self._call(app, "note", {"name": name, "text": text, "ttl_s": ttl_s})

    def notes(self, app: str, prefix: str = "") -> list[Note]:
        found = self._call(app, "notes", {"prefix": prefix}).value or ()
        return sorted(note_of(one) for one in found)

    def wait(self, app: str, seconds: float) -> bool:
        closing, until, bell = self._closing, clock.monotonic() + seconds, self._key(app, "bell")
        since = self._heard.setdefault(app, b"") or self._newest_wakeup(bell)
        self._heard[app] = since
        while (left := until - clock.monotonic()) > 0 and not closing.is_set():
            block = max(1, round(min(left, BLOCK_S) * 1000))
            try:
                woken = self._link.call(bell, "XREAD", "BLOCK", block, "STREAMS", bell, since)
            except StoreUnavailable:
                if closing.is_set():
                    return False
                raise
            if woken:
                self._heard[app] = _newest(woken)
                return True
        return False

    def close(self) -> None:
        closing, self._closing = self._closing, threading.Event()
        closing.set()
        self._link.close()

    # Calls.

    def _grants(self, ask: Ask, answer: Answer) -> Grants:
        next_in_s = math.inf if answer.value is None else float(answer.value)
        claims = claims_of(answer.texts, answer.now, ask.node)
        return Grants(claims, instant(answer.now), next_in_s, answer.epoch)

    def _read_watermarks(self, app: str, verb: str, asked: Any, texts: Sequence[bytes] = ()) -> Watermarks:
        answer = self._call(app, verb, asked, texts)
        by_job = watermarks_of(answer.value["watermarks"])
        until, generation = answer.value.get("quarantined_until"), answer.value["generation"]
        return Watermarks(
            instant(answer.now), answer.epoch, generation, by_job, instant(float(until)) if until else None
        )

    def _call(self, app: str, verb: str, asked: Any, words: Sequence[bytes] = ()) -> Answer:
        return self._answer(app, self._run(app, verb, asked, words))

    def _answer(self, app: str, said: list[Any]) -> Answer:
        now, mono, name, longest, answer, *rest = said
        seen, epoch = Seen(name, mono, longest, self._elapsed()), name.decode()
        if (app, epoch) not in self._met:
            self._meet(app, epoch)
        self._seen[app] = seen
        return Answer(float(now), epoch, of_json(answer), rest)

    def _run(self, app: str, verb: str, asked: Any, words: Sequence[bytes]) -> list[Any]:
        arguments = (verb, to_json(asked), *self._known(app), *words)
        if not self._met:
            self._check(app)
        return self._link.run(script_of(verb), self._key(app, "world"), arguments, verb not in READS)

    def _known(self, app: str) -> tuple[bytes | str, ...]:
        """The server's epoch and clock at the last reply, and how long ago that was: it may lose them."""
        waits, wall = "1" if self._waits else "", repr(self._wall()) if self._wall else ""
        seen = self._seen.get(app)
        if seen is None:
            return waits, wall, "", "", "", ""
        return waits, wall, seen.epoch, seen.mono, seen.longest, repr(self._elapsed() - seen.at)

    def _meet(self, app: str, epoch: str) -> None:
        """Check the server and register the app: in a new epoch it may be another one, or have lost data."""
        self._check(app)
        self._link.call(self._registry, "SADD", self._registry, app)
        self._met.add((app, epoch))

    def _check(self, app: str) -> None:
        said = self._link.call(self._key(app, "world"), "INFO")
        if why := refusal(said):
            raise self._link.refused(why)

    def _apps(self) -> set[str]:
        return {app.decode() for app in self._link.call(self._registry, "SMEMBERS", self._registry)}

    def _searched(self, query: Query) -> set[str]:
        """The apps that the query can match."""
        named = [{query.app}, {app_of(query.job)}, {app_of(query.key)}]
        named += [set(map(app_of, query.jobs)), set(map(app_of, query.keys))]
        meant = [apps for apps in named if apps - {""}]
        return set.intersection(*meant) if meant else self._apps()

    def _find(self, app: str, query: Query) -> Found:
        """Search in several short calls, because a server runs one script at a time."""
        asked, looked = query_values(query), 0
        rows: list[Row] = []
        while True:
            said, *texts = self._run(app, "find", {**asked, "limit": query.limit - len(rows)}, ())
            found = of_json(said)
            if query.key:
                return Found(_whole_rows(found["rows"], texts, query))
            rows += [row_of(one, text, []) for one, text in zip(found["rows"] or (), texts, strict=True)]
            before, looked = found.get("before"), looked + found.get("looked", 0)
            if before is None:
                return Found(rows)
            if len(rows) >= query.limit or (looked >= LOOK_MAX and not query.upcoming):
                return Found(rows, (instant(float(before["due"])), before["key"]))
            asked["before"] = {"due": float(before["due"]), "key": before["key"]}

    def _prune(self, app: str, verb: str, asked: dict[str, Any]) -> int:
        """Prune in bounded calls; each returns where the next one continues."""
        gone, is_last = 0, False
        while not is_last:
            found = self._call(app, verb, asked).value
            gone, is_last = gone + found["gone"], found["is_last"]
            asked |= found
        return gone

    def _newest_wakeup(self, bell: str) -> bytes:
        newest = self._link.call(bell, "XREVRANGE", bell, "+", "-", "COUNT", 1)
        return bytes(newest[0][0]) if newest else b"0-0"

    def _key(self, app: str, name: str) -> str:
        return f"{self._prefix}{{detent:{app}}}:{name}"

    @property
    def _registry(self) -> str:
        return f"{self._prefix}detent:apps"


def _usual_link(url: str, wait_replicas: int) -> Link:
    from detent.stores.redis.link import Link

    return Link(url, wait_replicas)


def _for_each_app(
    call: Callable[[str, list[Asked]], Sequence[Said]], asked: Sequence[Asked], jobs: Sequence[str]
) -> list[Said]:
    """Make one call for each app; return the results in the order of `asked`."""
    app_by_job = {job: app_of(job) for job in dict.fromkeys(jobs)}
    apps = {*app_by_job.values()}
    if len(apps) == 1:
        return [*call(apps.pop(), [*asked])]
    order = [app_by_job[job] for job in jobs]
    said = {
        app: iter(call(app, [one for one, of in zip(asked, order, strict=True) if of == app]))
        for app in dict.fromkeys(order)
    }
    return [next(said[app]) for app in order]


def _whole_rows(found: Any, texts: list[bytes], query: Query) -> list[Row]:
    """The row of the query's key, with its output, if it matches the rest of the query."""
    if not found or query.limit <= 0:
        return []
    row = row_of(found[0], texts[0], texts[1:])
    is_before = query.before is None or place_of(row.fire) < query.before
    return [row] if is_before and matches(row, query) else []


def _newest(woken: Any) -> bytes:
    streams = woken.items() if isinstance(woken, dict) else woken
    for _, entries in streams:
        while isinstance(entries[0][0], list | tuple):  # the form that redis-py uses for RESP 3
            entries = entries[0]
        return bytes(entries[-1][0])
    return b"0-0"
