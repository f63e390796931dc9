"""Jobs that come after others: put when a fire of another job succeeded, in the step that settles it.  Pure.

1. A job that names several comes after each of them: every success puts it.
2. Its key is made of the other fire's: whoever settles that one, and however often, puts the same fire.
3. It is due when it is put, and from then on like any fire of its job: paused, skipped, missed, late.
4. A circle, and a chain of more than `DEPTH_MAX` jobs, is refused when it is read.  Where nodes disagree
   about their jobs, a chain ends there all the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256

from detent.model import Fire, Job, Outcome
from detent.rules.planning import fire_at, key_of, run_id

DEPTH_MAX = 20  # jobs, one after the other
DIGITS = 12


class Followers:
    """Which jobs come after which."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._jobs: dict[str, list[Job]] = {}
        for job in jobs:
            for other in job.after:
                self._jobs.setdefault(other, []).append(job)

    def of(self, job: str) -> Sequence[Job]:
        """Those that come after this one, on whatever host that ran."""
        return self._jobs.get(job.partition("/")[0], ())

    def fires(self, fire: Fire, outcome: Outcome, now: datetime) -> tuple[Fire, ...]:
        """What the end of this fire brings about."""
        if not self._jobs or outcome.kind != "succeeded" or fire.origin in ("hook", "push"):
            return ()
        depth = _depth(fire) + 1
        return tuple(_fire(job, fire, now, depth) for job in self.of(fire.job) if depth < DEPTH_MAX)


def put_after(fire: Fire) -> str:
    """The key of the fire whose success put this one; "": it was not put so."""
    return str(json.loads(fire.payload)["after"]) if _is_after(fire) else ""


def _fire(job: Job, other: Fire, now: datetime, depth: int) -> Fire:
    digest = sha256(other.key.encode()).hexdigest()[:DIGITS]
    key = f"{key_of(job.name, other.due_at)}+after.{digest}"
    return fire_at(job, now.replace(microsecond=0))._replace(
        key=key,
        run_id=run_id(other.due_at, key),
        payload=json.dumps({"after": other.key, "depth": depth}),
    )


def _depth(fire: Fire) -> int:
    return int(json.loads(fire.payload)["depth"]) if _is_after(fire) else 0


def _is_after(fire: Fire) -> bool:
    return fire.payload != "" and "+after." in fire.key


# Reading it.


def faults(after: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Of jobs and those they come after: circles, and chains that are too long, each told at one job."""
    heights: dict[str, int] = {}
    found: dict[str, str] = {}
    for name in after:
        _climb(name, (), after, heights, found)
    yield from found.items()


def _climb(
    name: str,
    path: tuple[str, ...],
    after: Mapping[str, Sequence[str]],
    heights: dict[str, int],
    found: dict[str, str],
) -> int:
    """How many jobs the longest chain has that ends with this one."""
    if name in path:
        circle = [*path[path.index(name) :], name]
        if not found.keys() & set(circle):
            found[name] = f"it comes after itself: {' after '.join(circle)}"
        return 0
    if name in heights:
        return heights[name]
    height = 1
    if len(path) <= DEPTH_MAX:
        here = (*path, name)
        height += max((_climb(one, here, after, heights, found) for one in after.get(name, ())), default=0)
        heights[name] = height
    if height > DEPTH_MAX or len(path) > DEPTH_MAX:
        found.setdefault(name, f"it is in a chain of more than {DEPTH_MAX} jobs, one after the other")
        heights[name] = height = 0
    return height
