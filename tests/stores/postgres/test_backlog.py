"""A PostgreSQL store with many fires that cannot run: they are parked, and do not slow down asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import psycopg
import pytest
from tests.equipment.postgres_server import ClockedStore, rows_read, shared_schemas, shared_server

from detent.model import (
    Ask,
    CatchUp,
    Claim,
    Command,
    Concurrency,
    Fire,
    Job,
    Outcome,
    Plan,
    Policy,
    Report,
    Verdict,
)
from detent.rules.planning import fire_at
from detent.stores.engine.claiming import PAGE
from detent.stores.engine.stream import PAGES
from detent.testing.stores.fixtures import Every, FakeClock, fire

ASIDE_MAX = 1000  # by one ask
LANES = 20
ENDLESS = 1e6
AT_ONCE = 100  # plans of a call
SLACK = 60  # rows of a page that differ by chance


class Asker:
    def __init__(self, store: ClockedStore) -> None:
        self.store, self.clock, self.asks = store, store.clock, 0

    def ask(self, limit: int = 8, node: str = "n1") -> tuple[Claim, ...]:
        self.asks += 1
        self.clock.pass_time(0.05)
        return self.store.claim(Ask("a", node, self.asks, limit)).claims

    def rows_of_an_ask(self, limit: int) -> int:
        """How many rows the server reads for an ask that gets nothing."""
        self.asks += 1
        return rows_read(self.store, lambda store: store.claim(Ask("a", "n1", self.asks, limit)))

    def plan(self, names: list[str], each: int, catch_up: CatchUp, concurrency: Concurrency) -> None:
        """So many instants of an outage, of each of these jobs; under `latest`, not planned up to now."""
        since = self.store.set_jobs("a", 0, dict.fromkeys(names, "1")).now
        policy = Policy(concurrency, catch_up=catch_up, claim_s=ENDLESS)
        until = since + timedelta(seconds=each + (0 if catch_up == "latest" else 3600))
        plans = list[Plan]()
        for name in names:
            job = Job(name, Every(since, 1.0), Command(("true",)), policy, revision="1")
            fires = tuple(fire_at(job, since + timedelta(seconds=after + 1)) for after in range(each))
            plans.append(Plan(name, "1", since, until, fires))
        for some in range(0, len(plans), AT_ONCE):
            self.store.advance("a", plans[some : some + AT_ONCE])
        self.clock.pass_time(each + 61)


class Backlog(Asker):
    """A store with many fires that wait for a few taken lanes or, if not planned, for their plan."""

    def __init__(self, store: ClockedStore, kind: str, count: int) -> None:
        super().__init__(store)
        names, each = [f"a.l{lane:02}" for lane in range(LANES)], count // LANES + 1
        if kind == "messages":
            for name in names:
                store.put([_message(name, number) for number in range(each)])
        else:
            self.plan(names, each, "latest" if kind == "unplanned" else "all", "Forbid")
        self.holders = [claim for _ in range(LANES) for claim in self.ask(5, "holder")]
        assert len(self.holders) == (0 if kind == "unplanned" else LANES)


def _message(lane: str, number: int) -> Fire:
    policy = Policy("Queue", claim_s=ENDLESS)
    return fire(f"{lane}@{number:05}", policy=policy, lane=lane, origin="push")


@pytest.fixture
def stores() -> Iterator[Callable[[], ClockedStore]]:
    schemas, opened = shared_schemas(), list[ClockedStore]()

    def open_one() -> ClockedStore:
        opened.append(schemas.open(FakeClock()))
        return opened[-1]

    yield open_one
    schemas.give_back(*opened)


Stores = Callable[[], ClockedStore]
KINDS = ["messages", "instants", "unplanned"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_fire_behind_thousands_that_cannot_run_starts_soon(stores: Stores, kind: str) -> None:
    one = Backlog(stores(), kind, 3 * ASIDE_MAX)
    one.store.put([fire("a.other@1", origin="push")])
    ran = [claim.fire.key for _ in range(4) for claim in one.ask()]
    assert ran == ["a.other@1"]
    for holder in one.holders[:1]:
        one.store.finish([Report(holder, Verdict(Outcome("succeeded")))])
        (claim,) = one.ask()
        assert claim.fire.lane == holder.fire.lane
        assert claim.disposition is None


@pytest.mark.parametrize("kind", KINDS)
def test_the_cost_of_an_ask_does_not_grow_with_the_fires_that_cannot_run(stores: Stores, kind: str) -> None:
    costs = []
    for count in (10 * LANES, 2 * ASIDE_MAX):
        one = Backlog(stores(), kind, count)
        for _ in range(8):
            one.ask()  # all is put aside
        one.clock.pass_time(2)
        for _ in range(4):
            one.ask()  # this ask checks whether a lane was just freed
        one.store.put([fire("a.other@1", origin="push")])  # there is something else for one without room
        costs.append((one.rows_of_an_ask(0), [*one.ask(), *one.ask()], one.rows_of_an_ask(8)))
    few, many = costs
    assert many[1][0].fire.key == "a.other@1"
    # Fires that wait for their plan are not parked: an ask reads some pages of them.
    slack = 3 * PAGE * PAGES if kind == "unplanned" else SLACK
    assert many[0] <= few[0] + slack and many[2] <= few[2] + slack


def test_an_ask_without_room_reads_few_fires_that_only_need_room(stores: Stores) -> None:
    """The late instants of an outage can all run, but the node is full."""
    costs = []
    for count in (100, 1500):
        one = Asker(stores())
        one.plan([f"a.j{number}" for number in range(count)], 1, "all", "Allow")
        assert one.ask(0) == ()
        costs.append(one.rows_of_an_ask(0))
    few, many = costs
    assert many <= few + PAGE * (3 * PAGES + 1), "some pages are read, whatever waits"


def test_an_ask_that_misses_a_freed_lane_asks_again_soon(stores: Stores) -> None:
    """Another ask has the lane's row locked: without this, the message would wait for a minute."""
    asker, policy = Asker(stores()), Policy("Queue")
    several = [fire(f"a.b@{n}", lane="a#one", origin="push", policy=policy) for n in (1, 2)]
    asker.store.put(several)
    [holder] = asker.ask()
    assert asker.ask(node="n2") == (), "the second is put aside for its lane"
    asker.store.finish([Report(holder, Verdict(Outcome("succeeded")))])
    with psycopg.connect(shared_server().url) as db:
        db.execute(f"SET search_path TO {asker.store.schema}")
        db.execute("SELECT FROM cells WHERE name = 'lane/a#one' FOR UPDATE")
        grants = asker.store.claim(Ask("a", "n3", 1, 8))
    assert grants.claims == ()
    assert grants.next_in_s <= 1
    assert [claim.fire.key for claim in asker.ask(node="n2")] == ["a.b@2"]
