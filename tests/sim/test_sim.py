"""The promise, on whole fleets in virtual time: at least 50,000 fires under faults in every test run."""

import pytest

from detent.testing.sim.campaign import hunt
from detent.testing.sim.fleet import Sim
from detent.testing.sim.mutants import (
    MUTANTS,
    FinishIgnoresFence,
    LostFireIsAlwaysRerun,
    ReplacementStartsBeforeHolderEnds,
    WorkIsStoppedOnlyByNode,
)

FAULTY = ("rough", "failover", "gentle", "deploy", "crash")
CHUNKS, FIRES_EACH = 10, 5_000
HOURS, FIRES_AN_HOUR = 4.0, 700  # of a fleet; about


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_promise_holds_for_fleets_under_faults(chunk: int) -> None:
    fires, seed = 0, 10_000 * (chunk + 1) + chunk  # each begins with another scenario
    while fires < FIRES_EACH:
        hours = min(HOURS, 0.1 + (FIRES_EACH - fires) / FIRES_AN_HOUR)  # the last one need not be long
        sim = Sim(seed, FAULTY[seed % len(FAULTY)], hours)
        assert sim.run().broken == [], f"seed {seed}, {sim.scenario}, {hours} hours"
        fires, seed = fires + len(sim.store.shadow.finals), seed + 1
    assert fires * CHUNKS >= 50_000


def test_a_fleet_without_faults_launches_everything_in_time() -> None:
    sim = Sim(4, "calm", hours=1)
    checker = sim.run()
    assert checker.broken == []
    assert not {"lost", "missed", "store-unavailable", "fenced"} & checker.events.keys()
    assert checker.events["success"] > 300


def test_a_seed_repeats_its_history() -> None:
    histories = [Sim(11, "rough", hours=0.5).run().events for _ in range(2)]
    assert histories[0] == histories[1]


def test_a_quiet_fleet_hardly_calls_its_store() -> None:
    sim = Sim(1, "calm", hours=24)
    sim.jobs = {}
    sim.define("skip", 86_400)
    assert sim.run().broken == []
    beats = sim.store.calls["note"] + sim.store.calls["notes"]
    assert beats < 3 * 25 * 360 * len(sim.nodes), "two calls every 10 s, and one every 30 s"
    others = sum(sim.store.calls.values()) - beats
    assert others < 24 * len(sim.nodes) * 200, "no loop spins"


QUICK = [
    ReplacementStartsBeforeHolderEnds,
    FinishIgnoresFence,
    WorkIsStoppedOnlyByNode,
    LostFireIsAlwaysRerun,
]


@pytest.mark.parametrize("mutant", QUICK)
def test_a_planted_fault_is_found(mutant: type) -> None:
    name, seed, how = hunt(mutant)
    assert seed is not None, f"{name} was not found"
    assert how


def test_there_are_enough_planted_faults() -> None:
    assert len(MUTANTS) >= 12 + 4
