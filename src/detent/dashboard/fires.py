"""One fire with everything around it: its steps, arguments, causes, followers and output."""

from typing import Any

from detent import clock
from detent.dashboard.asked import TEXT_MAX
from detent.dashboard.gate import Refusal
from detent.dashboard.records import can_change, fire_entry
from detent.dashboard.source import Source
from detent.dashboard.tasks import masked_arguments
from detent.messages.strict_json import decode
from detent.model import Fire, Outcome, Query, Row
from detent.rules.chains import Followers, predecessor_of
from detent.runners.lifeline import TAIL_MAX
from detent.stores.base import Store, app_of
from detent.text import quote
from detent.views.formatting import iso
from detent.views.json_records import started_at, state_text
from detent.views.output import find_output

ELSEWHERE = "the output is on the host of its node; it is stored when the attempt ends"


def read_fire(store: Store, key: str) -> Row:
    found = store.find(Query(key=key, limit=1)) if 0 < len(key) <= TEXT_MAX and "\0" not in key else []
    if not found:
        raise Refusal(404, f"no fire {quote(key[:120])} in the store: it was pruned, or the key is wrong")
    return found[0]


def fire_details(source: Source, row: Row, can_operate: bool) -> dict[str, Any]:
    fire, app = row.fire, app_of(row.fire.job)
    manifest = source.manifests.get(app)
    jobs = {job.name for job in manifest.jobs} if manifest else set()
    steps = [("due", fire.due_at), ("started", started_at(row)), ("ended", row.over_at)]
    return fire_entry(row) | {
        "attempt": row.attempt,
        "started_at": iso(row.claimed_at),
        "run_at": iso(row.run_at) if row.state == "pending" else None,
        "start_by": iso(fire.start_by),
        "lane": fire.lane or None,
        "revision": fire.revision or None,
        "stop": row.stop.reason if row.stop else None,
        "steps": [[name, iso(at)] for name, at in steps],
        "arguments": arguments_of(fire, source),
        "caused_by": _cause(fire),
        "followed_by": _followers(source, row),
        "can": can_change(row, app in source.apps, jobs) if can_operate else [],
    }


def arguments_of(fire: Fire, source: Source) -> Any:
    """The arguments of a message with its secrets masked; None if there are none, or they are hidden."""
    if fire.origin != "push" or source.hides_arguments:
        return None
    try:
        args = decode(fire.payload)["args"]
    except (ValueError, TypeError, KeyError):
        return None
    return masked_arguments(source, fire.job, args)


def _cause(fire: Fire) -> str | None:
    if fire.origin == "hook":
        return fire.key.rpartition("/")[0] or None
    return predecessor_of(fire) or None


def _followers(source: Source, row: Row) -> list[dict[str, Any]]:
    """The hooks of the fire, and the fires of the jobs that run after its job."""
    fire, manifest = row.fire, source.manifests.get(app_of(row.fire.job))
    keys = [f"{fire.key}/{hook}" for hook in fire.policy.hooks]
    if manifest:
        chained = Followers(manifest.jobs).fires(fire, Outcome("succeeded"), clock.now())
        keys += [one.key for one in chained]
    found = source.store.find(Query(keys=tuple(keys), limit=len(keys))) if keys else []
    return [
        {"fire": one.fire.key, "name": one.fire.job, "origin": one.fire.origin, "state": state_text(one)}
        for one in found
    ]


def output_of(source: Source, row: Row, number: int | None) -> dict[str, Any]:
    """The last part of the output of an attempt; None: of the newest."""
    newest = row.attempt if row.state == "claimed" else len(row.attempts)
    number = number or newest or 1
    record: dict[str, Any] = {"fire": row.fire.key, "attempt": number, "state": "over", "note": None}
    for attempt in row.attempts:
        if attempt.number == number:
            return record | _text(attempt.tail, len(attempt.tail) >= TAIL_MAX)
    if row.state == "claimed" and number == row.attempt:
        return record | {"state": "running"} | _running(source, row)
    if not row.attempts:
        return record | {"output": None, "cut": False, "note": "it has not run"}
    raise Refusal(404, f"{row.fire.key} has no attempt {number}: it has {len(row.attempts)}")


def _running(source: Source, row: Row) -> dict[str, Any]:
    segments = find_output(source.store, row)
    if segments is None:
        return {"output": None, "cut": False, "note": ELSEWHERE}
    last, length = b"", 0
    try:
        for data in segments.read():
            length += len(data)
            last = (last + data)[-TAIL_MAX:]
    except OSError as error:
        note = f"cannot read the output before the attempt ends: {error.strerror}"
        return {"output": None, "cut": False, "note": note}
    finally:
        segments.close()
    return _text(source.mask.output(last), length > TAIL_MAX)


def _text(output: bytes, is_cut: bool) -> dict[str, Any]:
    return {"output": output.decode("utf-8", "replace"), "cut": is_cut}
