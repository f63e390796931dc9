"""`make chaos`: real nodes on a real store, about one fault per second, and a judge at the end.

`python -m tests.chaos.run redis --minutes 20 --seed 7` writes a page, and exits with 1 if there is a
violation.
"""

from __future__ import annotations

import argparse
import json
import pickle
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.chaos.evidence import Clock, Evidence, read_seen
from tests.chaos.faults import Chaos, Fault
from tests.chaos.gaps import BUDGET_S, QUARANTINE, gaps, union
from tests.chaos.jobs import APP
from tests.chaos.judge import Violation, judge, outcomes, takeovers
from tests.chaos.report import Heading, page
from tests.chaos.servers import STORES
from tests.chaos.viewers import Viewers
from tests.chaos.world import World

from detent.errors import StoreUnavailable
from detent.stores.registry import open_store

LOOK_S, QUARANTINE_LOOK_S = 0.5, 0.2
STALL_S = 1.0  # a short sleep that takes this much longer: the machine was busy


class Setup(NamedTuple):
    """One chaos run."""

    store: str
    seconds: float
    seed: int
    pause_s: float = 0.9  # between two faults, on average
    program: tuple[str, ...] = ("-m", "detent")
    only: frozenset[str] = frozenset()  # kinds of faults; empty: all
    pairs: bool = False
    viewers: int = 0  # open pages of a dashboard
    settle_s: float = 60.0  # time at the end for everything to be settled


class Stalls:
    """Detects when the machine stalls: then a node may be late."""

    def __init__(self) -> None:
        self.log: list[Fault] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        last = time.monotonic()
        while not self._over.wait(0.1):
            now = time.monotonic()
            if now - last > STALL_S:
                self.log.append(Fault("stall", "fleet", last, now, f"{now - last:.1f} s"))
            last = now

    def end(self) -> None:
        self._over.set()
        self._thread.join()


class Quarantines:
    """Detects when a store is in quarantine."""

    def __init__(self, url: str) -> None:
        self._spans: list[tuple[float, float]] = []
        self._store = open_store(url)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(QUARANTINE_LOOK_S):
            asked = time.monotonic()
            with suppress(StoreUnavailable):
                watermarks = self._store.look(APP)
                if watermarks.quarantined_until:
                    left_s = (watermarks.quarantined_until - watermarks.now).total_seconds()
                    self._spans.append((asked, time.monotonic() + min(left_s, 2 * QUARANTINE_LOOK_S)))

    def end(self) -> list[Fault]:
        self._over.set()
        self._thread.join()
        self._store.close()
        spans = union(self._spans)
        return [Fault(QUARANTINE, "store", at, until, f"{until - at:.1f} s") for at, until in spans]


def run(folder: Path, setup: Setup) -> tuple[Evidence, list[Violation]]:
    """Run everything, from the first node to the verdict."""
    world, stalls = World(folder, setup.store, setup.program, setup.pairs), Stalls()
    quarantines = None if world.store.keeps_epoch else Quarantines(world.store.url)
    try:
        world.start()
        viewers = Viewers(world, setup.viewers) if setup.viewers else None
        if viewers:
            viewers.wait()
        chaos = Chaos(world, setup.seed, setup.only)
        chaos.run(setup.seconds, setup.pause_s)
        chaos.end_all()
        faults_ended_at = world.store.clock.now()
        _await_settled(world, faults_ended_at, setup.settle_s)
        stopped_at = time.monotonic()
        viewed, problems = viewers.end() if viewers else ({}, [])
        broken = [*chaos.broken, *problems, *_stop(world)]
        ended = Fault("end of the run", "fleet", stopped_at, time.monotonic())
        quarantined = quarantines.end() if quarantines else []
        evidence = Evidence(
            seen=tuple(read_seen(world.place.file)),
            rows=tuple(world.find(faults_ended_at + 3600)),
            faults=tuple(sorted([*chaos.log, *stalls.log, *quarantined, ended], key=lambda fault: fault.at)),
            clock=Clock(world.store.clock.offset, tuple(world.store.clock.history)),
            began_at=world.began_at,
            faults_ended_at=faults_ended_at,
            hooks=world.store.keeps_epoch,
            events=tuple(one for member in world.members for life in member.lives for one in life.events()),
            broken=(*broken, *_plain_lines(world)),
            viewed=viewed,
        )
        (folder / "evidence").write_bytes(pickle.dumps(evidence))  # to judge it again
    finally:
        stalls.end()
        world.clear_up()
    return evidence, judge(evidence)


