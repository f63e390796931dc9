"""Races of real processes on one store.

The processes start together behind a barrier, and each opens the store itself.  Each writes its observations
to a file; the checks read all files.  Instants are monotonic seconds, which all processes of a host share.
"""

from __future__ import annotations

import json
import multiprocessing
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from multiprocessing.synchronize import Barrier
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from detent.clock import monotonic
from detent.model import Ask, Claim, Command, Job, Policy, Query, Report, Verdict
from detent.rules.planning import fire_at, plan
from detent.stores.base import Store, find_all
from detent.testing.stores.fixtures import DONE, START, Every, fire

PROCESSES = 8
KEYS = 200
ROUNDS = 15
LANES = 3
PRELOADED = [f"detent.stores.{one}.store" for one in ("sqlite", "redis", "postgres", "mysql")]
PRELOADED += ["redis", "psycopg", "pymysql"]  # those that are installed
RACE_MAX_S = 120.0  # a longer race is stuck
CALL_MAX_S = 5.0  # the longest wait for one call
FAIR_S = 1.5
SHARE_MIN = 1 / (5 * PROCESSES)  # of all rounds: a fifth of an equal share
FIND_MAX = 1_000_000

Opener = Callable[[Path], Store]
Part = Callable[[Store, int], list[Any]]  # runs in one process, returns its observations
JOB = Job("a.tick", Every(START, 1), Command(("true",)), Policy(), revision="r1")


class Launch(NamedTuple):
    """One claim of a process, and from when until when the process believed to have it."""

    key: str
    lane: str
    fence: int
    disposition: str
    start: float
    end: float


class Turns(NamedTuple):
    """How many rounds a process made, and its longest wait."""

    rounds: int
    longest_s: float


def race_to_put(opener: Opener, path: Path) -> None:
    """All put the same keys in different orders: each key is new exactly once."""
    fresh = Counter(key for seen in run_race(_put_all, opener, path) for key in seen)
    assert len(fresh) == KEYS, f"{KEYS - len(fresh)} keys were new to no process"
    assert set(fresh.values()) == {1}, f"fresh more than once: {[k for k, n in fresh.items() if n > 1]}"


def race_to_run(opener: Opener, path: Path) -> None:
    """All put, claim and finish: each fire is granted once, and no lane is held twice."""
    launches = [Launch(*one) for seen in run_race(_run_all, opener, path) for one in seen]
    judge_launches(launches)
    settled = Counter(one.key for one in launches)
    assert len(settled) == PROCESSES * ROUNDS * 2, f"{len(settled)} fires of {PROCESSES * ROUNDS * 2} came up"


def race_to_plan(opener: Opener, path: Path) -> None:
    """All set and plan the same job: each instant once, without a gap."""
    seen_by_all = run_race(_plan_all, opener, path)
    assert {generation for seen in seen_by_all for generation, _ in seen} == {1}
    for instants in ([at for _, at in seen] for seen in seen_by_all):
        assert instants == sorted(instants), "a watermark went back"
    store = opener(path)
    rows = find_all(store, Query(job=JOB.name, limit=FIND_MAX))
    recorded = sorted(row.fire.due_at for row in rows)
    wanted = list(JOB.schedule.between(JOB.schedule.before(recorded[0]) or START, recorded[-1]))
    assert recorded == wanted, f"{len(recorded)} instants recorded, {len(wanted)} wanted"
    assert {row.fire for row in rows} == {fire_at(JOB, at) for at in wanted}
    last = store.look("a").by_job[JOB.name].at
    assert JOB.schedule.before(last) == recorded[-1] or last == recorded[-1]
    store.close()


def race_for_turns(opener: Opener, path: Path) -> None:
    """All call as fast as they can: no process waits long, and each gets a share."""
    turns = [Turns(*one) for seen in run_race(_take_turns, opener, path) for one in seen]
    total, longest_s = sum(one.rounds for one in turns), max(one.longest_s for one in turns)
    assert longest_s < CALL_MAX_S, f"a process waited {longest_s:.1f} s for one call"
    assert min(one.rounds for one in turns) >= SHARE_MIN * total, f"uneven shares: {turns}"


