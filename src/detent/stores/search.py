"""Searches over records in Python, for stores that have no query language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import nlargest
from typing import Protocol, TypeVar

from detent.model import DEAD, Fire, Found, Outcome, Place, Query, Row, Size, State
from detent.stores.base import LOOK_MAX, app_of


class Searched(Protocol):
    """What a search looks at."""

    fire: Fire
    state: State
    outcome: Outcome | None
    run_at: float


S = TypeVar("S", bound=Searched)


def matches(entry: Searched | Row, query: Query) -> bool:
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


def newest(entries: Iterable[S], jobs: Iterable[str], each: int, now: float) -> dict[str, list[S]]:
    """The newest entries of each of these jobs that are due, the latest due first."""
    found: dict[str, list[S]] = {job: [] for job in jobs}
    due = [one for one in entries if one.fire.job in found and one.fire.due_at.timestamp() <= now]
    for one in sorted(due, key=lambda e: place_of(e.fire), reverse=True):
        if len(found[one.fire.job]) < each:
            found[one.fire.job].append(one)
    return found


def sizes(entries: Iterable[S], app: str, queues: Sequence[str], now: float) -> dict[str, Size]:
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


def _word_of(one: Searched, now: float) -> str:
    """The field of `Size` that counts it; "": none."""
    match one.state:
        case "over":
            return "dead" if one.outcome and one.outcome.kind in DEAD else ""
        case "claimed":
            return "running"
        case _:
            return "pending" if one.run_at <= now else "delayed"


def page(rows: list[Row], limit: int, stopped_at: Place | None) -> Found:
    """The result of a search.  With `limit` rows, the next search continues after the last of them."""
    if 0 < limit <= len(rows):
        return Found(rows, place_of(rows[-1].fire))
    return Found(rows, stopped_at)


def place_of(fire: Fire) -> Place:
    return fire.due_at, fire.key
