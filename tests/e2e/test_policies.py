"""Replace and Queue with long work, and schedules that change while a node runs."""

import signal
import time
from datetime import timedelta

import pytest
from tests.equipment.fleet import NEVER, Fleet, wait_for

from detent.clock import instant
from detent.rules.outcomes import lane_awaited, replaced_by


def test_replaced_work_has_ended_before_its_replacement_starts(either_fleet: Fleet) -> None:
    fleet = either_fleet
    policy = {"concurrency": "Replace"}
    fleet.write(
        fleet.job("job", "deaf", "60", schedule="@every 2s", kill_after_seconds=0.5, policy=policy),
        node={"drain_seconds": 0},
    )
    fleet.start()

    first, *_, third = [fleet.witness.wait_start("job", after=n) for n in range(3)]
    fleet.witness.assert_no_overlap()
    row = fleet.wait_over(first.key)
    assert row.outcome == replaced_by(fleet.witness.starts("job")[1].key)
    assert third.fence > first.fence


def test_one_fire_waits_in_a_queue_and_later_ones_are_skipped(fleet: Fleet) -> None:
    fleet.write(fleet.job("job", "sleep", "3.5", policy={"concurrency": "Queue"}))
    node = fleet.start()

    first, second = fleet.witness.wait_start("job"), fleet.witness.wait_start("job", after=1)
    node.end()
    fleet.witness.assert_no_overlap()
    assert fleet.witness.seen("end", key=first.key)[0].at < second.at
    due = fleet.due("job", instant(time.time()))
    keys = [row.fire.key for row in due]
    assert second.key == keys[keys.index(first.key) + 1], "the next one waits"
    between = due[keys.index(second.key) + 1 :][:2]
    assert {row.outcome for row in between} == {lane_awaited(second.key)}


@pytest.mark.parametrize("how", ["by SIGHUP", "by its file"])
def test_a_schedule_that_becomes_frequent_misses_nothing(fleet: Fleet, how: str) -> None:
    fleet.write(fleet.job("job", "sleep", "0", schedule=NEVER))
    node = fleet.start()
    in_a_while = instant(time.time() + 600)
    wait_for(lambda: fleet.is_planned_until("job", in_a_while), what="a plan for months")

    fleet.write(fleet.job("job", "sleep", "0"))
    if how == "by SIGHUP":
        node.send(signal.SIGHUP)
    node.wait("reloaded", changed=["t.job"])
    changed_at = instant(time.time())

    fleet.witness.wait_start("job", after=3)
    rows = fleet.due("job", instant(time.time() - 1))
    first = rows[0].fire.due_at
    assert first - changed_at < timedelta(seconds=2)
    assert [row.fire.due_at for row in rows] == [first + timedelta(seconds=n) for n in range(len(rows))]
    fleet.witness.assert_launched_once()


@pytest.mark.parametrize("how", ["by SIGHUP", "by its file"])
def test_a_bad_file_is_refused_and_the_old_jobs_continue(fleet: Fleet, how: str) -> None:
    fleet.write(fleet.job("job", "sleep", "0"))
    node = fleet.start()
    fleet.witness.wait_start("job")

    fleet.write({"name": "job", "schedule": "61 * * * *", "command": "true"})
    if how == "by SIGHUP":
        node.send(signal.SIGHUP)
    refused = node.wait("reload-refused")
    assert "jobs[0].schedule" in refused["error"] and "61" in refused["error"]
    fleet.witness.wait_start("job", after=len(fleet.witness.starts("job")) + 1)

    fleet.write(fleet.job("job", "sleep", "0", schedule=NEVER), fleet.job("other", "sleep", "0"))
    node.wait("reloaded", added=["t.other"], changed=["t.job"])
    fleet.witness.wait_start("other")


def test_work_goes_on_while_its_job_is_changed_and_removed(fleet: Fleet) -> None:
    fleet.write(fleet.job("long", "sleep", "3", schedule=NEVER), fleet.job("tick", "sleep", "0"))
    node = fleet.start()
    key = fleet.fire("long")
    fleet.witness.wait_start("long")

    fleet.write(fleet.job("tick", "sleep", "0"))
    node.send(signal.SIGHUP)
    node.wait("reloaded", removed=["t.long"])

    row = fleet.wait_over(key)
    assert row.outcome is not None and row.outcome.kind == "succeeded"
    assert fleet.witness.seen("end", key=key)
