"""Chained jobs: the success of one job creates a fire of each job that names it in `after`.

1. The new fire is recorded in the transaction that settles the first one.
2. Its key is derived from the key of the first fire, so settling twice creates the same fire.
3. It is due at once.  From then on it is like any other fire of its job: it may be paused, skipped or missed.
4. A job with several predecessors runs after each success of each of them.
5. A manifest with a circle, or with a chain of more than `DEPTH_MAX` jobs, is refused.  Nodes with different
   manifests could still build a circle, so each fire counts its depth.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any

from detent.model import Fire, Job, Outcome
from detent.rules.planning import fire_at, key_of, run_id

DEPTH_MAX = 20  # jobs in a chain
DIGITS = 12  # of a predecessor's hash in a key


class Followers:
    """Finds the jobs that run after another one."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._jobs: dict[str, list[Job]] = {}
        for job in jobs:
            for other in job.after:
                self._jobs.setdefault(other, []).append(job)

    def of(self, job: str) -> Sequence[Job]:
        return self._jobs.get(job.partition("/")[0], ())  # without the host of `run_on: every`

    def fires(self, fire: Fire, outcome: Outcome, now: datetime) -> tuple[Fire, ...]:
        """Return the fires to record with this outcome."""
        if not self._jobs or outcome.kind != "succeeded" or fire.origin in ("hook", "push"):
            return ()
        depth = int(_chained(fire).get("depth", 0)) + 1
        return tuple(_follower(job, fire, now, depth) for job in self.of(fire.job) if depth < DEPTH_MAX)


def predecessor_of(fire: Fire) -> str:
    """Return the key of the fire that created this one, or ""."""
    return str(_chained(fire).get("after", ""))


def _follower(job: Job, other: Fire, now: datetime, depth: int) -> Fire:
    digest = sha256(other.key.encode()).hexdigest()[:DIGITS]
    key = f"{key_of(job.name, other.due_at)}+after.{digest}"
    return fire_at(job, now.replace(microsecond=0))._replace(
        key=key,
        run_id=run_id(other.due_at, key),
        payload=json.dumps({"after": other.key, "depth": depth}),
    )


def _chained(fire: Fire) -> dict[str, Any]:
    return json.loads(fire.payload) if fire.payload and "+after." in fire.key else {}


def chain_problems(after: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Yield a job and a message for each circle and each chain that is too long.

    `after` maps each job to its predecessors.
    """
    from graphlib import CycleError, TopologicalSorter  # few manifests have chains

    graph, names, order = dict(after), [*after], None
    while order is None:
        try:
            order = [*TopologicalSorter(graph).static_order()]
        except CycleError as error:
            circle = error.args[1][:0:-1]  # each job follows the next one
            start = circle.index(min(circle, key=names.index))
            path = [*circle[start:], *circle[: start + 1]]
            yield path[0], f"it comes after itself: {' after '.join(path)}"
            graph[path[0]] = ()
    heights: dict[str, int] = {}
    for name in order:
        heights[name] = 1 + max((heights[other] for other in graph.get(name, ())), default=0)
        if heights[name] == DEPTH_MAX + 1:
            yield name, f"it is in a chain of more than {DEPTH_MAX} jobs, one after the other"