def judge_launches(launches: list[Launch]) -> None:
    """Check that each fire and each fence was granted once, and each lane was held by one at a time."""
    granted = Counter(one.key for one in launches)
    twice = [key for key, times in granted.items() if times > 1]
    assert not twice, f"granted more than once: {twice}"
    assert len({one.fence for one in launches}) == len(launches), "a fence was given twice"
    for lane in {one.lane for one in launches} - {""}:
        held = sorted((one for one in launches if one.lane == lane and not one.disposition), key=_start)
        for earlier, later in pairwise(held):
            assert earlier.end <= later.start, f"{later.key} started while {earlier.key} held lane {lane}"


def run_race(part: Part, opener: Opener, path: Path, processes: int = PROCESSES) -> list[list[Any]]:
    """Run this part in several processes on the store at `path`; return the observations of each."""
    opener(path).close()  # creating the store is not part of the race
    context = multiprocessing.get_context("forkserver")  # with spawn, each process would import everything
    context.set_forkserver_preload([__name__, *PRELOADED])
    gate, saw = context.Barrier(processes), [path.with_name(f"saw-{n}.json") for n in range(processes)]
    players = [
        context.Process(target=_play, args=(part, (opener, path), number, gate, saw[number]), daemon=True)
        for number in range(processes)
    ]
    for player in players:
        player.start()
    for number, player in enumerate(players):
        player.join(RACE_MAX_S)
        assert player.exitcode == 0, f"process {number} of the race ended with {player.exitcode}"
    return [json.loads(one.read_text()) for one in saw]


def _play(part: Part, opened: tuple[Opener, Path], number: int, gate: Barrier, saw: Path) -> None:
    opener, path = opened
    store = opener(path)
    gate.wait(RACE_MAX_S)
    saw.write_text(json.dumps(part(store, number)))
    store.close()


def _put_all(store: Store, number: int) -> list[Any]:
    order = list(range(KEYS))
    Random(number).shuffle(order)
    fresh = []
    for first in range(0, KEYS, 20):
        keys = [f"a.b@{n}" for n in order[first : first + 20]]
        answers = store.put([fire(key) for key in keys])
        fresh += [key for key, new in zip(keys, answers, strict=True) if new]
    return fresh


def _run_all(store: Store, number: int) -> list[Any]:
    """Run rounds of one fire with a lane and one without, then until nothing is left."""
    launches: list[Launch] = []
    for turn in range(ROUNDS):
        name = f"{turn:03}-{number}"
        store.put([fire(f"a.lane{turn % LANES}@{name}", "Queue"), fire(f"a.free@{name}")])
        launches += _run_due(store, number, turn + 1)
    turn = ROUNDS
    while any(store.find(Query(state=state, limit=1)) for state in ("pending", "claimed")):
        turn += 1
        launches += _run_due(store, number, turn)
    return launches


def _run_due(store: Store, number: int, turn: int) -> list[Launch]:
    claims = store.claim(Ask("a", f"n{number}", turn, limit=2)).claims
    start = monotonic()
    launches = [_launch(claim, start) for claim in claims]
    store.finish([Report(claim, _verdict(claim)) for claim in claims])
    return launches


def _launch(claim: Claim, start: float) -> Launch:
    disposition = claim.disposition.kind if claim.disposition else ""
    return Launch(claim.fire.key, claim.fire.lane, claim.fence, disposition, start, monotonic())


def _verdict(claim: Claim) -> Verdict:
    return Verdict(claim.disposition) if claim.disposition else DONE


def _plan_all(store: Store, number: int) -> list[Any]:
    seen = []
    watermarks = store.set_jobs("a", 0, {JOB.name: JOB.revision})
    for turn in range(1, ROUNDS + 1):
        plans = [plan(JOB, watermarks.by_job[JOB.name], watermarks.now, ahead_s=5.0 * turn)]
        watermarks = store.advance("a", plans)
        seen.append((watermarks.generation, watermarks.by_job[JOB.name].at.timestamp()))
    return seen


def _take_turns(store: Store, number: int) -> list[Any]:
    begun, turn, longest_s = monotonic(), 0, 0.0
    while monotonic() < begun + FAIR_S:
        turn += 1
        waits = monotonic()
        store.put([fire(f"a.b@{number}-{turn}")])
        _run_due(store, number, turn)
        longest_s = max(longest_s, monotonic() - waits)
    return [Turns(turn, longest_s)]


def _start(launch: Launch) -> float:
    return launch.start
