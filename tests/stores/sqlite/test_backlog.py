"""A SQLite store with a backlog: the cost of an ask does not grow with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from detent.model import (
    Ask,
    CatchUp,
    Claim,
    Command,
    Concurrency,
    Grants,
    Job,
    Outcome,
    Plan,
    Policy,
    Report,
    Verdict,
)
from detent.rules.decide import SETTLED_MAX as DISPOSITIONS_MAX
from detent.rules.planning import fire_at
from detent.stores.sqlite.store import SqliteStore
from detent.testing.stores.fixtures import FakeClock

JOBS, YOUNG_S = 50, 20
LOOKS_MAX = 600  # more than one ask reads
LATE_S = 60


class Backlog:
    """A store whose jobs have an instant every second; most are late, the last ones are not."""

    def __init__(self, path: Path, policy: Policy, late: int) -> None:
        self.clock = FakeClock()
        self.store = SqliteStore(path, self.clock.wall, self.clock.monotonic, lambda: "this boot")
        self.asks = self.steps = 0
        names = [f"a.j{number:02}" for number in range(JOBS)]
        jobs = [Job(name, _Never(), Command(("true",)), policy, revision="1") for name in names]
        since = self.store.set_jobs("a", 0, dict.fromkeys(names, "1")).now
        seconds = late // JOBS + YOUNG_S
        until = since + timedelta(seconds=seconds + 3600)
        for job in jobs:
            fires = tuple(fire_at(job, since + timedelta(seconds=after + 1)) for after in range(seconds))
            self.store.advance("a", [Plan(job.name, "1", since, until, fires)])
        self.clock.pass_time(seconds + LATE_S - YOUNG_S + 0.5)

    def ask(self, limit: int = 32) -> Grants:
        self.asks, self.steps = self.asks + 1, 0
        with self.store.driver.file.reading() as link:
            db = link.db
        db.set_progress_handler(self._step, 1000)
        grants = self.store.claim(Ask("a", "n1", self.asks, limit))
        db.set_progress_handler(None, 0)
        return grants

    def finish(self, claims: tuple[Claim, ...]) -> None:
        ended = [Report(one, Verdict(one.disposition or Outcome("succeeded"))) for one in claims]
        self.store.finish(ended)

    def pending(self) -> int:
        return self.store.driver.file.look("SELECT count(*) FROM fires WHERE state <> 'over'")

    def _step(self) -> None:
        self.steps += 1


class _Never:
    def after(self, at: object) -> None: ...

    def before(self, at: object) -> None: ...

    def between(self, since: object, until: object) -> Iterator[object]:
        return iter(())


Open = Callable[[Policy, int], Backlog]


@pytest.fixture
def backlog(tmp_path: Path) -> Iterator[Open]:
    opened: list[Backlog] = []

    def open_one(policy: Policy, late: int) -> Backlog:
        opened.append(Backlog(tmp_path / f"{len(opened)}.db", policy, late))
        return opened[-1]

    yield open_one
    for one in opened:
        one.store.close()


KINDS = [
    ("skip", "Forbid"),
    ("skip", "Allow"),
    ("latest", "Forbid"),
    ("latest", "Queue"),
    ("latest", "Allow"),
]


@pytest.mark.parametrize(
    ("catch_up", "concurrency", "limit"), [("skip", "Forbid", 0), *((*kind, 32) for kind in KINDS)]
)
def test_the_cost_of_an_ask_does_not_grow_with_late_fires(
    backlog: Open, catch_up: CatchUp, concurrency: Concurrency, limit: int
) -> None:
    policy, costs = Policy(concurrency, catch_up=catch_up), []
    for late in (2 * LOOKS_MAX, 8 * LOOKS_MAX):
        one, steps = backlog(policy, late), list[int]()
        for _ in range(4):
            claims = one.ask(limit).claims
            assert sum([claim.disposition is not None for claim in claims]) == DISPOSITIONS_MAX
            steps.append(one.steps)
            one.finish(claims)
        costs.append(max(steps))
    few, many = costs
    assert many < 1.5 * few, costs


@pytest.mark.parametrize(("catch_up", "concurrency"), KINDS)
def test_a_fire_behind_thousands_of_late_ones_starts_soon(
    backlog: Open, catch_up: CatchUp, concurrency: Concurrency
) -> None:
    """It does not wait until they are all settled."""
    one = backlog(Policy(concurrency, catch_up=catch_up), 6 * LOOKS_MAX)
    for _ in range(5):
        claims = one.ask().claims
        assert sum([claim.disposition is None for claim in claims]) == 32
        one.finish(claims)
    assert one.pending() > 3 * LOOKS_MAX


@pytest.mark.parametrize("number", [0, 3])
def test_an_old_message_among_thousands_of_late_fires_starts_soon(backlog: Open, number: int) -> None:
    """It is neither among the oldest fires nor among those that are not late."""
    one = backlog(Policy("Forbid", catch_up="skip"), 8 * LOOKS_MAX)
    (first,) = one.ask(1).claims[:1]
    at = first.fire.due_at + timedelta(seconds=(number + 3) * LOOKS_MAX // JOBS)
    with one.store.driver.file.reading() as link:
        db = link.db
    message = first.fire._replace(key="a.m@1", job="a.m", lane="", origin="push", start_by=None)
    one.store.put([message])
    db.execute(
        "UPDATE fires SET run_at = ?, look_at = ? WHERE key = 'a.m@1'", (at.timestamp(), at.timestamp())
    )
    assert any("a.m@1" in {claim.fire.key for claim in one.ask(32).claims} for _ in range(20))


@pytest.mark.parametrize(("catch_up", "concurrency"), KINDS)
def test_a_backlog_is_settled_to_its_last_fire(
    backlog: Open, catch_up: CatchUp, concurrency: Concurrency
) -> None:
    one = backlog(Policy(concurrency, catch_up=catch_up), 2 * LOOKS_MAX)
    all_of_it, keys = one.pending(), set[str]()
    while grants := one.ask(200):
        keys |= {claim.fire.key for claim in grants.claims}
        one.finish(grants.claims)
        if not grants.claims and grants.next_in_s > 0.1:
            break
    assert len(keys) == all_of_it
    assert one.pending() == 0


def test_held_fires_do_not_block_the_queue_and_are_not_read_by_every_ask(backlog: Open) -> None:
    """Thousands of late instants wait for their lanes, and a message behind them is found."""
    one = backlog(Policy("Forbid", catch_up="all"), 4 * LOOKS_MAX)
    running = [claim for claim in one.ask(JOBS).claims if not claim.disposition]
    assert len(running) == JOBS
    one.store.put([running[0].fire._replace(key="a.m@1", job="a.m", lane="", origin="push")])
    asks = (one.ask(1).claims for _ in range(10))
    assert "a.m@1" in {claim.fire.key for claims in asks for claim in claims if not claim.disposition}


def test_thousands_of_expired_claims_are_read_part_by_part(backlog: Open) -> None:
    costs = []
    for late in (2 * LOOKS_MAX, 6 * LOOKS_MAX):
        one = backlog(Policy("Allow", catch_up="all"), late)
        while one.ask(LOOKS_MAX).claims:
            pass
        one.clock.pass_time(40)
        grants = one.ask(0)
        assert len(grants.claims) == DISPOSITIONS_MAX
        costs.append(one.steps)
    assert costs[1] < 1.5 * costs[0], costs
