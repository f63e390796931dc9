"""The queues of an app: sizes, age, rates, breakers and the nodes that serve them; and dead letters."""

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from detent.dashboard.fires import arguments_of
from detent.dashboard.picture import Picture
from detent.dashboard.source import Source
from detent.model import Note, Rate, Row, Size
from detent.rules.breakers import circuit_of
from detent.rules.rates import priority_of, rate_of, without_priority
from detent.stores.base import BREAKER, RATE, Store
from detent.views.formatting import iso
from detent.views.json_records import outcome_record, rate_record

MINUTE = timedelta(minutes=1)
QUEUES_MAX = 200


def read_queues(store: Store, picture: Picture) -> dict[str, Any]:
    app, now = picture.app, picture.now
    sizes: dict[str, Size] = {}
    for queue, size in picture.sizes.items():
        name = without_priority(queue)
        sizes[name] = Size(*map(sum, zip(sizes.get(name, Size()), size, strict=True)))
    rates = {note.name.removeprefix(RATE): rate_of(note.text) for note in store.notes(app, RATE)}
    served = Counter(queue for node in picture.nodes if not node.is_dead for queue in node.heartbeat.queues)
    ended = _ended(store, picture, now)
    names = sorted({*sizes, *rates, *(queue for queue in served if "/" not in queue)})[:QUEUES_MAX]
    found = []
    for name in names:
        growth, out = picture.growth_per_min(name), ended[name]
        found.append({
            "app": app,
            "queue": name,
            **sizes.get(name, Size())._asdict(),
            "served": served[name],
            "oldest_s": _oldest_s(picture, name, now),
            "in_per_min": None if growth is None else max(0, round(out + growth)),
            "out_per_min": out,
            "rate": _rate(store, app, name, rates[name]) if name in rates else None,
        })  # fmt: skip
    return {"queues": found, "breakers": [*map(_breaker, store.notes(app, BREAKER))]}


def _breaker(note: Note) -> dict[str, Any]:
    circuit = circuit_of(note.text)
    state = "open" if circuit.opened else "closed"
    return {"name": note.name.removeprefix(BREAKER), "state": state, "errors": circuit.errors}


def _ended(store: Store, picture: Picture, now: datetime) -> Counter[str]:
    """The messages that ended in the last complete minute, by queue."""
    until = now.replace(second=0, microsecond=0)
    counts: Counter[str] = Counter()
    for one in store.tally(picture.app, until - MINUTE, until):
        counts[without_priority(one.queue)] += one.fires
    return counts


def _oldest_s(picture: Picture, name: str, now: datetime) -> float | None:
    rows = [row for queue, row in picture.oldest.items() if without_priority(queue) == name]
    ages = [(now - (row.run_at or row.fire.due_at)).total_seconds() for row in rows]
    return round(max(0.0, max(ages)), 1) if ages else None


def _rate(store: Store, app: str, name: str, rate: Rate) -> dict[str, Any]:
    used = None if rate.by_key else store.charge(app, name, rate, 0).used
    return rate_record(rate) | {"used": used}


def dead_entry(row: Row, source: Source) -> dict[str, Any]:
    return {
        "fire": row.fire.key,
        "name": row.fire.job,
        "task": row.fire.job.partition(".")[2],
        "arguments": arguments_of(row.fire, source),
        **outcome_record(row.outcome),
        "attempts": row.attempt,
        "priority": priority_of(row.fire.queue),
        "over_at": iso(row.over_at),
    }
