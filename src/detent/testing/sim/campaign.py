"""Runs many seeds:  python -m detent.testing.sim.campaign seeds FIRST COUNT | mutants [NAME …] | idle

`seeds` runs seeds one scenario after the other, two at a time, some with a large fleet, and ends with 1 if
the promise was broken in any of them.  `mutants` looks for each planted bug: first with the rules of the
stores, then with seeds.  `idle` says what a quiet fleet costs.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from multiprocessing import get_context
from typing import Any

from detent import clock
from detent.stores.base import Store
from detent.stores.engine.engine import Engine
from detent.testing.check_store import CHECKS, FakeClock, NotOffered, World, run_check, sentence
from detent.testing.sim.checked_store import CheckedDriver
from detent.testing.sim.checker import Checker
from detent.testing.sim.fleet import LARGE, SCENARIOS, SMALL, Sim
from detent.testing.sim.mutants import MUTANTS
from detent.testing.sim.triggers import TriggerSim

PROCESSES = 2
MUTANT_SEEDS, HOURS = 16, 4.0  # seeds for each planted bug, and hours of a seed


def simulate(seed: int, kind: type[Sim] = Sim, **choices: Any) -> tuple[int, list[str], Counter[str]]:
    """Run one seed; its number selects the scenario."""
    sim = kind(seed, SCENARIOS[seed % len(SCENARIOS)], **choices)
    checker = sim.run()
    counts = checker.events + Counter({f"call.{verb}": n for verb, n in sim.store.calls.items()})
    launches = sum(map(len, checker.launches.values()))
    counts += Counter({"fires": len(sim.store.shadow.finals), "launches": launches, "seeds": 1})
    return seed, checker.broken, counts


def simulate_any(seed: int) -> tuple[int, list[str], Counter[str]]:
    """Run one seed.  Every third round of the scenarios has a large fleet; `crash` has triggers too."""
    kind = TriggerSim if SCENARIOS[seed % len(SCENARIOS)] == "crash" else Sim
    return simulate(seed, kind, fleet=LARGE if seed // len(SCENARIOS) % 3 == 2 else SMALL)


def campaign(first: int, count: int) -> tuple[Counter[str], list[str]]:
    """Run these seeds; return the counts and the violations."""
    total, broken = Counter[str](), []
    with get_context("spawn").Pool(PROCESSES) as pool:
        for seed, wrong, counts in pool.imap_unordered(simulate_any, range(first, first + count)):
            total += counts
            broken += [f"seed {seed} ({SCENARIOS[seed % len(SCENARIOS)]}): {what}" for what in wrong[:3]]
    return total, broken


def hunt(name: str, hours: float = HOURS) -> tuple[str, str, str]:
    """Return what finds the planted bug, and the violation: a rule of the stores, or a seed that is clean
    without the bug.  Seeds of its own scenario come first."""

    def is_other(seed: int) -> bool:
        return SCENARIOS[seed % len(SCENARIOS)] != mutant.scenario

    mutant = MUTANTS[name]
    assert not _rule_that_is_always_broken(), "a rule finds bugs that are not there"
    with mutant.planted() as choices:
        if rule := broken_rule(choices.get("driver_type", CheckedDriver)):
            return name, "rule", rule
    for seed in sorted(range(MUTANT_SEEDS), key=is_other):
        with mutant.planted() as choices:
            try:
                _, broken, _ = simulate(seed, hours=hours, **choices)
            except Exception as error:  # a planted bug may break anything
                broken = [repr(error)]
        if broken and _is_clean(seed, hours):
            return name, f"seed {seed}", broken[0]
    return name, "", ""


@cache
def _is_clean(seed: int, hours: float) -> bool:
    """Whether the seed finds nothing without a planted bug; many bugs are found by the same few seeds."""
    return not simulate(seed, hours=hours)[1]


@cache
def _rule_that_is_always_broken() -> str:
    return broken_rule(CheckedDriver)


def broken_rule(driver_type: type[CheckedDriver]) -> str:
    """Return the first rule of the stores that the engine breaks on this driver, or "".  Rules about jobs
    that the simulator does not know end with another error, and are not judged."""
    drivers: list[CheckedDriver] = []
    clocks = FakeClock()

    def opener() -> Engine:
        drivers.append(driver_type((clocks.wall, clocks.monotonic), lambda: None, {}, Checker()))
        return Engine(drivers[-1])

    def new_epoch(store: Store) -> Store:
        drivers[-1].new_epoch()
        return store

    world = World(opener, clocks.pass_time, clocks.step_wall, None, new_epoch)
    for check in CHECKS:
        try:
            run_check(check, world)
        except NotOffered:
            continue
        except AssertionError as error:
            if isinstance(error.__cause__, AssertionError):
                return sentence(check)
    return ""


def hunt_all(names: list[str]) -> Iterator[tuple[str, str, str]]:
    with get_context("spawn").Pool(PROCESSES) as pool:
        yield from pool.imap_unordered(hunt, names or list(MUTANTS))  # some bugs take long to find


def idle(hours: float = 10.0) -> Iterator[str]:
    """Measure a fleet without faults: with all jobs, and with one daily job."""
    for quiet in (False, True):
        begun, sim = clock.monotonic(), Sim(1, "calm", hours)
        if quiet:
            sim.jobs = {}
            sim.define("skip", 86_400)
        broken = sim.run().broken
        took_s, fires = clock.monotonic() - begun, len(sim.store.shadow.finals)
        calls = {verb: round(n / hours / len(sim.nodes)) for verb, n in sim.store.calls.items()}
        yield (
            f"{len(sim.nodes)} nodes, {hours:g} h: {fires} fires, {took_s / hours * 1000:.0f} ms an hour, "
            f"calls per node and hour: {calls}, broken: {len(broken)}"
        )


def main(words: list[str]) -> int:
    match words:
        case ["seeds", first, count]:
            total, broken = campaign(int(first), int(count))
            print(*broken, sep="\n")
            print(dict(sorted(total.items())))
            print(f"{total['fires']} fires in {total['seeds']} seeds: {len(broken)} violations")
            return 1 if broken else 0
        case ["mutants", *names]:
            missed = 0
            for name, where, how in hunt_all(names):
                missed += not where
                print(f"{name}: " + (f"{where}: {how[:120]}" if where else "NOT FOUND"), flush=True)
            print(f"{missed} not found by a rule or in {MUTANT_SEEDS} seeds each")
            return 1 if missed else 0
        case ["idle"]:
            print(*idle(), sep="\n")
            return 0
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
