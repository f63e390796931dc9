"""Jobs that follow others, on real stores and nodes: one fire for each success, even if nodes die."""

from __future__ import annotations

import itertools
from datetime import timedelta
from pathlib import Path

import pytest
from tests.app.app_world import World
from tests.cli.cli_world import Detent as Verbs
from tests.equipment.fleet import wait_for

from detent import Detent, Fire
from detent.manifest.check import check_manifest
from detent.model import Ask, Claim, Job, Outcome, Query, Report, Row, Verdict
from detent.rules.chains import Followers, predecessor_of
from detent.rules.outcomes import paused
from detent.rules.planning import manual_fire
from detent.stores.base import PAUSE, Store
from detent.stores.registry import open_store

MANIFEST = """
version: 2
app: demo
store: sqlite:///try.db
jobs:
  - {name: extract, schedule: "0 2 * * *", command: 'true'}
  - {name: load, after: extract, command: 'true'}
  - {name: report, after: [extract, load], schedule: "@weekly", command: 'true'}
"""
KILLED = """
version: 2
app: shop
defaults: {schedule: "* * * * * *", policy: {concurrency: Allow, on_lost: rerun}}
jobs:
  - {name: extract, command: 'true'}
  - {name: load, after: extract, command: 'true'}
  - {name: invite, enqueue: {queue: mail, task: send, args: [a]}}
"""


# In each store.


class Settled:
    """`load` comes after `extract`; the test claims and settles their fires as a node does."""

    def __init__(self, store: Store, app: str) -> None:
        jobs = [
            {"name": "extract", "schedule": "0 0 1 1 *", "command": "true"},
            {"name": "load", "after": "extract", "command": "true"},
        ]
        self.store, self.app = store, app
        self.extract, self.load = check_manifest({"version": 2, "app": app, "jobs": jobs}).jobs
        watermarks = store.look(app)
        self.now = store.set_jobs(
            app, watermarks.generation, {job.name: job.revision for job in self.jobs}
        ).now
        self._numbers = itertools.count(1)

    @property
    def jobs(self) -> list[Job]:
        return [self.extract, self.load]

    def claim(self) -> Claim:
        (claim,) = self.store.claim(Ask(self.app, f"host.{self.app}", next(self._numbers))).claims
        return claim

    def succeeded(self, claim: Claim, later_s: float = 0) -> Report:
        now = self.now + timedelta(seconds=later_s)
        follow = Followers(self.jobs).fires(claim.fire, Outcome("succeeded"), now)
        return Report(claim, Verdict(Outcome("succeeded")), follow=follow)

    def fire(self) -> Report:
        self.store.put([manual_fire(self.extract, self.now.replace(microsecond=0), "x")])
        return self.succeeded(self.claim())

    def rows(self) -> list[Row]:
        return self.store.find(Query(job=self.load.name))


@pytest.fixture
def settled(shop: Detent) -> Settled:
    return Settled(shop.open_store(), shop.name)


def test_a_success_that_is_reported_twice_is_followed_once(settled: Settled) -> None:
    report = settled.fire()
    assert settled.store.finish([report]) == settled.store.finish([report]) == [report.verdict]
    settled.store.finish([settled.succeeded(report.claim, later_s=1)])  # as another node would report it
    (row,) = settled.rows()
    assert predecessor_of(row.fire) == report.claim.fire.key and row.state == "pending"
    claim = settled.claim()
    assert claim.disposition is None and claim.fire == row.fire
    settled.store.finish([Report(claim, Verdict(Outcome("succeeded")))])
    settled.store.finish([report])
    assert [row.state for row in settled.rows()] == ["over"]


def test_a_success_that_no_longer_counts_is_not_followed(settled: Settled) -> None:
    report = settled.fire()
    assert settled.store.finish(
        [report._replace(claim=report.claim._replace(fence=report.claim.fence - 1))]
    ) == [None]
    assert settled.rows() == []


def test_a_paused_job_that_follows_is_skipped(settled: Settled) -> None:
    settled.store.note(settled.app, PAUSE + settled.load.name, "holidays")
    settled.store.finish([settled.fire()])
    assert settled.claim().disposition == paused("holidays")


# By nodes.


