"""The indexes of records in Redis.  All are sorted sets of keys, and each has one kind of score.

due:TIER:QUEUE   pending, by `look_at`             live:QUEUE, taken:QUEUE  claimed, by expiry; messages
letters:QUEUE    pending messages, not plain       laned          claimed, with a lane, by expiry
aside:QUEUE      parked, by `run_at`               held:LANE      claimed, by id
stalled:JOB      parked                            waits:LANE     pending, waits for the lane
parked:LANE|QUEUE  parked                          rivals:LANE    pending, by `run_at`
instants:JOB     open, of the schedule, by due_at  extras:JOB     open hooks
book:JOB         all, by due_at                    all            all but messages, by due_at
done:JOB         finished, by due_at               over           finished, by their end
dead:QUEUE       dead letters, by due_at           outcome:KIND   all but successes, by due_at
"""

from __future__ import annotations

import re
from functools import lru_cache

from detent.model import DEAD
from detent.stores.engine.record import Record

_UNSAFE = re.compile(r"[^A-Za-z0-9._/@^~+=,;!$*()'#&:<>?\[\]{}-]")
Indexes = tuple[tuple[str, str], ...]  # name, and the attribute with its score; "": the fire's `due_at`


@lru_cache(maxsize=4096)
def encoded(name: str) -> str:
    """A name as a part of a key, or as a word of a line: without spaces and bars."""
    return _UNSAFE.sub(
        lambda found: "".join(f"%{byte:02x}" for byte in found[0].encode("utf-8", "surrogatepass")), name
    )


def decoded(name: str) -> str:
    data = re.sub(rb"%([0-9a-f]{2})", lambda found: bytes.fromhex(found[1].decode()), name.encode())
    return data.decode("utf-8", "surrogatepass")


def indexes_of(one: Record) -> Indexes:
    """The indexes of a record that change with its state."""
    fire, kind = one.fire, one.outcome.kind if one.outcome else ""
    state = one.state, one.tier, fire.origin, one.is_parked, one.waits, kind
    return _indexes(state, fire.queue, fire.lane, fire.job)


@lru_cache(maxsize=4096)
def lasting_indexes(origin: str, job: str) -> Indexes:
    """The indexes that a record is in until it is deleted."""
    book = (f"book:{encoded(job)}", "")
    return (book,) if origin == "push" else (book, ("all", ""))


@lru_cache(maxsize=8192)
def _indexes(state: tuple[str, str, str, bool, bool, str], queue: str, lane: str, job: str) -> Indexes:
    step, tier, origin, is_parked, waits, kind = state
    queue, lane, job = encoded(queue), encoded(lane), encoded(job)
    is_push, found = origin == "push", list[tuple[str, str]]()
    if step == "over":
        found += [("over", "over_at"), (f"done:{job}", "")]
        found += [(f"dead:{queue}", "")] if is_push and kind in DEAD else []
    elif step == "claimed":
        found += [(f"{'taken' if is_push else 'live'}:{queue}", "expires")]
        found += [("laned", "expires"), (f"held:{lane}", "id")] if lane else []
    else:
        found += [(f"due:{tier[0]}:{queue}", "look_at")]
        found += [(f"letters:{queue}", "run_at")] if is_push and tier != "plain" else []
        found += [(f"rivals:{lane}", "run_at")] if lane else []
        found += [(f"waits:{lane}", "id")] if lane and waits else []
        parked = (f"aside:{queue}", f"stalled:{job}", f"parked:{lane}|{queue}") if is_parked else ()
        found += [(name, "run_at") for name in parked]
    if step != "over" and origin in ("schedule", "hook"):
        found.append((f"{'instants' if origin == 'schedule' else 'extras'}:{job}", ""))
    if kind not in ("", "succeeded"):
        found.append((f"outcome:{kind}", ""))
    return tuple(found)
