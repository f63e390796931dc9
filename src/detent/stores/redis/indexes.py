"""The indexes of records in Redis.  All are sorted sets of keys, and each has one kind of score.

due:TIER:QUEUE   pending, by `look_at`             live:QUEUE, taken:QUEUE  claimed, by expiry; messages
letters:QUEUE    pending messages, not plain       laned          claimed, with a lane, by expiry
aside:QUEUE      parked, by `run_at`               held:LANE      claimed, by id
stalled:JOB      parked                            waits:LANE     pending, waits for the lane
parked:LANE|QUEUE  parked                          rivals:LANE    pending, by `run_at`
instants:JOB     open, of the schedule, by due_at  extras:JOB     open hooks
book:JOB         all, by due_at                    all            all but messages, by due_at
done:JOB         finished, by due_at               over           finished, by their end
dead:QUEUE       dead letters, by due_at
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache

from detent.model import DEAD
from detent.stores.engine.record import Record

_UNSAFE = re.compile(r"[^A-Za-z0-9._/@^~+=,;!$*()'#&:<>?\[\]{}-]")
_SCORES = {
    "due": "look_at", "letters": "run_at", "aside": "run_at", "stalled": "run_at", "parked": "run_at",
    "live": "expires", "taken": "expires", "laned": "expires", "held": "id", "waits": "id",
    "rivals": "run_at", "over": "over_at",
}  # fmt: skip

QUEUE, LANE, JOB, LANE_QUEUE, APP = range(5)  # what an index is of: places in the result of `places_of`


class Names:
    """The indexes that records of one state are in.  There is one object for each state."""

    __slots__ = ("indexes", "scores")

    def __init__(self, indexes: Sequence[tuple[str, int]]) -> None:
        self.indexes = tuple(indexes)  # kind, and what it is of
        # For each the attribute with its score; "": the fire's `due_at`.
        self.scores = tuple(_SCORES.get(kind.partition(":")[0], "") for kind, _ in indexes)


@lru_cache(maxsize=4096)
def encoded(name: str) -> str:
    """A name as a part of a key, or as a word of a line: without spaces and bars."""
    return _UNSAFE.sub(
        lambda found: "".join(f"%{byte:02x}" for byte in found[0].encode("utf-8", "surrogatepass")), name
    )


def decoded(name: str) -> str:
    if "%" not in name:
        return name
    parts = re.split("%([0-9a-f]{2})", name)
    data = b"".join(
        bytes([int(part, 16)]) if place % 2 else part.encode() for place, part in enumerate(parts)
    )
    return data.decode("utf-8", "surrogatepass")


@lru_cache(maxsize=4096)
def places_of(queue: str, lane: str, job: str) -> tuple[str, str, str, str, str]:
    queue, lane = encoded(queue), encoded(lane)
    return queue, lane, encoded(job), f"{lane}|{queue}", ""


def names_of(one: Record) -> Names:
    """The indexes of a record that change with its state."""
    fire = one.fire
    is_dead = one.state == "over" and one.outcome is not None and one.outcome.kind in DEAD
    return _names(one.state, one.tier, fire.origin, (fire.lane != "", one.is_parked, one.waits, is_dead))


@cache
def _names(state: str, tier: str, origin: str, flags: tuple[bool, bool, bool, bool]) -> Names:
    has_lane, is_parked, waits, is_dead = flags
    found: list[tuple[str, int]] = []
    if state == "over":
        found = [("over", APP), ("done:", JOB)]
        return Names([*found, ("dead:", QUEUE)] if origin == "push" and is_dead else found)
    if state == "claimed":
        found.append(("taken:" if origin == "push" else "live:", QUEUE))
        found += [("laned", APP), ("held:", LANE)] if has_lane else []
    else:
        found.append((f"due:{tier[0]}:", QUEUE))
        found += [("letters:", QUEUE)] if origin == "push" and tier != "plain" else []
        found += [("rivals:", LANE)] if has_lane else []
        found += [("waits:", LANE)] if has_lane and waits else []
        found += [("aside:", QUEUE), ("stalled:", JOB), ("parked:", LANE_QUEUE)] if is_parked else []
    if origin in ("schedule", "hook"):
        found.append(("instants:" if origin == "schedule" else "extras:", JOB))
    return Names(found)


@cache
def lasting_names(origin: str) -> Names:
    """The indexes that a record is in until it is deleted."""
    return Names([("book:", JOB)] if origin == "push" else [("book:", JOB), ("all", APP)])


def score_of(one: Record, name: str) -> float:
    return getattr(one, name) if name else one.fire.due_at.timestamp()
