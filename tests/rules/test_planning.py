"""Which instants become fires, and which instants of an outage are missed."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.model import CatchUp, Command, Job, Plan, Policy, Watermark
from detent.rules.planning import (
    CATCH_UP_MAX,
    HOOK_POLICY,
    SCAN_MAX,
    UNPLANNED_START_S,
    fire_at,
    hook_fire,
    key_of,
    manual_fire,
    plan,
    run_id,
)
from detent.testing.stores.fixtures import Every

START = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)
WORK = Command(("true",))
PLAIN = Policy()


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def job(policy: Policy = PLAIN, step_s: float = 10, **fields: str) -> Job:
    return Job("app.job", Every(START, step_s), WORK, policy, revision="r1", **fields)


def planned(policy: Policy, now_s: float, *, step_s: float = 10, ahead_s: float = 0) -> Plan:
    return plan(job(policy, step_s), Watermark(START, "r1"), at(now_s), ahead_s)


def rows_of_plan(one: Plan) -> list[tuple[float, int]]:
    """The last instant of each fire, in seconds, and its number of instants."""
    return [((fire.due_at - START).total_seconds(), fire.instants) for fire in one.fires]


class Outage(NamedTuple):
    name: str
    catch_up: CatchUp
    step_s: float
    now_s: float
    rows: list[tuple[float, int]]


OUTAGES = [
    Outage("skip: nothing missed yet", "skip", 10, 70, [(10 * n, 1) for n in range(1, 8)]),
    Outage("skip: one too late is missed by itself", "skip", 10, 71, [(10 * n, 1) for n in range(1, 8)]),
    Outage("skip: several are one span", "skip", 10, 95, [(30, 3)] + [(10 * n, 1) for n in range(4, 10)]),
    Outage("latest: the only late one is kept", "latest", 100, 170, [(100, 1)]),
    Outage("latest: the newest late one is kept", "latest", 100, 370, [(200, 2), (300, 1)]),
    Outage("latest: a newer is due in time", "latest", 100, 330, [(200, 2), (300, 1)]),
    Outage("latest: one is missed, one is due in time", "latest", 100, 210, [(100, 1), (200, 1)]),
    Outage("all: all are kept", "all", 100, 970, [(100 * n, 1) for n in range(1, 10)]),
    Outage("all: the newest hundred", "all", 100, 10_390, [(300, 3)] + [(100 * n, 1) for n in range(4, 104)]),
]


@pytest.mark.parametrize("outage", OUTAGES, ids=lambda outage: outage.name)
def test_the_fires_after_an_outage(outage: Outage) -> None:
    policy = Policy(catch_up=outage.catch_up)
    assert rows_of_plan(planned(policy, outage.now_s, step_s=outage.step_s)) == outage.rows


def test_a_missed_instant_can_never_start() -> None:
    first, *others = planned(Policy(catch_up="skip"), 71).fires
    assert (first.key, first.start_by) == (key_of("app.job", at(10)), at(10))
    assert {fire.start_by - fire.due_at for fire in others if fire.start_by} == {timedelta(seconds=10)}
    assert all(fire.start_by for fire in others)


def test_a_span_has_its_first_and_last_instant_and_their_number() -> None:
    span = planned(Policy(catch_up="skip"), 95).fires[0]
    assert span.key == "app.job@2026-03-01T02:00:10Z..2026-03-01T02:00:30Z"
    assert (span.first_at, span.due_at, span.instants, span.start_by) == (at(10), at(30), 3, at(30))
    assert span.run_id == run_id(at(10), span.key)


def test_a_plan_starts_at_the_watermark_and_has_no_gaps() -> None:
    one = plan(job(), Watermark(at(30), "r1"), at(40), ahead_s=20)
    assert (one.job, one.revision, one.since) == ("app.job", "r1", at(30))
    assert [fire.due_at for fire in one.fires] == [at(40), at(50), at(60)]
    assert at(60) <= one.until < at(70)


def test_a_plan_reaches_until_just_before_the_next_instant() -> None:
    one = planned(Policy(), 5, step_s=600, ahead_s=120)
    assert one.fires == ()
    assert one.until == at(599)


def test_a_job_without_instants_is_planned_again_after_15_minutes() -> None:
    one = planned(Policy(), 5, step_s=86_400, ahead_s=120)
    assert one.until == at(5 + 120 + 900)


def test_a_watermark_ahead_of_the_stores_clock_does_not_go_back() -> None:
    one = plan(job(), Watermark(at(500), "r1"), at(0), ahead_s=120)
    assert one.fires == ()
    assert one.until >= at(500)


@pytest.mark.parametrize(("catch_up", "kept"), [("skip", 0), ("latest", 0), ("all", 100)])
def test_a_plan_is_bounded_and_the_next_one_continues_it(catch_up: CatchUp, kept: int) -> None:
    this, now = job(Policy(catch_up=catch_up)), at(10 * SCAN_MAX + 5000)
    one = plan(this, Watermark(START, "r1"), now, 0)
    assert one.until == one.fires[-1].due_at == at(10 * SCAN_MAX)
    assert [fire.instants for fire in one.fires] == [SCAN_MAX - kept] + [1] * kept
    following = plan(this, Watermark(one.until, "r1"), now, 0).fires[0]
    assert (following.first_at or following.due_at) == at(10 * SCAN_MAX + 10)


@given(
    st.sampled_from(sorted(CATCH_UP_MAX)),
    st.integers(1, 90),
    st.lists(st.integers(0, 2000), min_size=1, max_size=6),
)
def test_consecutive_plans_cover_every_instant_once(catch_up: CatchUp, step_s: int, nows: list[int]) -> None:
    watermark, instants, this = Watermark(START, "r1"), 0, job(Policy(catch_up=catch_up), step_s)
    last = START
    for now_s in sorted(nows):
        link = plan(this, watermark, at(now_s), 30)
        assert link.since == watermark.at <= link.until
        for fire in link.fires:
            assert last < (fire.first_at or fire.due_at) <= fire.due_at <= link.until
            last, instants = fire.due_at, instants + fire.instants
        watermark = Watermark(link.until, "r1")
    assert instants == len(list(this.schedule.between(START, watermark.at)))


def test_a_fire_copies_the_settings_of_its_job() -> None:
    policy = Policy(start_deadline_s=7.5, timeout_s=3)
    fire = fire_at(job(policy, queue="db"), at(20))
    assert fire.key == "app.job@2026-03-01T02:00:20Z"
    assert (fire.job, fire.due_at, fire.queue, fire.lane) == ("app.job", at(20), "db", "app.job")
    assert (fire.policy, fire.revision, fire.origin, fire.instants) == (policy, "r1", "schedule", 1)
    assert fire.start_by == at(27.5)


@pytest.mark.parametrize(
    ("policy", "limit_s"),
    [
        (Policy(catch_up="latest"), None),
        (Policy(catch_up="all"), None),
        (Policy(catch_up="skip"), 10.0),
        (Policy(catch_up="skip", start_deadline_s=90.0), 90.0),
        (Policy(catch_up="all", start_deadline_s=5.0), 5.0),
    ],
)
def test_how_late_a_fire_may_start(policy: Policy, limit_s: float | None) -> None:
    assert fire_at(job(policy), START).start_by == (None if limit_s is None else at(limit_s))


@pytest.mark.parametrize(("step_s", "limit_s"), [(1, 5.0), (10, 10.0), (60, 60.0), (3600, 60.0)])
def test_under_skip_a_fire_may_start_until_the_next_one_is_due(step_s: int, limit_s: float) -> None:
    assert fire_at(job(Policy(catch_up="skip"), step_s), START).start_by == at(limit_s)


def test_a_job_with_allow_has_no_lane() -> None:
    assert fire_at(job(Policy(concurrency="Allow")), START).lane == ""


def test_on_late_is_planned_for_each_fire_but_not_for_a_span() -> None:
    policy = Policy(catch_up="skip", hooks=("on_failure", "on_late", "on_late.1"), late_after_s=2.5)
    fires = planned(policy, 85).fires
    hooks = [fire for fire in fires if fire.origin == "hook"]
    kept = [fire for fire in fires if fire.origin == "schedule" and fire.instants == 1]
    names = ("on_late", "on_late.1")
    assert [hook.key for hook in hooks] == [f"{fire.key}/{name}" for fire in kept for name in names]
    assert hooks[0].due_at == kept[0].due_at + timedelta(seconds=2.5)
    assert json.loads(hooks[0].payload)["reason"] == "not started 2.5 s after it was due"


def test_a_hook_fire_has_no_lane_and_one_attempt() -> None:
    fire = fire_at(job(queue="db"), START)
    hook = hook_fire(fire, "on_failure.1", at(9), {"outcome": "failed"})
    assert (hook.key, hook.job, hook.lane, hook.queue) == (f"{fire.key}/on_failure.1", "app.job", "", "db")
    assert (hook.origin, hook.policy, hook.policy.retries.max_attempts) == ("hook", HOOK_POLICY, 1)
    assert (hook.due_at, hook.first_at, hook.start_by) == (at(9), START, at(9 + UNPLANNED_START_S))
    assert json.loads(hook.payload) == {
        "hook": "on_failure.1",
        "fire": fire.key,
        "due": "2026-03-01T02:00:00Z",
        "outcome": "failed",
    }


def test_a_manual_fire_has_its_own_key_and_the_lane_of_its_job() -> None:
    fires = [manual_fire(job(), START, token) for token in ("x1", "x2")]
    assert [fire.key for fire in fires] == [f"app.job@2026-03-01T02:00:00Z+{t}" for t in ("x1", "x2")]
    assert len({fire.run_id for fire in fires}) == 2
    assert (fires[0].origin, fires[0].lane, fires[0].start_by) == ("manual", "app.job", at(UNPLANNED_START_S))


@given(st.datetimes(datetime(1971, 1, 1), datetime(2900, 1, 1), timezones=st.just(UTC)), st.text(max_size=40))
def test_a_run_id_is_a_uuid_7_with_the_due_instant(due_at: datetime, key: str) -> None:
    identity = UUID(run_id(due_at, key))
    assert (identity.version, identity.variant) == (7, "specified in RFC 4122")
    assert str(identity) == run_id(due_at, key)
    assert identity.int >> 80 == int(due_at.timestamp() * 1000)


def test_a_run_id_is_the_same_in_every_release() -> None:
    assert run_id(START, "app.job@2026-03-01T02:00:00Z") == "019ca71f-b900-7128-8599-7116aa2af98d"


@given(st.sets(st.text(max_size=20), min_size=2, max_size=2))
def test_different_keys_have_different_run_ids(keys: set[str]) -> None:
    assert len({run_id(START, key) for key in keys}) == 2
