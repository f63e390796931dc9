"""The behaviours that people test in a distributed cron.

Two hosts live through one story for each kind of store, and each behaviour is looked for in what the
witness, the store and the nodes tell of it.  Takeover after a kill is in `test_fleet_deaths.py`, a store
that is killed and comes back in `test_store_trouble.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e.fleets.hosts import hosts_on, monotonic_of
from tests.e2e.fleets.once import once
from tests.e2e.fleets.story import CLAIM_S, DRAIN_S, LONG_S, TICKS, Story
from tests.equipment.fleet import Seen


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    def run(folder: Path) -> Story:
        with hosts_on("postgres", folder) as hosts:
            return Story(hosts)

    return once(tmp_path_factory, "story", run)


def test_a_job_fires_again_and_again_at_each_of_its_instants(story: Story) -> None:
    due = [int(row.fire.due_at.timestamp()) for row in story.due("tick")]
    assert len(due) >= TICKS and due == list(range(due[0], due[-1] + 1))
    for row in story.due("tick"):
        launched = story.witness.starts(key=row.fire.key)
        assert row.outcome is not None and len(launched) == (row.outcome.kind == "succeeded")
        assert not launched or launched[0].at >= monotonic_of(row.fire.due_at) - 0.02


def test_two_nodes_share_an_instant(story: Story) -> None:
    ticks = story.witness.starts("tick")
    assert {one.node for one in ticks} == set(story.instances)
    assert len({one.key for one in ticks}) == len(ticks), "one launch for a job and an instant"


def test_the_holder_is_visible_while_it_runs_and_gone_afterwards(story: Story) -> None:
    start = story.start("long")
    assert (story.held.node, story.held.fence, story.held.attempt) == (start.node, start.fence, 1)
    assert start.node in story.instances and story.free == []


def test_different_jobs_do_not_block_each_other(story: Story) -> None:
    start, end = story.start("long"), story.end("long")
    for name in ("tick", "tock", "slow", "over", "patient"):
        beside = [one for one in story.witness.starts(name) if start.at < one.at < end.at]
        assert beside or _began_before(story, name, start), f"{name} waited for another job"


def _began_before(story: Story, name: str, start: Seen) -> bool:
    """Did it begin before the long one did, and go on beside it?"""
    return any(one.at <= start.at for one in story.witness.starts(name))


def test_a_claim_is_renewed_for_as_long_as_the_work_takes(story: Story) -> None:
    start, end = story.start("long"), story.end("long")
    assert end.at - start.at >= LONG_S > CLAIM_S
    assert story.outcome("long") == ("succeeded", "") and end.fence == start.fence


def test_a_job_does_not_overlap_itself(story: Story) -> None:
    story.witness.assert_no_overlap()
    rows = {row.fire.key: row for row in story.due("slow")}
    launched = {one.key for one in story.witness.starts("slow")}
    skipped = [row for row in rows.values() if row.outcome and row.outcome.kind == "skipped"]
    assert len(launched) >= 2 and len(skipped) >= 2
    for row in skipped:
        assert row.outcome is not None and row.fire.key not in launched
        assert row.outcome.by in launched


def test_a_timeout_kills_all_that_a_job_started(story: Story) -> None:
    start = story.start("over")
    assert story.outcome("over")[0] == "timed-out"
    assert [one for one in story.witness.seen("daemon") if one.key == start.key], "it had a grandchild"
    assert start.alive() == set()


def test_each_job_has_its_own_timeout(story: Story) -> None:
    assert [story.outcome(name)[0] for name in ("over", "patient")] == ["timed-out", "succeeded"]
    assert story.end("patient").at - story.start("patient").at > 1, "longer than the other one may take"


def test_several_jobs_run_on_one_node(story: Story) -> None:
    ran = {one.lane for one in story.witness.starts() if one.node == story.instances[0]}
    assert ran >= {"finish", "overtime", "endless"}
    starts = [story.start(name).at for name in ("finish", "overtime", "endless")]
    assert max(starts) < story.stopped_at


def test_sigint_lets_work_finish(story: Story) -> None:
    assert story.code == 0
    assert story.outcome("finish") == ("succeeded", "")
    assert story.end("finish").at < story.stopped_at


def test_a_shutdown_ends_work_at_its_timeout(story: Story) -> None:
    assert story.outcome("overtime")[0] == "timed-out"
    assert story.start("overtime").alive() == set()


def test_a_shutdown_without_a_timeout_waits_for_the_drain_time(story: Story) -> None:
    assert story.outcome("endless") == ("lost", "shutdown")
    assert story.stopped_at - story.interrupted_at >= DRAIN_S
    assert story.start("endless").alive() == set()


def test_at_the_end_no_lane_is_held_and_nothing_was_launched_twice(story: Story) -> None:
    story.witness.assert_launched_once()
    assert [one for one in story.witness.starts() if one.alive()] == []
    assert [row for row in story.rows.values() if row.state == "claimed"] == []