def _await_settled(world: World, faults_ended_at: float, within_s: float) -> None:
    """Wait for all fires to be settled; the judge finds those that are not."""
    give_up_at = time.monotonic() + within_s
    while not world.is_settled(faults_ended_at) and time.monotonic() < give_up_at:
        time.sleep(LOOK_S)


def _stop(world: World) -> list[str]:
    codes = world.stop()
    left = world.survivors()
    problems = [
        f"node {one.name} ended with {code}" for one, code in zip(world.members, codes, strict=True) if code
    ]
    return problems + (
        [f"{len(left)} processes of work outlived their nodes: {sorted(left)}"] if left else []
    )


def _plain_lines(world: World) -> list[str]:
    lives = [life for member in world.members for life in member.lives]
    return [f"{life.log}: {line}" for life in lives for line in life.plain_lines()]


# The command.


def figures(evidence: Evidence, violations: Sequence[Violation]) -> dict[str, object]:
    after_s, found = takeovers(evidence), gaps(evidence)
    longest_s = max((one.length_s for one in found), default=0.0)
    beyond = max(found, key=lambda one: one.beyond_s, default=None)
    return {
        "fires": sum(row.fire.instants for row in evidence.rows if row.fire.origin == "schedule"),
        "launches": sum(1 for _ in evidence.starts()),
        "outcomes": dict(outcomes(evidence.rows)),
        "faults": len(evidence.faults),
        "faults by kind": dict(Counter(fault.kind for fault in evidence.faults).most_common()),
        "takeovers": len(after_s),
        "takeover, median and longest, s": [round(after_s[len(after_s) // 2], 1), round(after_s[-1], 1)]
        if after_s
        else [],
        "longest gap of the job of each second, s": round(longest_s, 1),
        "longest while the store answered, s": round(beyond.beyond_s, 1) if beyond else 0.0,
        "budget of that (a claim and 5 s)": BUDGET_S,
        "faults meanwhile": [f"{one.kind} {one.target} {one.detail}".strip() for one in beyond.faults]
        if beyond
        else [],
        "viewers": evidence.viewed,
        "violations": dict(Counter(one.kind for one in violations)),
    }


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description="Faults by the second, and a judge.")
    parser.add_argument("stores", nargs="*", metavar="STORE", help=f"{', '.join(STORES)} (default: all)")
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0.9, help="seconds between two faults, on average")
    parser.add_argument("--pairs", action="store_true", help="two of the three nodes share a host")
    parser.add_argument("--viewers", type=int, default=0, help="open pages of a dashboard")
    parser.add_argument("--page", type=Path, default=Path(".detent"), help="the folder for the reports")
    given = parser.parse_args(words)
    code = 0
    for store in given.stores or STORES:
        if store not in STORES:
            parser.error(f'there is no store "{store}": use {" or ".join(STORES)}')
        folder = Path(tempfile.mkdtemp(prefix="detent-chaos-"))
        setup = Setup(
            store,
            given.minutes * 60,
            given.seed,
            given.pause,
            pairs=given.pairs,
            viewers=given.viewers,
        )
        evidence, violations = run(folder, setup)
        given.page.mkdir(parents=True, exist_ok=True)
        file = given.page / f"chaos-{store}-{given.seed}.html"
        command = f"make chaos CHAOS='{store} --minutes {given.minutes:g} --seed {given.seed}'"
        file.write_text(page(Heading(store, given.minutes, given.seed, command), evidence, violations))
        print(json.dumps({"store": store, "seed": given.seed, **figures(evidence, violations)}, indent=2))
        for one in violations[:50]:
            print(f"{one.kind}: {one.key} {one.text}")
        print(f"the picture: {file}")
        if violations:
            code = 1
            print(f"its logs: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
