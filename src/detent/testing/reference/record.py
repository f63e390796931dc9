"""A fire and its history, as the reference holds it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from detent.clock import instant
from detent.model import (
    Attempt,
    Claim,
    Fire,
    Found,
    Outcome,
    Query,
    Report,
    Row,
    State,
    Verdict,
    Watermark,
)
from detent.rules.lanes import OpenFire
from detent.stores.search import select


class Entry:
    __slots__ = (
        "ask", "attempt", "attempts", "disposition", "expires", "fence", "fire", "node", "outcome", "over_at",
        "ran", "run_at", "state", "stop", "ttl_s", "verdict", "waits",
    )  # fmt: skip

    def __init__(self, fire: Fire, run_at: float) -> None:
        self.fire, self.run_at = fire, run_at
        self.state: State = "pending"
        self.attempt, self.fence, self.node, self.ask = 0, 0, "", 0
        self.ttl_s = self.expires = self.over_at = 0.0
        self.waits = False
        self.disposition: Outcome | None = None  # it must not run, only be settled with this outcome
        self.stop: Outcome | None = None  # the node must stop with this outcome
        self.outcome: Outcome | None = None  # of the newest attempt
        self.verdict: Verdict | None = None  # the result of the last `finish`
        self.ran: tuple[str, int, float] = "", 0, 0.0  # node, fence and instant of the newest attempt
        self.attempts: list[Attempt] = []

    @property
    def ran_at(self) -> float:
        return self.ran[2]


def open_fire(entry: Entry, now: float, monotonic: float) -> OpenFire:
    return OpenFire(
        fire=entry.fire,
        state=entry.state,
        attempt=entry.attempt,
        due=entry.state == "pending" and entry.run_at <= now,
        live=entry.state == "claimed" and entry.expires > monotonic,
        waits=entry.waits,
        node=entry.node,
        disposition=entry.disposition,
        stop=entry.stop,
        outcome=entry.outcome,
    )


def claim_of(entry: Entry, expires_at: float, success: float | None) -> Claim:
    """The entry's claim.  `success` is when the job last succeeded."""
    return Claim(
        fire=entry.fire,
        node=entry.node,
        fence=entry.fence,
        attempt=entry.attempt,
        ttl_s=entry.ttl_s,
        expires_at=instant(expires_at),
        disposition=entry.disposition,
        previous_success_at=None if success is None else instant(success),
    )


def attempt_of(entry: Entry, report: Report, now: float) -> Attempt:
    """The attempt that this report ends: the claim's own, or the lost one before it."""
    node, fence, started = entry.ran
    return Attempt(
        number=entry.attempt,
        node=node,
        fence=fence,
        started_at=instant(started),
        ended_at=instant(now),
        outcome=report.verdict.outcome,
        status=report.status,
        took_s=report.took_s,
        tail=report.tail,
        result=report.result,
    )


def sort_key(entry: Entry, places: Mapping[str, int]) -> tuple[int, float, str]:
    """Sorts expired claims first, then queue by queue."""
    place = -1 if entry.state == "claimed" else places[entry.fire.queue]
    return place, entry.run_at, entry.fire.key


def is_nominal(entry: Entry) -> bool:
    """Whether it is due at an instant of its schedule, not after a delay."""
    return entry.fire.origin == "schedule" and entry.run_at == entry.fire.due_at.timestamp()


def found(entries: Iterable[Entry], query: Query) -> Found:
    some, before = select(entries, query)
    return Found((row_of(entry, bool(query.key)) for entry in some), before)


def row_of(entry: Entry, whole: bool) -> Row:
    ran_at = entry.ran[2]
    return Row(
        fire=entry.fire,
        state=entry.state,
        attempt=entry.attempt,
        node=entry.node,
        fence=entry.fence,
        run_at=instant(entry.run_at),
        claimed_at=instant(ran_at) if ran_at else None,
        over_at=instant(entry.over_at) if entry.over_at else None,
        outcome=entry.outcome,
        stop=entry.stop,
        attempts=tuple(one if whole else one._replace(tail=b"") for one in entry.attempts),
    )


def prunable(
    entries: Sequence[Entry], by_job: Mapping[str, Watermark], now: float, limits: tuple[float, int]
) -> list[Entry]:
    """The finished entries that are older than the first limit, or not among the newest of their job, as
    many as the second limit says."""
    (older_than_s, keep), gone, kept = limits, [], dict[str, int]()
    over = [entry for entry in entries if entry.state == "over"]
    for entry in sorted(over, key=lambda e: (e.fire.due_at, e.fire.key), reverse=True):
        kept[entry.fire.job] = kept.get(entry.fire.job, 0) + 1
        watermark = by_job.get(entry.fire.job, Watermark(instant(now), ""))
        if entry.fire.origin == "schedule" and entry.fire.due_at > min(watermark.at, instant(now)):
            continue
        is_surplus = kept[entry.fire.job] > keep and not _is_wanted(entry, now)
        if entry.over_at < now - older_than_s or is_surplus:
            gone.append(entry)
    return gone


def _is_wanted(entry: Entry, now: float) -> bool:
    """Whether it is a dead letter, or its key is still unique, or its result is still kept."""
    fire, policy, kind = entry.fire, entry.fire.policy, entry.outcome.kind if entry.outcome else ""
    is_unique = fire.due_at.timestamp() + policy.unique_s > now
    has_result = not policy.drop_result and entry.over_at + policy.result_s > now
    return fire.origin == "push" and (kind != "succeeded" or is_unique or has_result)
