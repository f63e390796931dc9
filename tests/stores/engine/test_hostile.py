"""Others act in every look and commit, replies are lost, commits arrive late: the invariants hold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from random import Random

import pytest

from detent.errors import StoreUnavailable
from detent.model import Ask, Claim, Fire, Policy, Query, Rate, Report, Verdict
from detent.rules.rates import rate_text
from detent.stores.base import PAUSE, RATE
from detent.stores.engine.driver import Group, Write
from detent.stores.engine.engine import Engine
from detent.stores.memory.driver import MemoryDriver
from detent.testing.hostile import HostileDriver
from detent.testing.sim.invariants import forgotten_lanes, wrong_lane
from detent.testing.stores.fixtures import AGAIN, DONE, GIVEN_BACK, START, TTL_S, FakeClock

SEEDS, ACTS = 50, 25
QUEUES = ("default", "rated", "rated^high")
RATED = Rate(3, 60.0)
POLICIES = {
    "a.x": Policy("Forbid", claim_s=TTL_S),
    "a.y": Policy("Queue", claim_s=TTL_S),
    "a.z": Policy("Replace", max_running=2, claim_s=TTL_S),
    "a.w": Policy("Queue", claim_s=TTL_S, grace_s=3.0),
    "": Policy("Allow", claim_s=TTL_S),
}


class Watched(MemoryDriver):
    """Notes every grant that is committed."""

    def __init__(self, *clocks: Callable[[], float]) -> None:
        super().__init__(*clocks)
        self.fences: set[int] = set()
        self.rated_at: list[float] = []

    def _put(self, write: Write, first_fence: int) -> None:
        super()._put(write, first_fence)
        record = self.state.records[write.record.fire.key]
        if write.record.fence >= 0:
            return
        assert record.fence not in self.fences, f"the fence {record.fence} was given twice"
        self.fences.add(record.fence)
        if record.fire.queue.startswith("rated") and record.disposition is None:
            self.rated_at.append(record.expires - record.ttl_s)


class World:
    def __init__(self, seed: int, driver_type: type[Watched] = Watched) -> None:
        self.rng, self.clock, self.depth, self.made = Random(seed), FakeClock(), 0, 0
        self.driver = driver_type(self.clock.wall, self.clock.monotonic)
        self.late: list[Callable[[], object]] = []
        self.drivers = [
            HostileDriver(self.driver, self.rng, self.others_act, self.late.append) for _ in range(3)
        ]
        self.nodes = {f"n{number}": Engine(driver) for number, driver in enumerate(self.drivers)}
        self.numbers = dict.fromkeys(self.nodes, 0)
        self.held: dict[str, list[Claim]] = {node: [] for node in self.nodes}
        self.trusted: dict[tuple[str, int], tuple[Claim, float]] = {}  # running work, and until when
        self.ended: set[tuple[str, int]] = set()  # work that the nodes know to be over
        self.recorded: set[str] = set()
        Engine(self.driver).note("a", RATE + "rated", rate_text(RATED))
        self.acts: list[tuple[float, Callable[[str, Engine], None]]] = [
            (0.25, self.put),
            (0.33, self.claim),
            (0.2, self.finish),
            (0.08, self.renew),
            (0.03, self.cancel),
            (0.03, self.control),
            (0.03, self.deploy),
            (0.05, self.pass_time),
        ]

    def others_act(self) -> None:
        if self.rng.random() < 0.1:
            self.clock.pass_time(self.rng.choice([0.3, 1.5, 31.0]))  # the process is stopped
        if self.depth < 2:
            self.depth += 1
            for _ in range(self.rng.randint(1, 3)):
                self.act()
            self.depth -= 1

    def act(self) -> None:
        node = self.rng.choice(list(self.nodes))
        (step,) = self.rng.choices([one for _, one in self.acts], [weight for weight, _ in self.acts])
        with suppress(StoreUnavailable):
            step(node, self.nodes[node])
        if self.late and self.rng.random() < 0.3:
            self.late.pop(0)()
        self.check()

    # What a unit of work does.

    def put(self, node: str, store: Engine) -> None:
        self.made += 1
        lane = self.rng.choice(list(POLICIES))
        one = Fire(
            key=f"a.j@{self.made:04}",
            job="a.j",
            due_at=START + timedelta(seconds=self.made),
            lane=lane,
            policy=POLICIES[lane],
            origin=self.rng.choice(["manual", "push"]),
            queue=self.rng.choice(QUEUES),
        )
        if store.put([one]) == [True]:
            self.recorded.add(one.key)

    def claim(self, node: str, store: Engine) -> None:
        if self.rng.random() < 0.8 or not self.numbers[node]:
            self.numbers[node] += 1
        sent, limit = self.clock.monotonic(), self.rng.choice([1, 3])
        queues = self.rng.choice([QUEUES, *((queue,) for queue in QUEUES)])
        grants = store.claim(Ask("a", node, self.numbers[node], limit=limit, queues=queues))
        for claim in grants.claims:
            self.held[node].append(claim)
            if claim.disposition is None and (claim.fire.key, claim.fence) not in self.ended:
                self.trusted[claim.fire.key, claim.fence] = claim, sent + claim.ttl_s

    def finish(self, node: str, store: Engine) -> None:
        if not self.held[node]:
            return
        claim = self.held[node].pop(self.rng.randrange(len(self.held[node])))
        verdict = self.rng.choice([DONE, DONE, AGAIN, GIVEN_BACK])
        self.trusted.pop((claim.fire.key, claim.fence), None)
        self.ended.add((claim.fire.key, claim.fence))
        try:
            store.finish([Report(claim, Verdict(claim.disposition) if claim.disposition else verdict)])
        except StoreUnavailable:
            self.held[node].append(claim)

    def renew(self, node: str, store: Engine) -> None:
        if not self.held[node]:
            return
        claim, sent = self.rng.choice(self.held[node]), self.clock.monotonic()
        (stop,) = store.renew([claim])
        name = claim.fire.key, claim.fence
        if name in self.trusted and (stop is None or stop.kind != "lost"):
            self.trusted[name] = claim, sent + claim.ttl_s

    def cancel(self, node: str, store: Engine) -> None:
        if self.recorded:
            store.cancel(self.rng.choice(sorted(self.recorded)))

    def control(self, node: str, store: Engine) -> None:
        store.note("a", PAUSE + "a.j", self.rng.choice(["", "maintenance"]))

    def deploy(self, node: str, store: Engine) -> None:
        store.set_jobs("a", store.look("a").generation, {"a.j": self.rng.choice(["r1", "r2"])})

    def pass_time(self, node: str, store: Engine) -> None:
        self.clock.pass_time(self.rng.choice([0.1, 5.0, 20.0]))

    # What must hold.

    def check(self) -> None:
        steady, state = self.clock.monotonic(), self.driver.state
        lanes, work = defaultdict(list), defaultdict(list)
        for record in state.records.values():
            lanes[record.fire.lane].append(record)
        for lane, members in lanes.items():
            assert not lane or wrong_lane(members, (), steady) == ""
        for claim, until in self.trusted.values():
            if until > steady:
                work[claim.fire.lane or claim.fire.key].append(claim)
        for where, claims in work.items():
            assert len(claims) <= claims[0].fire.policy.max_running, f"{where} has two live claims"
        rated_at = self.driver.rated_at[-20:]
        for at in rated_at:
            assert sum(at <= other < at + RATED.window_s for other in rated_at) <= RATED.most, "rate"
        clocks = self.clock.wall(), steady
        assert list(forgotten_lanes(state.records.values(), self.graces(), clocks)) == []

    def graces(self) -> dict[str, list[float]]:
        ends = [self.clock.monotonic() + 1.0] * 9
        return {lane: ends for lane, policy in POLICIES.items() if policy.grace_s}

    def run(self) -> int:
        """Returns how many commits were refused."""
        for _ in range(ACTS):
            self.act()
        for commit in self.late:
            commit()
        self.drain()
        assert self.recorded <= self.driver.state.records.keys(), "a fire was lost"
        return sum(driver.refused for driver in self.drivers)

    def drain(self) -> None:
        """Without trouble, every fire ends soon."""
        store = Engine(self.driver)
        for number in range(1, 200):
            grants = store.claim(Ask("a", "last", number, limit=50, queues=QUEUES))
            for claim in grants.claims:
                store.finish([Report(claim, Verdict(claim.disposition) if claim.disposition else DONE)])
            self.check()
            if all(one.state == "over" for one in store.find(Query("a", limit=1000))):
                return
            self.clock.pass_time(min(grants.next_in_s, TTL_S) + 0.001)
        left = [one.fire.key for one in store.find(Query("a", limit=1000)) if one.state != "over"]
        raise AssertionError(f"these fires never end: {left}")


def test_the_invariants_hold_whatever_others_do() -> None:
    refused = 0
    for seed in range(SEEDS):
        try:
            refused += World(seed).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert refused > 5 * SEEDS, "others acted in time"


class NoRecordVersions(Watched):
    def _is_same(self, write: Write, steady: float) -> bool:
        return write.record.fire.key in self.state.records


class NoCharges(Watched):
    def _is_current(self, app: str, group: Group, steady: float) -> bool:
        cells = [one for one in group.cells if not one.name.startswith("charge/")]
        return super()._is_current(app, group._replace(cells=cells), steady)


class FencesOfOneCommitAreEqual(Watched):
    def _put(self, write: Write, first_fence: int) -> None:
        if write.record.fence < 0:
            record = write.record.copy()
            record.fence = -1
            write = write._replace(record=record)
        super()._put(write, first_fence)


@pytest.mark.parametrize(
    "mutant",
    [NoRecordVersions, NoCharges, FencesOfOneCommitAreEqual],
)
def test_a_driver_without_a_check_is_found(mutant: type[Watched]) -> None:
    with pytest.raises((AssertionError, KeyError)):
        for seed in range(SEEDS):
            World(seed, mutant).run()
