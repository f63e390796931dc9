"""The jobs of a chaos run: every policy, and what the judge must know about each job.

The seconds of each schedule are written here a second time, by hand: the judge does not use the engine
that it judges.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

APP = "c"
CLAIM_S = 5.0
TICK = f"{APP}.tick"  # due every second
GUEST = "guest"  # deploys add and remove it


class Trial(NamedTuple):
    """A job, and what its fires are allowed to do."""

    name: str
    schedule: str
    deed: tuple[str, ...]
    seconds: frozenset[int]  # of the minute
    every: int = 0  # or: every so many seconds since the epoch
    width: int = 1  # how many may run at a time; 0: any number
    policy: dict[str, Any] = {}  # noqa: RUF012 - it is never written to
    attempts_max: int = 1
    reruns: bool = False
    hook: bool = False  # on_failure

    @property
    def job(self) -> str:
        return f"{APP}.{self.name}"

    def is_instant(self, second: int) -> bool:
        return second % self.every == 0 if self.every else second % 60 in self.seconds

    def instants(self, since: float, until: float) -> Iterator[int]:
        """Yield its instants in (since, until], in Unix seconds."""
        return (second for second in range(int(since) + 1, int(until) + 1) if self.is_instant(second))


def _every(name: str, seconds: int, *deed: str, **known: Any) -> Trial:
    return Trial(name, f"@every {seconds}s", deed, frozenset(), every=seconds, **known)


TRIALS = (
    _every("tick", 1, "sleep", "20"),
    _every("pair", 2, "sleep", "300", policy={"claim_seconds": 4}),
    _every("long", 7, "sleep", "6000"),
    Trial(
        "rerun", "*/5 * * * * *", ("sleep", "3000"), frozenset(range(0, 60, 5)),
        policy={"on_lost": "rerun"}, attempts_max=2, reruns=True,
    ),
    Trial(
        "flaky", "1/6 * * * * *", ("third", "100"), frozenset({1, 7, 13, 19, 25, 31, 37, 43, 49, 55}),
        policy={"retries": {"max_attempts": 4, "min_seconds": 1, "max_seconds": 2}}, attempts_max=4,
    ),
    _every(
        "both", 9, "third", "1200", attempts_max=5, reruns=True,
        policy={"on_lost": "rerun", "retries": {"max_attempts": 5, "min_seconds": 1, "max_seconds": 1}},
    ),
    _every("replace", 4, "sleep", "6500", policy={"concurrency": "Replace"}),
    _every("queue", 3, "sleep", "2700", policy={"concurrency": "Queue"}),
    _every("wide", 2, "sleep", "5000", width=3, policy={"max_running": 3}),
    _every("allow", 3, "sleep", "4000", width=0, policy={"concurrency": "Allow"}),
    Trial("family", "2-59/5 * * * * *", ("family", "1500"), frozenset(range(2, 60, 5))),
    _every("kin", 6, "family", "2000", policy={"concurrency": "Replace", "on_lost": "rerun"}, attempts_max=2,
           reruns=True),
    _every("stuck", 11, "deaf", "30000", policy={"timeout_seconds": 2}, hook=True),
    _every("all", 5, "sleep", "10", policy={"catch_up": "all"}),
    _every("fresh", 5, "sleep", "1000", policy={"start_deadline_seconds": 3}),
    Trial(GUEST, "0,20,40 * * * * *", ("sleep", "500"), frozenset({0, 20, 40})),
)  # fmt: skip
BY_JOB = {trial.job: trial for trial in TRIALS}


class Place(NamedTuple):
    """Where the witness writes."""

    program: Path
    file: Path
    locks: Path

    def words(self, lane: str, width: int, *deed: str) -> list[str]:
        return [str(self.program), str(self.file), str(self.locks), lane, str(width), *deed]


def manifest(place: Place, node: str, deploy: int, *, hooks: bool) -> dict[str, Any]:
    """Return the manifest of a node.  Each deploy changes every other job, and adds or removes the guest."""
    jobs = []
    for number, trial in enumerate(TRIALS):
        if trial.name == GUEST and deploy % 2:
            continue
        job: dict[str, Any] = {
            "name": trial.name,
            "schedule": trial.schedule,
            "command": place.words(trial.name, trial.width, *trial.deed),
            "policy": trial.policy,
            "env": {"DEPLOY": str(deploy - (deploy + number) % 2)},
        }
        if trial.hook and hooks:
            job["on_failure"] = " ".join(place.words(trial.name, 0, "hook", "0"))
        jobs.append(job)
    return {
        "version": 2,
        "app": APP,
        "node": {"id": node, "drain_seconds": 2, "keep_fires": 1_000_000},
        "defaults": {"policy": {"claim_seconds": CLAIM_S}, "kill_after_seconds": 1},
        "jobs": jobs,
    }
