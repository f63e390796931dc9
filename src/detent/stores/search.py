"""Searches over records in Python, for stores that have no query language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest, nsmallest
from typing import TypeVar

from detent.model import DEAD, Place, Query, Row, Size
from detent.stores.base import LOOK_MAX, app_of
from detent.stores.engine.driver import LaneMembers
from detent.stores.engine.record import Record
from detent.stores.paging import place_of

S = TypeVar("S", Record, Row)
R = TypeVar("R", bound=Record)


def matches(entry: Record | Row, query: Query) -> bool:
    fire = entry.fire
    return (
        query.app in ("", app_of(fire.job))
        and query.job in ("", fire.job)
        and query.key in ("", fire.key)
        and (not query.keys or fire.key in query.keys)
        and (not query.jobs or fire.job in query.jobs)
        and query.state in ("", entry.state)
        and (not query.origins or fire.origin in query.origins)
        and (not query.queues or fire.queue in query.queues)
        and (not query.kinds or (entry.outcome is not None and entry.outcome.kind in query.kinds))
        and (query.since is None or fire.due_at >= query.since)
        and (query.until is None or fire.due_at <= query.until)
        and (not query.upcoming or entry.state == "pending")
    )


def select(entries: Iterable[S], query: Query) -> tuple[list[S], Place | None]:
    """The entries that match, in order, and where to continue."""
    if query.upcoming:
        matching = sorted((e for e in entries if matches(e, query)), key=lambda e: (e.run_at, e.fire.key))
        return matching[: query.limit], None
    some = [e for e in entries if query.before is None or place_of(e.fire) < query.before]
    if query.state in ("pending", "claimed"):
        some = [e for e in some if e.state == query.state]
    stopped_at = None
    if len(some) > LOOK_MAX and not query.key and not query.keys:
        some = nlargest(LOOK_MAX, some, key=lambda e: place_of(e.fire))
        stopped_at = place_of(some[-1].fire)
    those = sorted((e for e in some if matches(e, query)), key=lambda e: place_of(e.fire), reverse=True)
    those = those[: query.limit]
    if 0 < query.limit <= len(those):
        return those, place_of(those[-1].fire)
    return those, stopped_at


def newest(entries: Iterable[Record], jobs: Iterable[str], each: int, now: float) -> dict[str, list[Record]]:
    """The newest entries of each of these jobs that are due, the latest due first."""
    found: dict[str, list[Record]] = {job: [] for job in jobs}
    due = [one for one in entries if one.fire.job in found and one.fire.due_at.timestamp() <= now]
    for one in sorted(due, key=lambda e: place_of(e.fire), reverse=True):
        if len(found[one.fire.job]) < each:
            found[one.fire.job].append(one)
    return found


def newest_due_of(records: Iterable[Record], now: float) -> dict[str, float]:
    """For each job, when the newest of these records of its schedule that is due was due."""
    scheduled = [one.fire for one in records if one.fire.origin == "schedule"]
    found: dict[str, float] = {}
    for job, due in [(fire.job, fire.due_at.timestamp()) for fire in scheduled]:
        found |= {job: due} if found.get(job, due) <= due <= now else {}
    return found


def members_of_lanes(
    read: LaneMembers, pending: Sequence[Record], claimed: Sequence[Record], now: float
) -> dict[str, list[Record]]:
    """The reply to this read.  The records are in order of their ids."""
    lanes: dict[str, list[Record]] = {lane: [] for lane in read.lanes}
    for one in pending:
        lanes.get(one.fire.lane, []).append(one)
    for lane, some in lanes.items():
        due, parked = [one for one in some if one.run_at <= now], [one for one in some if one.is_parked]
        lanes[lane] = [one for one in some if one.waits][: read.waiting]
        lanes[lane] += nlargest(read.rivals, due, key=lambda one: place_of(one.fire))
        lanes[lane] += first_of_each_queue(parked, read.parked)
    for one in claimed:
        lanes.get(one.fire.lane, []).append(one)
    return lanes


def first_of_each_queue(records: Iterable[Record], most: int) -> list[Record]:
    queues: dict[str, list[Record]] = {}
    for one in records if most else ():
        queues.setdefault(one.fire.queue, []).append(one)
    groups = [nsmallest(most, some, key=lambda one: (one.run_at, one.fire.key)) for some in queues.values()]
    return [one for some in groups for one in some]


def sizes(entries: Iterable[Record], app: str, queues: Sequence[str], now: float) -> dict[str, Size]:
    """The numbers of messages of these queues, or of all queues of the app."""
    counts: Counter[tuple[str, str]] = Counter()
    for one in entries:
        fire = one.fire
        if fire.origin == "push" and app_of(fire.job) == app and fire.queue in (queues or (fire.queue,)):
            counts[fire.queue, _word_of(one, now)] += 1
    found: dict[str, Size] = {}
    for (queue, word), number in counts.items():
        if word:
            found[queue] = found.get(queue, Size())._replace(**{word: number})
    return found


def _word_of(one: Record, now: float) -> str:
    """The field of `Size` that counts it; "": none."""
    match one.state:
        case "over":
            return "dead" if one.outcome and one.outcome.kind in DEAD else ""
        case "claimed":
            return "running"
        case _:
            return "pending" if one.run_at <= now else "delayed"


def prunable(
    over: Iterable[R], watermarks: Mapping[str, float], now: float, limits: tuple[float, int]
) -> list[R]:
    """The finished entries that are older than the first limit, or not among the newest of their job, as many
    as the second limit says.  Never those that a plan could record again."""
    (older_than_s, keep), gone, kept = limits, [], Counter[str]()
    for one in sorted(over, key=lambda one: place_of(one.fire), reverse=True):
        job = one.fire.job
        kept[job] += 1
        is_surplus = kept[job] > keep and one.keep_until <= now
        is_to_come = one.fire.due_at.timestamp() > min(watermarks.get(job, now), now)
        if one.fire.origin == "schedule" and is_to_come:
            continue
        if one.over_at < now - older_than_s or is_surplus:
            gone.append(one)
    return gone
