"""What the checks of a store share: a world in which time passes, an asker, a planner, fires to put.

A check is a function of an empty store and its world; its name is the rule.  A check that needs an ability
which the backend does not offer is skipped (`NotOffered`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from detent.app import dry_run
from detent.model import (
    Ask,
    Claim,
    Command,
    Concurrency,
    Fire,
    Grants,
    Job,
    Outcome,
    Plan,
    Policy,
    Query,
    Report,
    Row,
    Verdict,
    Watermarks,
)
from detent.rules.planning import fire_at, key_of, plan
from detent.stores.base import Store

TTL_S = 30.0
SMALL_STEPS_S = (0.2, 0.45, 0.55, 0.7, 0.95, 1.05, 2.0)  # of the wall clock: some of them go unnoticed
BEAT_S = 10  # between two instants of a planner's job
START = datetime(2026, 1, 1, tzinfo=UTC)
DONE = Verdict(Outcome("succeeded"))
OVER = Verdict(Outcome("failed", "exit 1"))
AGAIN = Verdict(Outcome("failed", "exit 1"), again_in_s=TTL_S / 2)
GIVEN_BACK = Verdict(Outcome("lost", "not started"), again_in_s=0.0, counts=False)
PLAIN = Policy()
WIDTHS = (1, 3)


class NotOffered(Exception):
    """The backend does not offer what a check needs."""


class FakeClock(dry_run.FakeClock):
    def __init__(self, start: datetime = START) -> None:
        super().__init__(start)

    def pass_time(self, seconds: float) -> None:
        self.advance(seconds)

    def step_wall(self, seconds: float) -> None:
        self.step(seconds)


class World(NamedTuple):
    """How to open a backend, and how to let time pass, set its clock, reopen it, or make it lose data."""

    opener: Callable[[], Store]
    pass_time: Callable[[float], None]
    stepper: Callable[[float], None] | None = None
    reopener: Callable[[Store], Store] | None = None
    forgetter: Callable[[Store], Store] | None = None

    def step_wall(self, seconds: float) -> None:
        if self.stepper is None:
            raise NotOffered("a wall clock that can be set")
        self.stepper(seconds)

    def reopen(self, store: Store) -> Store:
        if self.reopener is None:
            raise NotOffered("a store that can be opened again")
        return self.reopener(store)

    def new_epoch(self, store: Store) -> Store:
        if self.forgetter is None:
            raise NotOffered("a new epoch")
        return self.forgetter(store)


Check = Callable[[Store, World], None]


class Asker:
    """One instance of a node: each ask has a new number, unless it is a repetition."""

    def __init__(self, store: Store, node: str = "n1", app: str = "a") -> None:
        self.store, self.node, self.app, self.number = store, node, app, 0

    def ask(self, repeat: bool = False, **fields: Any) -> Grants:
        self.number += not repeat
        ask = Ask(self.app, self.node, self.number, **({"limit": 9, "ttl_s": TTL_S} | fields))
        return self.store.claim(ask._replace(queues=tuple(ask.queues)))

    def claim(self, repeat: bool = False, **fields: Any) -> list[Claim]:
        return sorted(self.ask(repeat, **fields).claims, key=lambda claim: claim.fence)

    def claim_one(self, **fields: Any) -> Claim:
        return only(self.claim(**fields))


class Every:
    """A schedule of one instant every `step_s` seconds, counted from `start`."""

    def __init__(self, start: datetime, step_s: float) -> None:
        self._start, self._step = start, timedelta(seconds=step_s)

    def after(self, instant: datetime) -> datetime:
        return self._start + ((instant - self._start) // self._step + 1) * self._step

    def before(self, instant: datetime) -> datetime:
        return self._start - ((self._start - instant) // self._step + 1) * self._step

    def between(self, since: datetime, until: datetime) -> Iterator[datetime]:
        at = self.after(since)
        while at <= until:
            yield at
            at += self._step


class Planner:
    """Sets the one job of app `a`, which is due every few seconds from now on, and plans it."""

    def __init__(self, store: Store, policy: Policy = PLAIN, beat_s: float = BEAT_S) -> None:
        watermarks = store.set_jobs("a", 0, {"a.b": "r1"})
        self.store, self.start, self.beat_s = store, watermarks.now, beat_s
        self.job = Job("a.b", Every(watermarks.now, beat_s), Command(("true",)), policy, revision="r1")

    def plan(self, ahead_s: float = 60.0) -> Plan:
        watermarks = self.store.look("a")
        return plan(self.job, watermarks.by_job[self.job.name], watermarks.now, ahead_s)

    def advance(self, ahead_s: float = 60.0) -> Watermarks:
        return self.store.advance("a", [self.plan(ahead_s)])

    def covering(self, first: int, last: int) -> Plan:
        """A plan of exactly the instants with these numbers."""
        fires = tuple(fire_at(self.job, self.at(number)) for number in range(first, last + 1))
        return Plan(self.job.name, self.job.revision, self.at(first - 1), self.at(last), fires)

    def at(self, number: int) -> datetime:
        return self.start + timedelta(seconds=self.beat_s * number)

    def key(self, number: int) -> str:
        return key_of(self.job.name, self.at(number))


def fire(key: str, concurrency: Concurrency = "Allow", width: int = 1, **fields: Any) -> Fire:
    """A manual fire of the job in its key."""
    job = key.partition("@")[0]
    policy = fields.pop("policy", Policy(concurrency=concurrency, max_running=width, claim_s=TTL_S))
    lane = "" if concurrency == "Allow" else job
    whole: dict[str, Any] = {"due_at": START, "origin": "manual", "lane": lane}
    return Fire(key=key, job=job, policy=policy, **(whole | fields))


def later(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def only(claims: Sequence[Claim]) -> Claim:
    assert len(claims) == 1, f"one claim expected, not {keys(claims)}"
    return claims[0]


def keys(claims: Sequence[Claim]) -> list[str]:
    return [claim.fire.key for claim in claims]


def dispositions(claims: Sequence[Claim]) -> dict[str, Outcome | None]:
    return {claim.fire.key: claim.disposition for claim in claims}


def finish(store: Store, claim: Claim, verdict: Verdict = DONE, **fields: Any) -> Verdict | None:
    (answer,) = store.finish([Report(claim, verdict, **fields)])
    return answer


def renew(store: Store, claim: Claim) -> Outcome | None:
    (answer,) = store.renew([claim])
    return answer


def row(store: Store, key: str) -> Row:
    rows = store.find(Query(key=key))
    assert len(rows) == 1, f"one row of {key} expected, not {len(rows)}"
    return rows[0]


def found(store: Store, **fields: Any) -> list[str]:
    return [one.fire.key for one in store.find(Query(**fields))]
