"""The store of a fleet: a Redis or Valkey server, 6.2 or newer, that nodes on many hosts share.

Every verb is one script, carried out whole, whatever the size of its batch; the server's clock is the
clock.  The keys of an app lie in one slot of a cluster, below `<key_prefix>{detent:<app>}:`.  The rules
are those of `stores.base`, the answers those of `stores.memory`; `redis_world.lua` tells how claims
survive a step of the server's clock, and what a new era is.

A call that touches several apps is one script for each of them.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from detent import clock
from detent.clock import instant
from detent.errors import StoreUnavailable, UsageError
from detent.model import Ask, Chart, Claim, Fire, Grants, Note, Outcome, Plan, Query, Report, Row, Verdict
from detent.stores.base import app_of
from detent.stores.redis_health import refusal
from detent.stores.redis_values import (
    add_text,
    claim_of,
    fire_text,
    marks_of,
    note_of,
    of_json,
    report_values,
    row_of,
    to_json,
    verdict_of,
)
from detent.stores.texts import outcome_of
from detent.values import NamedTuple

if TYPE_CHECKING:
    from detent.stores.redis_brief import BriefLink
    from detent.stores.redis_link import Link

PARTS = {  # a script holds only what its verbs need: the server reads all of it at each call
    ("claim", "bury"): ("lanes", "claim"),
    ("renew", "finish", "cancel"): ("settle",),
    ("adopt", "advance", "put"): ("plan",),
    ("find", "prune_surplus", "prune_old", "prune_jobs", "tidy_up", "note", "notes"): ("book",),
}
BLOCK_S = 2.0  # one blocking read; less than the client's patience
READS = ("find",)

Asked = TypeVar("Asked")
Told = TypeVar("Told")


class Seen(NamedTuple):
    """The newest answer that an app's server gave, and when it was here."""

    era: str
    mono: float
    longest: float
    at: float


class Answer(NamedTuple):
    now: float
    era: str
    value: Any
    texts: list[bytes]


