"""The guarantees on whole fleets in virtual time: each faulty scenario, 10,000 fires in every test run.

`make sim` runs as many seeds as you like; `make mutants` looks for every planted bug.
"""

import pytest

from detent.testing.sim.campaign import hunt
from detent.testing.sim.fleet import Sim
from detent.testing.sim.mutants import MUTANTS
from detent.testing.sim.mutants.registry import KINDS

FAULTY = ("rough", "failover", "gentle", "deploy", "crash")
FIRES_EACH = 2_000
HOURS, FIRES_AN_HOUR = 4.0, 700  # about, of a small fleet


@pytest.mark.parametrize("scenario", FAULTY)
def test_the_guarantees_hold_for_fleets_under_faults(scenario: str) -> None:
    fires, seed = 0, 10_000 * FAULTY.index(scenario)
    while fires < FIRES_EACH:
        hours = min(HOURS, 0.1 + (FIRES_EACH - fires) / FIRES_AN_HOUR)  # the last run may be short
        sim = Sim(seed, scenario, hours)
        assert sim.run().broken == [], f"seed {seed}, {scenario}, {hours} hours"
        fires, seed = fires + len(sim.store.shadow.finals), seed + 1


def test_a_fleet_without_faults_launches_every_fire_in_time() -> None:
    sim = Sim(4, "calm", hours=1)
    checker = sim.run()
    assert checker.broken == []
    assert not {"lost", "missed", "store-unavailable", "fenced"} & checker.events.keys()
    assert checker.events["success"] > 300


def test_a_seed_always_gives_the_same_history() -> None:
    histories = [Sim(11, "rough", hours=0.5).run().events for _ in range(2)]
    assert histories[0] == histories[1]


def test_a_quiet_fleet_hardly_calls_its_store() -> None:
    hours = 6
    sim = Sim(1, "calm", hours=hours)
    sim.jobs = {}
    sim.define("skip", 86_400)
    assert sim.run().broken == []
    beats = sim.store.calls["note"] + sim.store.calls["notes"]
    assert beats < 3 * (hours + 1) * 360 * len(sim.nodes), "two calls every 10 s, and one every 30 s"
    others = sum(sim.store.calls.values()) - beats
    assert others < hours * len(sim.nodes) * 200, "no loop spins"


FOUND_SOON = [
    "replacement_starts_before_holder_ends",
    "finish_ignores_fence",
    "WorkIsStoppedOnlyByNode",
    "LostFireIsAlwaysRerun",
    "CommitIgnoresRecordVersions",
]


@pytest.mark.parametrize("name", FOUND_SOON)
def test_a_planted_bug_is_found(name: str) -> None:
    _, seed, how = hunt(name)
    assert seed is not None, f"{name} was not found"
    assert how


def test_every_part_of_the_system_has_planted_bugs() -> None:
    parts = {part for one in MUTANTS.values() for part in one.choices}
    assert len(MUTANTS) >= 45 and parts == {*KINDS.values()}
    assert sum(one.replacement is not None for one in MUTANTS.values()) >= 20
