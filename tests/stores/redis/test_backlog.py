"""A Redis store that was given too much that cannot run: it is put aside, and in nobody's way there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import timedelta

import pytest
import redis
from tests.equipment.redis_server import RedisServer

from detent.model import Ask, Claim, Command, Fire, Job, Outcome, Plan, Policy, Report, Verdict
from detent.rules.planning import fire_at
from detent.stores.redis.store import RedisStore
from detent.testing.stores.fixtures import Every, FakeClock, fire

ASIDE_MAX = 1000  # by one ask
LANES = 20
prefixes = (f"{number}:" for number in itertools.count())
WAITS, HELD = Policy("Queue", claim_s=1e6), Policy("Forbid", catch_up="all", claim_s=1e6)


class Backlog:
    """A store in which so many wait for a few lanes that are all taken."""

    def __init__(self, server: RedisServer, kind: str, count: int) -> None:
        self.clock = FakeClock()
        self.store = RedisStore(
            server.url, next(prefixes), wall=self.clock.wall, elapsed=self.clock.monotonic
        )
        self.db = redis.Redis(port=server.port)
        self.asks = 0
        each = count // LANES + 1
        for lane in range(LANES):
            if kind == "messages":
                self.store.put([_message(f"a.l{lane:02}", number) for number in range(each)])
        if kind == "instants":
            self._plan(each)
        holders = [claim for _ in range(LANES) for claim in self.ask(5, "holder")]
        assert len(holders) == LANES, len(holders)
        self.holder = holders[0]

    def _plan(self, each: int) -> None:
        names = [f"a.l{lane:02}" for lane in range(LANES)]
        since = self.store.set_jobs("a", 0, dict.fromkeys(names, "1")).now
        until = since + timedelta(seconds=each + 3600)
        for name in names:
            job = Job(name, Every(since, 1.0), Command(("true",)), HELD, revision="1")
            fires = tuple(fire_at(job, since + timedelta(seconds=after + 1)) for after in range(each))
            self.store.advance("a", [Plan(name, "1", since, until, fires)])
        self.clock.pass_time(each + 61)

    def ask(self, limit: int = 8, node: str = "n1") -> tuple[Claim, ...]:
        self.asks += 1
        self.clock.pass_time(0.05)
        return self.store.claim(Ask("a", node, self.asks, limit)).claims

    def calls_of_an_ask(self) -> int:
        before = self._calls()
        assert self.ask() == ()
        return self._calls() - before

    def _calls(self) -> int:
        """Commands that the server has carried out, those of scripts among them."""
        return sum(one["calls"] for one in self.db.info("commandstats").values())


def _message(lane: str, number: int) -> Fire:
    return fire(f"{lane}@{number:05}", policy=WAITS, lane=lane, origin="push")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"), "--appendfsync", "no")
    yield server
    server.end()


@pytest.mark.parametrize("kind", ["messages", "instants"])
def test_a_fire_behind_thousands_that_cannot_run_starts_soon(server: RedisServer, kind: str) -> None:
    one = Backlog(server, kind, 3 * ASIDE_MAX)
    one.store.put([fire("a.other@1", origin="push")])
    ran = [claim.fire.key for _ in range(4) for claim in one.ask()]
    assert ran == ["a.other@1"]
    one.store.finish([Report(one.holder, Verdict(Outcome("succeeded")))])
    (claim,) = one.ask()
    assert claim.fire.lane == one.holder.fire.lane
    assert claim.disposition is None


@pytest.mark.parametrize("kind", ["messages", "instants"])
def test_the_cost_of_an_ask_does_not_grow_with_the_fires_that_cannot_run(
    server: RedisServer, kind: str
) -> None:
    costs = []
    for count in (10 * LANES, 2 * ASIDE_MAX):
        one = Backlog(server, kind, count)
        for _ in range(4):
            one.ask()  # all is put aside
        costs.append(min(one.calls_of_an_ask() for _ in range(3)))
    few, many = costs
    assert many == few, costs