class RedisStore:
    def __init__(
        self,
        url: str,
        key_prefix: str = "",
        wait_replicas: int = 0,
        wall: Callable[[], float] | None = None,
        elapsed: Callable[[], float] = clock.boottime,
        *,
        link: BriefLink | None = None,
    ) -> None:
        """`wall` stands for the server's clock, in tests; `link` for the usual way to the server."""
        if "{}" in key_prefix:
            raise UsageError('bad key_prefix: "{}" would scatter the keys over a cluster; leave it out')
        self._link, self._prefix = link or _usual_link(url, wait_replicas), key_prefix
        self._waits, self._wall, self._elapsed = wait_replicas > 0, wall, elapsed
        self._seen: dict[str, Seen] = {}
        self._met: set[tuple[str, str]] = set()  # apps and eras of servers that we may use
        self._heard: dict[str, bytes] = {}  # app -> the newest ring
        self._closing = threading.Event()

    # Planning.

    def adopt(self, app: str, seen: int, revisions: Mapping[str, str]) -> Chart:
        return self._chart(app, "adopt", {"seen": seen, "revisions": dict(revisions)})

    def advance(self, app: str, plans: Sequence[Plan]) -> Chart:
        texts: list[bytes] = []
        return self._chart(app, "advance", [_plan_values(plan, texts) for plan in plans], texts)

    def put(self, fires: Sequence[Fire], delay_s: float = 0) -> list[bool]:
        def put(app: str, some: list[Fire]) -> Sequence[bool]:
            texts = [fire_text(fire) for fire in some]
            return self._call(app, "put", {"delay_s": delay_s}, texts).value or ()

        for fire in fires:
            if app_of(fire.key) != app_of(fire.job):
                raise UsageError(f"the key {fire.key} must begin with its app, as its job {fire.job} does")
        return _for_each_app(put, fires, [fire.job for fire in fires])

    # Running.

    def claim(self, ask: Ask) -> Grants:
        if ask.dead:  # a life may have claims of other apps
            for app in self._apps() - {ask.app}:
                self._call(app, "bury", list(ask.dead))
        answer = self._call(ask.app, "claim", ask._asdict())
        found = answer.value["claims"] or ()
        claims = [claim_of(*one, ask.node) for one in zip(found, answer.texts, strict=True)]
        next_in_s = float(answer.value.get("next_in_s", math.inf))
        return Grants(tuple(claims), instant(answer.now), next_in_s, answer.era)

    def renew(self, claims: Sequence[Claim]) -> list[Outcome | None]:
        def renew(app: str, some: list[Claim]) -> Sequence[Outcome | None]:
            values = [{"key": one.fire.key, "fence": one.fence, "ttl_s": one.ttl_s} for one in some]
            return [outcome_of(text or None) for text in self._call(app, "renew", values).value]

        return _for_each_app(renew, claims, [claim.fire.job for claim in claims])

    def finish(self, reports: Sequence[Report]) -> list[Verdict | None]:
        def finish(app: str, some: list[Report]) -> Sequence[Verdict | None]:
            texts: list[bytes] = []
            values = [report_values(report, texts) for report in some]
            return [verdict_of(one) for one in self._call(app, "finish", values, texts).value]

        return _for_each_app(finish, reports, [report.claim.fire.job for report in reports])

    def cancel(self, key: str, reason: str = "") -> bool:
        return bool(self._call(app_of(key), "cancel", {"key": key, "reason": reason}).value)

    # Book-keeping.

    def find(self, query: Query) -> list[Row]:
        named = {app for app in (query.app, app_of(query.job), app_of(query.key)) if app}
        if len(named) > 1:
            return []
        found = [self._find(app, query) for app in named or self._apps()]
        latest = merge(*found, key=lambda row: (row.fire.due_at, row.fire.key), reverse=True)
        return list(islice(latest, query.limit))

    def prune(self, app: str, older_than_s: float, keep: int) -> int:
        """What is surplus goes first: whether it is counts what is old as well."""
        surplus = self._prune(app, "prune_surplus", {"keep": keep, "cursor": "0"})
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
        since = self._heard.setdefault(app, b"") or self._newest_ring(bell)
        self._heard[app] = since
        while (left := until - clock.monotonic()) > 0 and not closing.is_set():
            block = max(1, round(min(left, BLOCK_S) * 1000))
            try:
                rang = self._link.call(bell, "XREAD", "BLOCK", block, "STREAMS", bell, since)
            except StoreUnavailable:
                if closing.is_set():
                    return False
                raise
            if rang:
                self._heard[app] = _newest(rang)
                return True
        return False

    def close(self) -> None:
        closing, self._closing = self._closing, threading.Event()
        closing.set()
        self._link.close()

    # One call.

    def _chart(self, app: str, verb: str, asked: Any, texts: Sequence[bytes] = ()) -> Chart:
        answer = self._call(app, verb, asked, texts)
        marks = marks_of(answer.value["marks"])
        return Chart(instant(answer.now), answer.era, answer.value["generation"], marks)

    def _call(self, app: str, verb: str, asked: Any, texts: Sequence[bytes] = ()) -> Answer:
        said, rest = self._run(app, verb, asked, texts)
        seen = Seen(said["era"], float(said["mono"]), float(said["longest"]), self._elapsed())
        if (app, seen.era) not in self._met:
            self._meet(app, seen.era)
        self._seen[app] = seen
        return Answer(float(said["now"]), seen.era, said.get("answer"), rest)

    def _run(self, app: str, verb: str, asked: Any, texts: Sequence[bytes]) -> tuple[Any, list[bytes]]:
        arguments: tuple[bytes | str, ...] = (verb, to_json(self._known(app)), to_json(asked), *texts)
        if not self._met:
            self._check(app)
        said, *rest = self._link.run(_script(verb), self._key(app, "world"), arguments, verb not in READS)
        return of_json(said), rest

    def _known(self, app: str) -> dict[str, Any]:
        """What we know that the server may not: how long ago it told which time, and what it may forget."""
        known: dict[str, Any] = {"waits": self._waits}
        if seen := self._seen.get(app):
            elapsed = self._elapsed() - seen.at
            known |= {"era": seen.era, "mono": seen.mono, "longest": seen.longest, "elapsed": elapsed}
        if self._wall:
            known["wall"] = self._wall()
        return known

    def _meet(self, app: str, era: str) -> None:
        """An era that is new to us may be another server's, or one that has forgotten its apps."""
        self._check(app)
        self._link.call(self._registry, "SADD", self._registry, app)
        self._met.add((app, era))

    def _check(self, app: str) -> None:
        said = self._link.call(self._key(app, "world"), "INFO")
        if why := refusal(said):
            raise self._link.refused(why)

    def _apps(self) -> set[str]:
        return {app.decode() for app in self._link.call(self._registry, "SMEMBERS", self._registry)}

    def _find(self, app: str, query: Query) -> list[Row]:
        asked = _query_values(query)
        rows: list[Row] = []
        while True:
            found, texts = self._run(app, "find", {**asked, "limit": query.limit - len(rows)}, ())
            if query.key:
                return _whole_rows(found["rows"], texts, query)
            rows += [row_of(one, text, []) for one, text in zip(found["rows"] or (), texts, strict=True)]
            before = found.get("before")
            if before is None or len(rows) >= query.limit:
                return rows
            asked["before"] = {"due": float(before["due"]), "key": before["key"]}

    def _prune(self, app: str, verb: str, asked: dict[str, Any]) -> int:
        """In bounded calls, each of which says where the next goes on."""
        gone, is_last = 0, False
        while not is_last:
            found = self._call(app, verb, asked).value
            gone, is_last = gone + found["gone"], found["is_last"]
            asked |= found
        return gone

    def _newest_ring(self, bell: str) -> bytes:
        newest = self._link.call(bell, "XREVRANGE", bell, "+", "-", "COUNT", 1)
        return bytes(newest[0][0]) if newest else b"0-0"

    def _key(self, app: str, name: str) -> str:
        return f"{self._prefix}{{detent:{app}}}:{name}"

    @property
    def _registry(self) -> str:
        return f"{self._prefix}detent:apps"


