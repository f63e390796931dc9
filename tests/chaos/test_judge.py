"""The judge of chaos runs finds each violation, and finds nothing in a correct run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.chaos.evidence import Clock, Evidence, Seen
from tests.chaos.faults import Fault
from tests.chaos.gaps import gaps
from tests.chaos.jobs import TRIALS
from tests.chaos.judge import judge, takeovers
from tests.chaos.report import Heading, page

from detent.model import Attempt, Fire, Outcome, Row

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
OFFSET = NOON.timestamp() - 1000.0  # at noon the monotonic clock shows 1000
UNTIL_S = 3  # seconds of schedules
KEYS = {
    trial.name: [
        f"{trial.job}@{NOON + timedelta(seconds=n):%Y-%m-%dT%H:%M:%SZ}"
        for n in range(1, UNTIL_S + 1)
        if trial.is_instant(int(NOON.timestamp()) + n)
    ]
    for trial in TRIALS
}
TICK, RERUN, FLAKY = KEYS["tick"][0], "c.rerun@2026-03-01T12:00:00Z", KEYS["flaky"][0]


def seen(what: str, key: str, **known: Any) -> Seen:
    line = Seen(what, 1001.5, 7, 0, 0, "a.1", 10, 1, "id", key)
    return line._replace(**known)


def row(key: str, *attempts: Attempt, kind: str = "succeeded", **known: Any) -> Row:
    due_at = datetime.strptime(key.partition("@")[2], "%Y-%m-%dT%H:%M:%S%z")
    fire = Fire(key=key, job=key.partition("@")[0], due_at=due_at)
    whole = Row(fire, "over", len(attempts), outcome=Outcome(kind), attempts=attempts)  # type: ignore[arg-type]
    return whole._replace(**known)


def attempt(number: int = 1, kind: str = "succeeded", **known: Any) -> Attempt:
    at = NOON + timedelta(seconds=1.5)
    one = Attempt(number, "a.1", 10, at, at + timedelta(seconds=1), Outcome(kind))  # type: ignore[arg-type]
    return one._replace(**known)


def evidence(*lines: Seen, rows: tuple[Row, ...] = (), **known: Any) -> Evidence:
    """Return evidence in which every other instant was skipped."""
    given = {one.fire.key for one in rows}
    others = [row(key, kind="skipped") for keys in KEYS.values() for key in keys if key not in given]
    clock = Clock(OFFSET, ((0.0, 0.0),))
    whole = Evidence(lines, (*rows, *others), (), clock, NOON.timestamp(), NOON.timestamp() + UNTIL_S)
    return whole._replace(**known)


def kept(**known: Any) -> Evidence:
    lines = seen("start", TICK), seen("end", TICK, at=1001.6)
    return evidence(*lines, rows=(row(TICK, attempt()),), **known)


def without(key: str) -> Evidence:
    whole = kept()
    return whole._replace(rows=tuple(one for one in whole.rows if one.fire.key != key))


ONE, END = seen("start", TICK), seen("end", TICK, at=1001.6)
LATER = {"at": 1002.5, "fence": 11, "node": "b.1"}
LOST = attempt(kind="lost")
CUT = Fault("cut", "a", 1001.0, 1009.0)
RERUN_LINES = seen("start", RERUN), seen("start", RERUN, attempt=2, **LATER), seen("end", RERUN, attempt=2)
RERUN_ROW = row(RERUN, LOST, attempt(2, fence=11, node="b.1"))

BROKEN = {
    "two of a lane at a time": (
        "overlap",
        evidence(ONE._replace(place=-1), END, rows=(row(TICK, attempt()),)),
    ),
    "an attempt launched twice": (
        "duplicate",
        evidence(ONE, END, ONE._replace(**LATER), rows=(row(TICK, attempt()),)),
    ),
    "a second attempt where there may be one": (
        "duplicate",
        evidence(ONE, END, ONE._replace(attempt=2, **LATER), rows=(row(TICK, attempt(), attempt(2)),)),
    ),
    "a second attempt of what succeeded": (
        "duplicate",
        evidence(
            *RERUN_LINES, seen("end", RERUN), rows=(row(RERUN, attempt(), attempt(2, fence=11, node="b.1")),)
        ),
    ),
    "a fence that does not grow": (
        "fence",
        evidence(ONE, END, seen("start", KEYS["tick"][1], at=1002.5), rows=(row(TICK, attempt()),)),
    ),
    "work before it was due": ("early", evidence(ONE._replace(at=1000.9), END, rows=(row(TICK, attempt()),))),
    "no launch for longer than a claim and five seconds": (
        "silence",
        evidence(ONE, seen("start", KEYS["tick"][1], at=1011.7, fence=11)),
    ),
    "an instant that is not recorded": ("loss", without(KEYS["tick"][1])),
    "a launch that is not recorded": ("stray", without(TICK)),
    "a record that no schedule names": ("stray", evidence(rows=(row("c.pair@2026-03-01T12:00:01Z"),))),
    "a fire that is not over": ("unsettled", evidence(rows=(row(TICK, state="claimed", outcome=None),))),
    "success without an end": ("lie", evidence(ONE, rows=(row(TICK, attempt()),))),
    "a skipped fire that was launched": ("lie", evidence(ONE, END, rows=(row(TICK, kind="skipped"),))),
    "a failure of work that succeeded": (
        "lie",
        evidence(ONE, END, rows=(row(TICK, attempt(kind="failed")),)),
    ),
    "another node's attempt": ("lie", evidence(ONE, END, rows=(row(TICK, attempt(node="b.1")),))),
    "work that was given up for nothing": ("groundless", evidence(ONE, rows=(row(TICK, LOST, kind="lost"),))),
    "an end that two tell": (
        "reported twice",
        kept(events=({"event": "success", "fire": TICK, "outcome": "x"},) * 2),
    ),
    "a failure without its hook": (
        "loss",
        evidence(rows=(row("c.stuck@2026-03-01T12:00:02Z", kind="missed"),), hooks=True),
    ),
    "a node that broke": ("trouble", kept(broken=("node a ended by itself",))),
}


@pytest.mark.parametrize("name", BROKEN)
def test_it_finds(name: str) -> None:
    kind, broken = BROKEN[name]
    assert kind in {one.kind for one in judge(broken)}


@pytest.mark.parametrize(
    "fine",
    [
        kept(),
        evidence(*RERUN_LINES, rows=(RERUN_ROW,), faults=(CUT,)),
        evidence(ONE, rows=(row(TICK, LOST, kind="lost"),), faults=(CUT,)),
    ],
    ids=["one launch", "a rerun of lost work", "work lost by a cut"],
)
def test_it_finds_nothing_in_a_correct_run(fine: Evidence) -> None:
    assert judge(fine) == []


def test_a_span_accounts_for_its_instants() -> None:
    first, last = KEYS["tick"][1:]
    second = NOON + timedelta(seconds=2)
    span = row(last, kind="missed")
    span = span._replace(fire=span.fire._replace(key=f"{first}..", first_at=second, instants=2))
    whole = kept()
    rows = [one for one in whole.rows if one.fire.key not in (first, last)]
    assert judge(whole._replace(rows=(*rows, span))) == []


def test_a_clock_that_was_set_back_excuses_work_that_was_granted_before() -> None:
    stepped = Clock(OFFSET, ((0.0, 3.0), (1001.0, 0.0)))
    early = evidence(ONE._replace(at=1001.2), END, rows=(row(KEYS["tick"][2], attempt()),), clock=stepped)
    assert not [one for one in judge(early) if one.kind == "early"]


def test_a_takeover_is_measured_from_the_death_to_the_next_work_in_the_lane() -> None:
    killed = Fault("kill node", "a", 1001.7, 1001.8)
    lines = seen("start", FLAKY), seen("start", FLAKY, attempt=2, **LATER)
    assert takeovers(evidence(*lines, faults=(killed,))) == [pytest.approx(0.8)]


def ticks(*at: float) -> list[Seen]:
    return [seen("start", key, at=one) for key, one in zip(KEYS["tick"], at, strict=True)]


def test_a_gap_of_the_job_of_each_second_names_its_faults() -> None:
    cut, before = Fault("cut", "a", 1002.5, 1004.0), Fault("reset", "b", 1000.5, 1000.5)
    _, gap = gaps(evidence(*ticks(1001.0, 1002.0, 1005.5), faults=(before, cut)))
    assert (gap.length_s, gap.beyond_s, gap.faults) == (3.5, 3.5, (cut,))


UNAVAILABLE = {
    "the store is down, and then in quarantine": (
        [Fault("restart store", "store", 1003.0, 1005.0), Fault("quarantine", "store", 1004.5, 1009.0)],
        6.0,
    ),
    "it is locked from before the gap": ([Fault("lock store", "store", 1000.0, 1006.0)], 4.0),
    "all nodes are cut off or dead at once": (
        [
            Fault("cut", "a", 1002.0, 1010.0),
            Fault("kill both", "b", 1004.0, 1006.0),
            Fault("stop node", "c", 1003.0, 1009.0),
        ],
        2.0,
    ),
    "two nodes are cut off, and the third works": (
        [Fault("cut", "a", 1002.0, 1010.0), Fault("cut", "b", 1002.0, 1010.0)],
        0.0,
    ),
}


@pytest.mark.parametrize("name", UNAVAILABLE)
def test_a_gap_leaves_out_the_time_in_which_no_node_can_launch_anything(name: str) -> None:
    faults, excused_s = UNAVAILABLE[name]
    _, gap = gaps(evidence(*ticks(1001.0, 1002.0, 1014.0), faults=tuple(faults)))
    assert (gap.length_s, gap.beyond_s) == (12.0, 12.0 - excused_s)


def test_a_gap_leaves_out_the_time_until_a_clock_that_was_set_back_has_caught_up() -> None:
    clock = Clock(OFFSET, ((0.0, 3.0), (1003.0, 0.0)))
    _, gap = gaps(evidence(*ticks(1001.0, 1002.0, 1014.0), clock=clock))
    assert gap.beyond_s == 9.0


def test_the_page_of_a_run_shows_its_violations_and_needs_nothing_from_elsewhere() -> None:
    _, broken = BROKEN["two of a lane at a time"]
    text = page(Heading("redis", 3, 7, "make chaos"), broken._replace(faults=(CUT,)), judge(broken))
    assert f"<td>overlap<td>0:01.0<td><code>{TICK}</code>" in text
    assert text.count('data-t="cut a') == 1 and 'data-t="c.tick@' in text
    assert "@@" not in text and "http" not in text
