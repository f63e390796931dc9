"""Checks of a store: what a dashboard reads of all jobs at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta

from detent.errors import UsageError
from detent.model import Outcome, Policy, Query, Retries, Tally, Verdict
from detent.rules.tallies import INTERVALS_MAX
from detent.stores.base import NEWEST_EACH_MAX, NEWEST_JOBS_MAX, Store
from detent.testing.stores.fixtures import (
    AGAIN,
    DONE,
    OVER,
    Asker,
    Planner,
    World,
    finish,
    fire,
    later,
)

DAY = timedelta(days=1)


def the_last_success_of_each_job_is_read_with_its_watermark(store: Store, world: World) -> None:
    planner, asker = Planner(store), Asker(store)
    revision = {"a.b": "r1", "a.other": "r1"}
    assert store.set_jobs("a", 1, revision).by_job["a.b"].succeeded_at is None
    planner.advance(120.0)
    world.pass_time(10.0)
    finish(store, asker.claim_one(), OVER)
    assert store.look("a").by_job["a.b"].succeeded_at is None
    for _ in range(2):
        world.pass_time(10.0)
        finish(store, asker.claim_one())
        marks = store.look("a")
        assert marks.by_job["a.b"].succeeded_at == marks.now
        assert marks.by_job["a.other"].succeeded_at is None
    last = marks.now
    world.pass_time(5.0)
    changed = store.set_jobs("a", marks.generation, revision | {"a.b": "r2"})
    assert changed.by_job["a.b"] == changed.by_job["a.b"]._replace(revision="r2", succeeded_at=last)
    assert planner.advance(240.0).by_job["a.b"].succeeded_at == last


def the_newest_fires_of_several_jobs_are_read_at_once(store: Store, world: World) -> None:
    now = store.look("a").now
    store.put([fire(f"a.{job}@{n}", due_at=_ago(now, 9 - n // 2)) for job in "bc" for n in range(6)])
    store.put([fire("a.b@later", due_at=_ago(now, -9)), fire("z.b@1")])
    failed, *rest = Asker(store).claim(limit=3)
    finish(store, failed, OVER, tail=b"output", took_s=2.0)
    jobs = ["a.c", "a.b", "a.unknown", "z.b"]
    found = store.newest("a", jobs, each=4)
    assert list(found) == jobs and found["a.unknown"] == found["z.b"] == []
    for job in ("a.b", "a.c"):
        rows = store.find(Query(job=job, limit=4, until=now))
        assert found[job] == [row._replace(attempts=()) for row in rows] and len(rows) == 4
    every = store.newest("a", ["a.b"], each=NEWEST_EACH_MAX)["a.b"]
    assert [row.fire.key for row in every] == [f"a.b@{n}" for n in reversed(range(6))]
    ended = [row for row in every if row.outcome]
    assert [row.fire.key for row in ended] == [failed.fire.key] and ended[0].over_at
    assert {row.fire.key for row in every if row.state == "claimed"} == {one.fire.key for one in rest}
    assert store.newest("a", []) == {}


def too_many_newest_fires_are_refused_with_what_is_allowed(store: Store, world: World) -> None:
    many = [f"a.b{n}" for n in range(NEWEST_JOBS_MAX)]
    assert not any(store.newest("a", many).values())
    for jobs, each in (([*many, "a.b"], 1), (["a.b"], NEWEST_EACH_MAX + 1), (["a.b"], 0)):
        text = _refusal(lambda jobs=jobs, each=each: store.newest("a", jobs, each))  # type: ignore[misc]
        assert "1,000 jobs" in text and "100 fires" in text


def fires_that_ended_are_counted_by_minute_job_queue_outcome_lateness_and_duration(
    store: Store, world: World
) -> None:
    asker, start = Asker(store), _minute(store, world)
    store.put([fire(f"a.b@{n}") for n in range(3)] + [fire("a.c@1", queue="slow"), fire("a.d@1")])
    world.pass_time(2.0)
    first, second, *rest = asker.claim(queues=("default", "slow"), limit=9)
    for claim in (first, second):
        finish(store, claim)
    world.pass_time(28.0)
    for claim in rest:
        finish(store, claim, OVER if claim.fire.job == "a.c" else DONE)
    store.put([fire("a.open@1"), fire("z.b@1")])
    store.put([fire("a.gone@1")], delay_s=300.0)
    assert store.cancel("a.gone@1")
    world.pass_time(40.0)
    Asker(store, "n2").claim(limit=1)
    store.put([fire("a.b@late")])
    finish(store, next(c for c in asker.claim() if c.fire.key == "a.b@late"))
    minute = timedelta(minutes=1)
    assert store.tally("a", start, start + minute) == [
        Tally(start, "a.b", "default", "succeeded", 5.0, 0.1, 2),
        Tally(start, "a.b", "default", "succeeded", 5.0, 60.0, 1),
        Tally(start, "a.c", "slow", "failed", 5.0, 60.0, 1),
        Tally(start, "a.d", "default", "succeeded", 5.0, 60.0, 1),
        Tally(start, "a.gone", "default", "cancelled", None, None, 1),
    ]
    one = Tally(start + minute, "a.b", "default", "succeeded", 0.1, 0.1, 1)
    assert store.tally("a", start + minute, start + minute * 9) == [one]
    whole = [one for one in store.tally("a", start, start + minute, 86_400) if one.job == "a.b"]
    assert [(one.at, one.fires) for one in whole] == [(_day(start), n) for n in (1, 2, 1)]
    assert store.tally("a", start - minute * 9, start) == store.tally("z", start, start + DAY) == []


def the_lateness_of_an_instant_counts_from_its_schedule_and_that_of_a_retry_from_its_delay(
    store: Store, world: World
) -> None:
    start = _minute(store, world)
    planner, asker = Planner(store, Policy(retries=Retries(2), catch_up="all"), beat_s=60), Asker(store)
    planner.advance()
    world.pass_time(60.0)
    assert finish(store, asker.claim_one(), AGAIN) == AGAIN
    world.pass_time(15.5)
    finish(store, asker.claim_one(), OVER)
    planner.advance()
    world.pass_time(60.0 - 15.5 + 20.0)
    finish(store, asker.claim_one())
    found = [(one.kind, one.late_le_s, one.took_le_s) for one in store.tally("a", start, start + DAY)]
    assert found == [("failed", 0.5, 0.1), ("succeeded", 60.0, 0.1)]


def a_fire_that_takes_very_long_has_no_upper_bound(store: Store, world: World) -> None:
    start = _minute(store, world)
    store.put([fire("a.b@1")])
    claim = Asker(store).claim_one(ttl_s=9_999.0)
    world.pass_time(3_601.0)
    finish(store, claim, Verdict(Outcome("timed-out")))
    (one,) = store.tally("a", start, start + DAY)
    assert (one.kind, one.late_le_s, one.took_le_s) == ("timed-out", 0.1, math.inf)


def a_tally_of_too_many_or_uneven_intervals_is_refused_with_what_is_allowed(
    store: Store, world: World
) -> None:
    start = later(0.0)
    assert store.tally("a", start, start + timedelta(minutes=INTERVALS_MAX)) == []
    assert store.tally("a", start, start) == store.tally("a", start, start - DAY) == []
    assert "1,500" in _refusal(lambda: store.tally("a", start, start + timedelta(minutes=INTERVALS_MAX + 1)))
    for step_s in (0, 1, 90, -60):
        assert "60 s" in _refusal(lambda step_s=step_s: store.tally("a", start, start + DAY, step_s))  # type: ignore[misc]


def _minute(store: Store, world: World) -> datetime:
    """Let time pass until a minute begins."""
    world.pass_time(-store.look("a").now.timestamp() % 60.0)
    return store.look("a").now.replace(second=0, microsecond=0)


def _day(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0)


def _ago(now: datetime, seconds: float) -> datetime:
    return now - timedelta(seconds=seconds)


def _refusal(call: Callable[[], object]) -> str:
    try:
        call()
    except UsageError as error:
        return str(error)
    raise AssertionError("it was not refused")