@cache
def _script(verb: str) -> str:
    parts = next(parts for verbs, parts in PARTS.items() if verb in verbs)
    return "\n".join(map(_text_of, ("world", "fires", *parts, "call")))


def _text_of(part: str) -> str:
    with open(f"{__file__.rpartition('/')[0]}/redis_{part}.lua", encoding="utf-8") as file:  # noqa: PTH123
        return file.read()


def _usual_link(url: str, wait_replicas: int) -> Link:
    from detent.stores.redis_link import Link

    return Link(url, wait_replicas)


def _for_each_app(
    call: Callable[[str, list[Asked]], Sequence[Told]], asked: Sequence[Asked], jobs: Sequence[str]
) -> list[Told]:
    """One call for each app; the answers in the order of what was asked."""
    apps = [app_of(job) for job in jobs]
    told = {
        app: iter(call(app, [one for one, of in zip(asked, apps, strict=True) if of == app]))
        for app in dict.fromkeys(apps)
    }
    return [next(told[app]) for app in apps]


def _plan_values(plan: Plan, texts: list[bytes]) -> dict[str, Any]:
    return {
        "job": plan.job,
        "revision": plan.revision,
        "since": plan.since.timestamp(),
        "until": plan.until.timestamp(),
        "spans": [fire.first_at.timestamp() for fire in plan.fires if fire.instants > 1 and fire.first_at],
        "fires": [
            {
                "text": add_text(texts, fire_text(fire)),
                "due": fire.due_at.timestamp(),
                "first": (fire.first_at or fire.due_at).timestamp(),
            }
            for fire in plan.fires
        ],
    }


def _query_values(query: Query) -> dict[str, Any]:
    values: dict[str, Any] = {"state": query.state, "origins": list(query.origins)}
    for name, value in (("job", query.job), ("key", query.key)):
        values |= {name: value} if value else {}
    for name, at in (("since", query.since), ("until", query.until)):
        values |= {name: at.timestamp()} if at else {}
    return values


def _whole_rows(found: Any, texts: list[bytes], query: Query) -> list[Row]:
    """The row that was asked for by its key, with its output, if the rest of the query fits it too."""
    if not found:
        return []
    row = row_of(found[0], texts[0], texts[1:])
    fire = row.fire
    fits = (
        query.job in ("", fire.job)
        and query.state in ("", row.state)
        and (not query.origins or fire.origin in query.origins)
        and (query.since is None or fire.due_at >= query.since)
        and (query.until is None or fire.due_at <= query.until)
        and query.limit > 0
    )
    return [row] if fits else []


def _newest(rang: Any) -> bytes:
    streams = rang.items() if isinstance(rang, dict) else rang
    for _, entries in streams:
        while isinstance(entries[0][0], list | tuple):  # redis-py nests them for RESP3
            entries = entries[0]
        return bytes(entries[-1][0])
    return b"0-0"
