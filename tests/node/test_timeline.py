"""Which job is planned next."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from detent.model import Command, Job, Plan, Watermark, Watermarks
from detent.node.timeline import FIRES_MAX, PLANS_MAX, Timeline, revisions_in_force
from detent.testing.sim.schedule import Every

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
AHEAD_S = 120.0


def job(name: str, period_s: int = 3600, revision: str = "r") -> Job:
    return Job(f"a.{name}", Every(period_s), Command(("true",)), revision=revision)


def at(seconds: float, revision: str = "r") -> Watermark:
    return Watermark(NOW + timedelta(seconds=seconds), revision)


def timeline(by_job: dict[str, Watermark], jobs: dict[str, Job]) -> Timeline:
    line = Timeline(AHEAD_S)
    line.load(Watermarks(NOW, "1", 1, by_job), jobs)
    return line


def planned(line: Timeline, jobs: dict[str, Job]) -> list[str]:
    return [plan.job for plan in line.plans(jobs, NOW)]


def test_only_jobs_with_a_near_watermark_are_planned() -> None:
    jobs = {one.name: one for one in (job("urgent"), job("near"), job("far"))}
    line = timeline({"a.urgent": at(30), "a.near": at(60), "a.far": at(61)}, jobs)
    assert planned(line, jobs) == ["a.urgent", "a.near"]


def test_nothing_is_planned_before_the_first_watermark_is_urgent() -> None:
    jobs = {"a.near": job("near")}
    line = timeline({"a.near": at(31)}, jobs)
    assert planned(line, jobs) == []
    assert line.next_in_s(NOW) == 31 - AHEAD_S / 4


def test_a_plan_is_repeated_if_its_call_was_lost() -> None:
    jobs = {"a.b": job("b")}
    line = timeline({"a.b": at(0)}, jobs)
    assert planned(line, jobs) == planned(line, jobs) == ["a.b"]
    line.update({"a.b": at(3599)})
    assert planned(line, jobs) == []
    assert line.next_in_s(NOW) == 3599 - AHEAD_S / 4


def test_a_foreign_job_is_left_alone_until_its_revision_lapses() -> None:
    jobs = {"a.b": job("b")}
    line = timeline({"a.b": at(-AHEAD_S, "other")}, jobs)
    assert line.foreign == {"a.b"} and planned(line, jobs) == []
    assert not line.is_in_force(jobs["a.b"])
    assert not line.has_lapsed(NOW)
    assert line.has_lapsed(NOW + timedelta(seconds=1))


def test_a_watermark_of_another_revision_does_not_move_ours() -> None:
    jobs = {"a.b": job("b")}
    line = timeline({"a.b": at(0)}, jobs)
    line.update({"a.b": at(500, "other"), "a.unknown": at(1)})
    assert planned(line, jobs) == ["a.b"]


def batches(line: Timeline, jobs: dict[str, Job]) -> Iterator[list[Plan]]:
    """Return all calls until nothing is urgent.  The store accepts each plan."""
    while plans := line.plans(jobs, NOW):
        yield plans
        line.update({plan.job: Watermark(plan.until, plan.revision) for plan in plans})


def test_many_quiet_jobs_are_planned_in_batches() -> None:
    jobs = {one.name: one for one in (job(f"j{i}") for i in range(PLANS_MAX + 1))}
    line = timeline({name: at(0) for name in jobs}, jobs)
    assert [len(plans) for plans in batches(line, jobs)] == [PLANS_MAX, 1]


def test_one_call_plans_a_few_hundred_fires_however_many_jobs_there_are() -> None:
    jobs = {one.name: one for one in (job(f"j{i}", period_s=1) for i in range(2000))}
    line = timeline({name: at(0) for name in jobs}, jobs)
    counts = [sum(len(plan.fires) for plan in plans) for plans in batches(line, jobs)]
    assert max(counts) <= 2 * FIRES_MAX
    assert sum(counts) >= 2000 * AHEAD_S / 4


def test_every_job_gets_its_next_instants_before_any_job_gets_later_ones() -> None:
    jobs = {one.name: one for one in (job(f"j{i}", period_s=1) for i in range(100))}
    line = timeline({name: at(0) for name in jobs}, jobs)
    ends = [plan.until for plans in batches(line, jobs) for plan in plans]
    assert ends == sorted(ends)


def test_few_jobs_are_planned_for_the_whole_horizon_in_one_call() -> None:
    jobs = {one.name: one for one in (job("b", period_s=1), job("c", period_s=60))}
    line = timeline({name: at(0) for name in jobs}, jobs)
    (plans,) = batches(line, jobs)
    assert [len(plan.fires) for plan in plans] == [AHEAD_S, AHEAD_S // 60]


def test_a_job_of_run_on_every_belongs_to_its_host_alone() -> None:
    ours = {one.name: one for one in (job("b"), job("c/here"))}
    by_job = {"a.b": at(0), "a.c/here": at(0), "a.c/there": at(-9999, "older"), "a.d/there": at(0)}
    line = timeline(by_job, ours)
    assert line.elsewhere == {"a.c/there"}
    assert line.foreign == {"a.d/there"}, "a job that we do not have at all stays only while a node holds it"
    assert not line.has_lapsed(NOW), "however long that host is away"
    watermarks, alone = Watermarks(NOW, "1", 1, by_job), {"a.b": "r", "a.c/here": "r", "a.c/there": "older"}
    assert revisions_in_force(watermarks, ours, set()) == alone
    assert revisions_in_force(watermarks, ours, {"a.d/there"}) == alone | {"a.d/there": "r"}


def test_an_excluded_job_is_claimed_again_once_our_revision_is_in_force() -> None:
    jobs = {"a.b": job("b"), "a.c": job("c")}
    line = timeline({"a.b": at(0, "other"), "a.c": at(0)}, jobs)
    unable = {"a.b", "a.gone"}
    assert line.excluded(unable) == unable
    line.load(Watermarks(NOW, "1", 2, {"a.b": at(0), "a.c": at(0)}), jobs)
    assert line.excluded(unable) == {"a.gone"}


def test_a_definition_that_another_live_node_holds_is_kept() -> None:
    jobs = {"a.b": job("b"), "a.c": job("c")}
    watermarks = Watermarks(NOW, "1", 1, {"a.b": at(0, "newer"), "a.c": at(0, "gone")})
    assert revisions_in_force(watermarks, jobs, {"a.b"}) == {"a.b": "newer", "a.c": jobs["a.c"].revision}
