"""`render_store`: the series of a whole store, on a real one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from detent.manifest.check import check_manifest
from detent.model import Ask, Fire, Job, Outcome, Plan, Policy, Report, Verdict
from detent.observe.metrics.series import BY_NAME, STORE
from detent.observe.metrics.store_wide import JOBS_MAX, render_store
from detent.rules.planning import fire_at, manual_fire
from detent.stores.base import BREAKER, NODE, PAUSE, Store
from detent.stores.memory.store import MemoryStore
from detent.stores.registry import open_store
from detent.testing.stores.fixtures import FakeClock

DOCUMENT = {
    "version": 2,
    "app": "a",
    "jobs": [
        {"name": "hourly", "schedule": "@hourly", "command": "true"},
        {"name": "once", "at": "2099-01-01T00:00Z", "command": "true"},
    ],
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(open_store(f"sqlite:///{tmp_path}/detent.db")) as opened:
        yield opened


@pytest.fixture
def jobs(store: Store) -> list[Job]:
    found = [*check_manifest(DOCUMENT).jobs]
    store.set_jobs("a", 0, {job.name: job.revision for job in found})
    return found


def values(store: Store, jobs: list[Job], apps: tuple[str, ...] = ("a",)) -> dict[tuple[str, ...], float]:
    """Values by name and label values."""
    text = render_store(store, apps, jobs).decode()
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
    return {(s.name, *(s.labels[label] for label in BY_NAME[s.name].labels)): s.value for s in samples}


def run(store: Store, fire: Fire, **end: Any) -> None:
    """Put a fire, claim it and settle it."""
    store.put([fire])
    number = Random().getrandbits(40)
    [claim] = store.claim(Ask("a", f"n.{number}", number, queues=(fire.queue,))).claims
    store.finish([Report(claim, Verdict(Outcome("succeeded"), **end))])


def test_a_job_has_its_next_instant_its_last_success_and_its_state(store: Store, jobs: list[Job]) -> None:
    now = store.look("a").now
    before = values(store, jobs)
    hour = now.replace(minute=0, second=0, microsecond=0)
    assert (
        before["detent_job_next_timestamp_seconds", "a", "hourly"] == (hour + timedelta(hours=1)).timestamp()
    )
    last_but_one = (hour - timedelta(hours=1)).timestamp()
    assert before["detent_job_last_but_one_timestamp_seconds", "a", "hourly"] == last_but_one
    assert ("detent_job_last_but_one_timestamp_seconds", "a", "once") not in before
    assert ("detent_job_last_success_timestamp_seconds", "a", "hourly") not in before
    assert before["detent_job_paused", "a", "hourly"] == before["detent_job_late", "a", "hourly"] == 0
    run(store, manual_fire(jobs[0], now, "x"))
    store.note("a", f"{PAUSE}a.hourly", "by ana")
    after = values(store, jobs)
    assert abs(after["detent_job_last_success_timestamp_seconds", "a", "hourly"] - now.timestamp()) < 60
    assert (after["detent_job_paused", "a", "hourly"], after["detent_job_paused", "a", "once"]) == (1, 0)


def test_a_job_is_late_while_a_due_fire_waits_or_an_instant_is_not_planned(jobs: list[Job]) -> None:
    clock = FakeClock()
    store = MemoryStore(clock.wall, clock.monotonic)
    hourly, once = jobs
    now = store.set_jobs("a", 0, {job.name: job.revision for job in jobs}).now
    store.put([manual_fire(once, now, "x")])
    for passed_s, late in ((1.0, (0, 0)), (10.0, (0, 1)), (3700.0, (1, 1))):
        clock.pass_time(passed_s)
        found = values(store, jobs)
        assert (found["detent_job_late", "a", "hourly"], found["detent_job_late", "a", "once"]) == late
    now = store.look("a").now
    since, newest = now - timedelta(hours=3), hourly.schedule.before(now)
    assert newest
    store.advance("a", [Plan(hourly.name, hourly.revision, since, now, (fire_at(hourly, newest),))])
    assert values(store, jobs)["detent_job_late", "a", "hourly"] == 1
    grants = store.claim(Ask("a", "n.1", 1, limit=9))
    assert {claim.fire.job for claim in grants.claims} >= {"a.hourly"}
    assert values(store, jobs)["detent_job_late", "a", "hourly"] == 0


def test_queues_are_counted_without_their_priorities_and_without_locks(store: Store, jobs: list[Job]) -> None:
    now = store.look("a").now
    allow = Policy(concurrency="Allow")
    for number, queue in enumerate(("mail", "mail^high", "mail", "lock/x")):
        store.put([Fire(f"a.t#{number}", "a.t", now, queue=queue, origin="push", policy=allow)])
    store.put([Fire("a.t#later", "a.t", now, queue="mail", origin="push", policy=allow)], delay_s=600)
    found = values(store, jobs)
    assert found["detent_queue_messages", "a", "mail", "pending"] == 3
    assert found["detent_queue_messages", "a", "mail", "delayed"] == 1
    assert found["detent_queue_messages", "a", "mail", "dead"] == 0
    assert 0 <= found["detent_queue_oldest_age_seconds", "a", "mail"] < 60
    assert {name[2] for name in found if name[0] == "detent_queue_messages"} == {"mail"}


def test_nodes_and_breakers_are_counted_by_app(store: Store, jobs: list[Job]) -> None:
    assert values(store, jobs)["detent_nodes", "a"] == 0
    store.note("a", f"{NODE}n.1", "{}", 30)
    store.note("a", f"{NODE}n.2", "{}", 30)
    store.note("a", f"{BREAKER}smtp", '{"errors": 5, "opened": 9.0}')
    store.note("a", f"{BREAKER}http", '{"errors": 2, "opened": 0.0}')
    found = values(store, jobs, ("a", "other"))
    assert (found["detent_nodes", "a"], found["detent_nodes", "other"]) == (2, 0)
    assert abs(found["detent_node_heartbeat_timestamp_seconds", "a"] - store.look("a").now.timestamp()) < 60
    assert found["detent_breaker_open", "a", "smtp"] == 1 and found["detent_breaker_open", "a", "http"] == 0


def test_jobs_beyond_the_limit_are_counted_and_have_no_series(store: Store, jobs: list[Job]) -> None:
    many = [jobs[0]._replace(name=f"a.job-{number:04}") for number in range(JOBS_MAX + 3)]
    found = values(store, many)
    assert found["detent_jobs_omitted", "a"] == 3
    assert len([name for name in found if name[0] == "detent_job_paused"]) == JOBS_MAX


def test_every_series_has_its_help_and_type(store: Store, jobs: list[Job]) -> None:
    text = render_store(store, ["a"], jobs).decode()
    for one in STORE:
        assert f"# HELP {one.name} {one.help}\n# TYPE {one.name} gauge\n" in text
