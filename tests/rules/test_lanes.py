"""The decision whether a due fire may run: a table of cases, and rules that hold for every decision."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.model import CatchUp, Concurrency, Fire, Origin, Outcome, Policy
from detent.rules.lanes import (
    HOLD,
    LATE_S,
    RUN,
    WAIT,
    Facts,
    Judgement,
    OpenFire,
    disposition_of,
    is_late,
    judge,
)
from detent.rules.outcomes import (
    JOB_REMOVED,
    NEWER_INSTANT,
    contended,
    is_contended,
    lane_awaited,
    lane_taken,
    node_lost,
    paused,
    replaced_by,
)

NOW = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)
FACTS = Facts(now=NOW, planned_until=NOW + timedelta(seconds=120), paused=None, newer_due=False)
FORBID, QUEUE, REPLACE = Policy("Forbid"), Policy("Queue"), Policy("Replace")
ALL, SKIP = Policy(catch_up="all"), Policy(catch_up="skip")
FAILED = Outcome("failed", "exit 1")


def fire(name: str, due_s: float, policy: Policy = FORBID, origin: Origin = "schedule") -> Fire:
    lane = "" if policy.concurrency == "Allow" else "a.b"
    return Fire(f"a.b@{name}", "a.b", NOW + timedelta(seconds=due_s), lane=lane, policy=policy, origin=origin)


def pending(name: str, due_s: float = 0, policy: Policy = FORBID, **fields: Any) -> OpenFire:
    """A fire that is not claimed, due in `due_s` seconds."""
    one = fire(name, due_s, policy, fields.pop("origin", "schedule"))
    one = one._replace(start_by=fields.pop("start_by", None))
    whole = {"attempt": 0, "due": due_s <= 0, "waits": False, "node": "", "disposition": None, "stop": None}
    return OpenFire(fire=one, state="pending", live=False, **({"outcome": None} | whole | fields))


def claimed(name: str, due_s: float = -5, policy: Policy = FORBID, **fields: Any) -> OpenFire:
    """A fire that a node claimed; `live=False`: the claim has expired."""
    whole = {"attempt": 1, "live": True, "waits": False, "node": "n1", "disposition": None, "stop": None}
    one = fire(name, due_s, policy)
    return OpenFire(fire=one, state="claimed", due=False, **({"outcome": None} | whole | fields))


def retry(name: str, due_s: float = -10, policy: Policy = FORBID, **fields: Any) -> OpenFire:
    return pending(name, due_s, policy, **({"attempt": 1, "outcome": FAILED} | fields))


def wide(policy: Policy, width: int) -> Policy:
    return policy._replace(max_running=width)


def disposed(outcome: Outcome) -> Judgement:
    return Judgement("settle", outcome)


def stopping(*names: str) -> Judgement:
    return Judgement("wait", stop=tuple(f"a.b@{name}" for name in names))


class Case(NamedTuple):
    name: str
    me: OpenFire
    others: list[OpenFire]
    expected: Judgement
    facts: Facts = FACTS


GONE = FACTS._replace(planned_until=None)
BEHIND = FACTS._replace(planned_until=NOW - timedelta(seconds=1))
NEWER = FACTS._replace(newer_due=True)
PAUSED = FACTS._replace(paused="holidays")
LATE = -LATE_S - 1
SKIPPED = lane_taken("a.b@0")

DISPOSITIONS = [
    Case(
        "a disposition stays", claimed("1", live=False, disposition=SKIPPED), [], Judgement("settle", SKIPPED)
    ),
    Case("an expired claim is lost", claimed("1", live=False), [], disposed(node_lost("n1"))),
    Case(
        "an expired claim that was asked to stop ends with that reason",
        claimed("1", live=False, stop=replaced_by("a.b@2")),
        [],
        disposed(replaced_by("a.b@2")),
    ),
    Case(
        "an expired claim is lost even if its job was removed",
        claimed("1", live=False),
        [],
        disposed(node_lost("n1")),
        GONE,
    ),
    Case("a removed job", pending("1"), [], disposed(JOB_REMOVED), GONE),
    Case("a retry of a removed job", retry("1"), [], disposed(JOB_REMOVED), GONE),
    Case("a manual fire of a removed job", pending("1", origin="manual"), [], RUN, GONE),
    Case("a paused job", pending("1"), [], disposed(paused("holidays")), PAUSED),
    Case(
        "a pause without a reason",
        pending("1"),
        [],
        disposed(paused("")),
        FACTS._replace(paused=""),
    ),
    Case("a retry of a paused job", retry("1"), [], RUN, PAUSED),
    Case("a manual fire of a paused job", pending("1", origin="manual"), [], RUN, PAUSED),
    Case(
        "after its deadline",
        pending("1", -9, start_by=NOW - timedelta(seconds=1)),
        [],
        disposed(Outcome("missed", "not started by 2026-03-01T01:59:59Z", "deadline")),
    ),
    Case("at its deadline", pending("1", -9, start_by=NOW), [], RUN),
    Case("a retry after its deadline", retry("1", -9, start_by=NOW - timedelta(seconds=1)), [], RUN),
    Case(
        "a late fire, and a newer one is due",
        pending("1", LATE),
        [],
        disposed(NEWER_INSTANT),
        NEWER,
    ),
    Case("a fire on time, and a newer one is due", pending("1", -LATE_S), [], RUN, NEWER),
    Case("a late fire under all, and a newer one is due", pending("1", LATE, ALL), [], RUN, NEWER),
    Case(
        "a fire that waits for its lane, and a newer one is due",
        pending("1", LATE, QUEUE, waits=True),
        [],
        RUN,
        NEWER,
    ),
]

LATENESS = [
    Case("a late fire of a job that is planned up to now", pending("1", LATE), [], RUN),
    Case("a late fire of a job that is not planned up to now", pending("1", LATE), [], HOLD, BEHIND),
    Case("the same without a lane", pending("1", LATE, Policy("Allow")), [], HOLD, BEHIND),
    Case("the same under all", pending("1", LATE, ALL), [], RUN, BEHIND),
    Case("the same, pushed", pending("1", LATE, origin="push"), [], RUN, BEHIND),
    Case("a late fire and a full lane, Forbid", pending("1", LATE, ALL), [claimed("0")], HOLD),
    Case("a late fire and a full lane, Queue", pending("1", LATE, QUEUE), [claimed("0", policy=QUEUE)], HOLD),
    Case(
        "a late fire, and another one already waits",
        pending("2", LATE, QUEUE),
        [claimed("0", policy=QUEUE), pending("1", LATE - 1, QUEUE, waits=True)],
        HOLD,
    ),
    Case(
        "a late fire and a full lane, Replace",
        pending("1", LATE, REPLACE),
        [claimed("0", LATE - 9, policy=REPLACE)],
        HOLD,
    ),
    Case(
        "a late fire in a full lane is held although a newer one is due",
        pending("1", LATE),
        [claimed("0")],
        HOLD,
        NEWER,
    ),
    Case(
        "a retry under Replace stops no holder",
        pending("2", -5, REPLACE, attempt=1),
        [claimed("1", -60, policy=REPLACE)],
        WAIT,
    ),
]

FULL = [
    Case("no lane", pending("1", policy=Policy("Allow")), [], RUN),
    Case("an empty lane", pending("1"), [], RUN),
    Case("an expired claim does not hold the lane", pending("1"), [claimed("0", live=False)], RUN),
    Case(
        "a claim that only settles does not hold the lane",
        pending("1"),
        [claimed("0", disposition=SKIPPED)],
        RUN,
    ),
    Case("a grace period alone fills the lane", pending("1"), [], WAIT, FACTS._replace(graces=1)),
    Case(
        "a free place beside a grace period",
        pending("1", policy=wide(FORBID, 2)),
        [],
        RUN,
        FACTS._replace(graces=1),
    ),
    Case(
        "a holder and grace fill a lane of two",
        pending("1", policy=wide(FORBID, 2)),
        [claimed("0")],
        WAIT,
        FACTS._replace(graces=1),
    ),
    Case("Forbid skips, naming the holder", pending("1"), [claimed("0")], disposed(lane_taken("a.b@0"))),
    Case(
        "Forbid, width 3, two hold", pending("3", policy=wide(FORBID, 3)), [claimed("0"), claimed("1")], RUN
    ),
    Case(
        "Forbid, width 3, three hold",
        pending("3", policy=wide(FORBID, 3)),
        [claimed("0"), claimed("1"), claimed("2")],
        disposed(lane_taken("a.b@0")),
    ),
    Case("Forbid, a retry is contended", retry("1"), [claimed("2")], disposed(contended("failed", "a.b@2"))),
    Case(
        "Forbid, a lost retry is contended",
        retry("1", outcome=node_lost("n1")),
        [claimed("2")],
        disposed(contended("lost", "a.b@2")),
    ),
    Case("Queue, the first waits", pending("1", policy=QUEUE), [claimed("0", policy=QUEUE)], WAIT),
    Case(
        "Queue, the second is skipped",
        pending("2", policy=QUEUE),
        [claimed("0", policy=QUEUE), pending("1", -1, QUEUE, waits=True)],
        disposed(lane_awaited("a.b@1")),
    ),
    Case(
        "Queue, the waiting fire keeps waiting",
        pending("1", -1, QUEUE, waits=True),
        [claimed("0", policy=QUEUE), pending("2", 0, QUEUE)],
        WAIT,
    ),
    Case(
        "Queue, a retry waits behind another fire",
        retry("1", policy=QUEUE),
        [claimed("0", policy=QUEUE), pending("2", -1, QUEUE, waits=True)],
        WAIT,
    ),
    Case(
        "Queue, width 3, one waits",
        pending("4", policy=wide(QUEUE, 3)),
        [*(claimed(name, policy=QUEUE) for name in "012"), pending("3", -1, QUEUE, waits=True)],
        disposed(lane_awaited("a.b@3")),
    ),
]

REPLACING = [
    Case("the holder is stopped", pending("1", 0, REPLACE), [claimed("0", -5, REPLACE)], stopping("0")),
    Case(
        "a holder is asked to stop once",
        pending("1", 0, REPLACE, waits=True),
        [claimed("0", -5, REPLACE, stop=replaced_by("a.b@1"))],
        stopping(),
    ),
    Case(
        "an older fire never replaces a newer one",
        retry("1", -9, REPLACE),
        [claimed("2", -5, REPLACE)],
        disposed(replaced_by("a.b@2")),
    ),
    Case(
        "a waiting fire is replaced by a newer one",
        pending("1", -5, REPLACE, waits=True),
        [claimed("0", -9, REPLACE), pending("2", 0, REPLACE)],
        disposed(replaced_by("a.b@2")),
    ),
    Case(
        "a newer fire that is not due yet replaces nothing",
        pending("1", -5, REPLACE),
        [pending("2", 5, REPLACE)],
        RUN,
    ),
    Case(
        "a newer fire after its deadline replaces nothing",
        pending("1", -50, REPLACE),
        [pending("2", -9, REPLACE, start_by=NOW - timedelta(seconds=5))],
        RUN,
    ),
    Case(
        "a newer fire with a disposition replaces nothing",
        pending("1", -5, REPLACE),
        [pending("2", -1, REPLACE, disposition=SKIPPED)],
        RUN,
    ),
    Case("width 3, a place is free", pending("3", 0, wide(REPLACE, 3)), [claimed("0", -9, REPLACE)], RUN),
    Case(
        "width 3, only the oldest is stopped",
        pending("3", 0, wide(REPLACE, 3)),
        [claimed("0", -9, REPLACE), claimed("1", -8, REPLACE), claimed("2", -7, REPLACE)],
        stopping("0"),
    ),
    Case(
        "width 3, two newer fires stop two",
        pending("4", 0, wide(REPLACE, 3)),
        [*(claimed(str(n), n - 9, REPLACE) for n in range(3)), pending("3", -1, REPLACE, waits=True)],
        stopping("0", "1"),
    ),
    Case("grace fills the lane", pending("1", 0, REPLACE), [], stopping(), FACTS._replace(graces=1)),
]


@pytest.mark.parametrize("case", DISPOSITIONS + LATENESS + FULL + REPLACING, ids=lambda case: case.name)
def test_the_decision_about_a_due_fire(case: Case) -> None:
    lane = [*case.others, case.me] if case.me.fire.lane else []
    assert judge(case.me, lane, case.facts) == case.expected


@pytest.mark.parametrize(
    ("me", "late"),
    [
        (pending("1", -LATE_S), False),
        (pending("1", LATE), True),
        (pending("1", LATE, origin="push"), False),
        (pending("1", LATE, origin="hook"), False),
        (retry("1", LATE), False),
    ],
)
def test_which_fires_are_late(me: OpenFire, late: bool) -> None:
    assert is_late(me, NOW) == late


def test_only_the_cause_says_that_a_fire_was_contended() -> None:
    assert is_contended(contended("failed", "a.b@1"))
    assert not is_contended(Outcome("failed", contended("failed", "a.b@1").reason))
    assert not is_contended(lane_taken("a.b@1"))


concurrencies: st.SearchStrategy[Concurrency] = st.sampled_from(["Forbid", "Queue", "Replace"])
catch_ups: st.SearchStrategy[CatchUp] = st.sampled_from(["skip", "latest", "all"])


@st.composite
def lanes(draw: st.DrawFn) -> list[OpenFire]:
    """Fires of one job in every state; the decision is about the first."""
    policy = Policy(draw(concurrencies), draw(st.integers(1, 3)), catch_up=draw(catch_ups))
    ages = draw(st.lists(st.integers(0, 200), min_size=1, max_size=7, unique=True))
    makers = st.sampled_from([pending, retry, claimed])
    me = draw(st.sampled_from([pending, retry]))("0", -ages[0], policy, waits=draw(st.booleans()))
    others = [draw(makers)(str(n), -age, policy) for n, age in enumerate(ages[1:], 1)]
    return [me, *others]


@given(lanes(), st.integers(0, 2))
def test_a_lane_never_has_more_running_fires_than_its_width(lane: list[OpenFire], graces: int) -> None:
    decision = judge(lane[0], lane, FACTS._replace(graces=graces))
    held = sum(one.live and one.disposition is None for one in lane) + graces
    if decision.step == "run":
        assert held < lane[0].fire.policy.max_running


@given(lanes())
def test_only_older_holders_are_stopped_and_only_under_replace(lane: list[OpenFire]) -> None:
    me = lane[0]
    by_key = {one.fire.key: one for one in lane}
    for key in judge(me, lane, FACTS).stop:
        assert me.fire.policy.concurrency == "Replace"
        assert by_key[key].live
        assert by_key[key].fire.due_at < me.fire.due_at


@given(lanes())
def test_under_replace_at_least_one_fire_can_proceed(lane: list[OpenFire]) -> None:
    """If all are decided in turn, at least one holds the lane, runs or waits."""
    due = [one for one in lane if one.state == "pending"]
    steps = {judge(one, lane, FACTS).step for one in due}
    assert steps != {"settle"} or any(one.live for one in lane)


@given(lanes(), st.randoms(use_true_random=False))
def test_the_decision_to_run_does_not_depend_on_the_order_of_the_lane(lane: list[OpenFire], rng: Any) -> None:
    shuffled = list(lane)
    rng.shuffle(shuffled)
    ours, theirs = judge(lane[0], lane, FACTS), judge(lane[0], shuffled, FACTS)
    assert (ours.step, set(ours.stop)) == (theirs.step, set(theirs.stop))


@given(lanes())
def test_a_full_lane_gives_a_fire_no_disposition_of_its_own(lane: list[OpenFire]) -> None:
    me = lane[0]
    assert disposition_of(me, FACTS) is None
    assert judge(me, [me], FACTS) == RUN