def test_each_success_is_followed_once_and_no_failure_is(shop: Detent) -> None:
    began: list[str] = []

    def extract(fire: Fire) -> None:
        began.append(fire.key)
        if fire.due_at.second % 2:
            raise ValueError("odd")

    def load(fire: Fire) -> None:
        began.append(fire.key)

    shop.job("* * * * * *", concurrency="Allow")(extract)
    shop.job(after="extract", concurrency="Allow")(load)
    shop.job(name="audit", after=["load"], concurrency="Allow")(load)
    shop.start()
    try:
        wait_for(lambda: sum(".audit@" in key for key in began) >= 2, what="two at the end of the chain")
    finally:
        shop.stop()
    rows = shop.open_store().find(Query(app=shop.name, limit=1000))
    over = [row for row in rows if row.state == "over" and row.outcome and row.outcome.kind == "succeeded"]
    wanted = [row.fire.key for row in over if not row.fire.job.endswith(".audit")]
    assert sorted(predecessor_of(row.fire) for row in rows if predecessor_of(row.fire)) == sorted(wanted)
    assert len(began) == len(set(began))


def test_nodes_that_are_killed_leave_each_success_with_one_follower_and_one_message(world: World) -> None:
    """Four of them, one after the other; a job whose work is a message is there as well."""
    world.write("detent.yaml", KILLED)
    store = open_store(world.store)

    def rows() -> list[Row]:
        return store.find(Query(app="shop", state="over", kinds=("succeeded",), limit=10_000))

    for instance in range(1, 6):
        with world.running("detent", "run", "--store", world.store) as node:
            wait_for(lambda least=5 * instance: len(rows()) >= least, what=f"more: {world.log()}")  # type: ignore[misc]
            if instance < 5:
                node.kill()
    everything = store.find(Query(app="shop", limit=10_000))
    extracted = sorted(row.fire.key for row in rows() if row.fire.job == "shop.extract")
    assert sorted(predecessor_of(row.fire) for row in everything if row.fire.job == "shop.load") == extracted
    invited = sorted(f"shop.send#{row.fire.run_id}" for row in rows() if row.fire.job == "shop.invite")
    assert sorted(row.fire.key for row in everything if row.fire.origin == "push") == invited
    assert len(extracted) >= 4 and len(invited) >= 4


def test_fire_due_runs_the_jobs_that_follow() -> None:
    app, began = Detent("shop", store="memory:"), []

    @app.job("0 2 * * *")
    def extract() -> None:
        began.append("extract")

    @app.job(after="extract")
    def load() -> None:
        began.append("load")
        raise ValueError("no")

    @app.job(after="load")
    def report() -> None:
        began.append("report")

    fired = app.fire_due("2026-03-01T02:00Z")
    assert [(one.job, one.outcome) for one in fired] == [("extract", "succeeded"), ("load", "failed")]
    assert began == ["extract", "load"]


# In words.


def test_the_verbs_show_which_job_follows_which(tmp_path: Path, detent: Verbs) -> None:
    (tmp_path / "detent.yaml").write_text(MANIFEST)
    shown = {row["job"]: row for row in detent("list", "-o", "json").json}
    assert shown["load"]["after"] == ["extract"] and shown["load"]["next_due_at"] is None
    table = {line.split()[0]: line for line in detent("list").out.splitlines() if line}
    assert "after extract" in table["demo.load"] and "ended" not in table["demo.load"]
    assert "@weekly, after extract or load" in table["demo.report"]
    assert "after extract" in detent("show", "load").out
    coming = detent("next", "load")
    assert coming.out == "" and "after demo.extract succeeded: demo.load" in coming.err
    assert "after demo.extract: it runs when" in detent("why", "load", "2026-03-01T02:00Z").out
    assert detent("validate", "-o", "json").json == []


def test_why_names_the_fire_that_triggered_it(tmp_path: Path, detent: Verbs) -> None:
    (tmp_path / "detent.yaml").write_text(MANIFEST)
    settled = Settled(open_store("sqlite:///try.db"), "demo")
    report = settled.fire()
    settled.store.finish([report])
    (row,) = settled.rows()
    for words in ([row.fire.key], ["load", f"{row.fire.due_at:%Y-%m-%dT%H:%M:%SZ}"]):
        assert f"it was started by the success of {report.claim.fire.key}" in detent("why", *words).out


def test_a_trigger_refuses_jobs_that_need_a_node(tmp_path: Path, detent: Verbs) -> None:
    (tmp_path / "detent.yaml").write_text(MANIFEST)
    for job in ("extract", "load"):
        said = detent("trigger", f"demo.{job}", "-f", "detent.yaml")
        assert said.code == 3 and "comes after demo.extract: that needs a node" in said.err
