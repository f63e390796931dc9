"""Chained jobs: what a manifest may contain, and which fires an outcome creates."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from detent.errors import UsageError
from detent.manifest.check import Manifest, canonical_text, check_manifest
from detent.manifest.json_schema import schema
from detent.manifest.problems import ManifestError
from detent.manifest.spec import specs_of
from detent.model import Fire, Job, Outcome
from detent.rules.chains import DEPTH_MAX, Followers, predecessor_of
from detent.rules.planning import fire_at, hook_fire, manual_fire

NOW = datetime(2026, 3, 1, 2, 0, 7, 500_000, tzinfo=UTC)
DUE = NOW.replace(second=0, microsecond=0)
WELL = Outcome("succeeded")


def job(name: str, **fields: Any) -> dict[str, Any]:
    when = {} if "after" in fields else {"schedule": "@hourly"}
    return {"name": name, "command": "true", **when, **fields}


def document(*jobs: dict[str, Any], **top: Any) -> dict[str, Any]:
    return {"version": 2, "app": "demo", **top, "jobs": [*jobs]}


def chain(length: int) -> list[dict[str, Any]]:
    """Jobs in reverse order, so that each job comes before its predecessor."""
    later = [job(f"j{i}", after=f"j{i - 1}") for i in range(length - 1, 0, -1)]
    return [*later, job("j0")]


def read(*jobs: dict[str, Any]) -> Manifest:
    return check_manifest(document(*jobs))


def named(manifest: Manifest) -> dict[str, Job]:
    return {one.name: one for one in manifest.jobs}


# What a manifest may say.


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "nobody": (document(job("load"), job("b", after="lod")), "jobs/1/after", 'did you mean "load"?'),
    "itself": (document(job("a", after="a")), "jobs/0/after", "a after a"),
    "a circle": (
        document(job("a", after="c"), job("b", after=["a"]), job("c", after="b")),
        "jobs/0/after",
        "it comes after itself: a after c after b after a",
    ),
    "too long": (document(*chain(DEPTH_MAX + 1)), "jobs/0/after", "more than 20 jobs"),
    "no name": (document(job("a", after="B")), "jobs/0/after", "is not a name"),
    "none": (document(job("a", after=[])), "jobs/0/after", "from 1 to 64"),
    "two times": (
        document(job("a"), job("b", after="a", at="2030-01-01T00:00Z", schedule="@daily")),
        "jobs/1/at",
        "exactly one of",
    ),
    "for all": (document(job("a"), defaults={"after": "a"}), "defaults/after", "unknown key"),
    "everywhere": (document(job("a"), job("b", after="a", run_on="every")), "jobs/1/after", "run_on: every"),
    "version 1": (
        {
            **document({"name": "a", "schedule": "@daily", "request": {"url": "http://h"}, "after": "b"}),
            "version": 1,
        },
        "jobs/0/after",
        "unknown key",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_bad_after_is_refused_with_its_path(name: str) -> None:
    wrong, path, words = WRONG[name]
    with pytest.raises(ManifestError) as caught:
        check_manifest(wrong)
    (problem,) = caught.value.problems
    assert problem.path == path and words in problem.text


def test_a_very_long_chain_is_refused_without_a_traceback() -> None:
    with pytest.raises(ManifestError, match="more than 20 jobs"):
        read(*chain(5000))


def test_a_chain_of_the_maximum_length_is_accepted() -> None:
    assert len(read(*chain(DEPTH_MAX)).jobs) == DEPTH_MAX


def test_a_chained_job_may_also_have_a_schedule() -> None:
    jobs = named(read(job("a"), job("b", after="a"), job("c", after=["a", "b"], schedule="@daily")))
    assert jobs["demo.b"].after == ("demo.a",) and jobs["demo.c"].after == ("demo.a", "demo.b")
    assert jobs["demo.b"].schedule.after(NOW) is None and jobs["demo.b"].schedule.before(NOW) is None
    assert jobs["demo.c"].schedule.after(NOW) == datetime(2026, 3, 2, tzinfo=UTC)


def test_the_default_schedule_does_not_apply_to_chained_jobs() -> None:
    given = document({"name": "a", "command": "x"}, job("b", after="a"), defaults={"schedule": "@daily"})
    jobs = named(check_manifest(given))
    assert jobs["demo.a"].schedule.after(NOW) and jobs["demo.b"].schedule.after(NOW) is None


def test_bounds_without_a_schedule_give_a_warning() -> None:
    manifest = read(job("a"), job("b", after="a", ends_at="2030-01-01T00:00Z"))
    assert [(one.path, one.code) for one in manifest.warnings] == [("jobs/1/ends_at", "no-effect")]


def test_the_canonical_form_of_a_chain_is_stable_and_fits_the_schema() -> None:
    given = document(job("a"), job("b", after="a"))
    Draft202012Validator(schema(2)).validate(given)
    manifest = check_manifest(given)
    text = canonical_text(manifest)
    again = check_manifest(json.loads(text))
    assert canonical_text(again) == text and '"after":["a"]' in text
    assert named(again)["demo.b"].after == ("demo.a",)
    alone = named(read(job("a"), job("b")))["demo.b"]
    assert alone.revision != named(manifest)["demo.b"].revision


def test_outside_schedulers_refuse_chained_jobs() -> None:
    with pytest.raises(UsageError, match=r"demo\.b runs after demo\.a, and a host scheduler"):
        specs_of(read(job("a"), job("b", after="a")))


# What follows.


def follow(manifest: Manifest, fire: Fire, outcome: Outcome = WELL, now: datetime = NOW) -> tuple[Fire, ...]:
    return Followers(manifest.jobs).fires(fire, outcome, now)


def test_every_success_creates_one_fire_per_follower_even_if_settled_twice() -> None:
    manifest = read(job("a"), job("b", after="a"), job("c", after=["b", "a"], policy={"catch_up": "skip"}))
    fire = fire_at(manifest.jobs[0], DUE)
    b, c = follow(manifest, fire)
    assert (b.job, b.due_at, b.start_by) == ("demo.b", NOW.replace(microsecond=0), None)
    assert b.key.startswith("demo.b@2026-03-01T02:00:00Z+after.") and b.lane == "demo.b"
    assert c.start_by == c.due_at + timedelta(seconds=60)
    assert predecessor_of(b) == predecessor_of(c) == fire.key and predecessor_of(fire) == ""
    later = follow(manifest, fire, now=NOW + timedelta(hours=1))
    assert [(one.key, one.run_id) for one in later] == [(one.key, one.run_id) for one in (b, c)]


def test_manual_fires_of_the_same_second_have_different_followers() -> None:
    manifest = read(job("a"), job("b", after="a"))
    fires = [fire_at(manifest.jobs[0], DUE), *(manual_fire(manifest.jobs[0], DUE, token) for token in "xy")]
    assert len({one.key for fire in fires for one in follow(manifest, fire)}) == 3


@pytest.mark.parametrize(
    "kind", ["failed", "rejected", "timed-out", "skipped", "lost", "missed", "cancelled"]
)
def test_only_success_creates_followers(kind: Any) -> None:
    manifest = read(job("a"), job("b", after="a"))
    assert follow(manifest, fire_at(manifest.jobs[0], DUE), Outcome(kind)) == ()


def test_nothing_follows_from_a_hook() -> None:
    manifest = read(job("a"), job("b", after="a"))
    assert follow(manifest, hook_fire(fire_at(manifest.jobs[0], DUE), "on_success", NOW, {})) == ()


def test_a_job_that_runs_on_every_host_has_a_follower_for_each_host() -> None:
    manifest = read(job("a", run_on="every"), job("b", after="a"))
    fires = [fire_at(manifest.jobs[0]._replace(name=f"demo.a/{host}"), DUE) for host in ("one", "two")]
    assert len({one.key for fire in fires for one in follow(manifest, fire)}) == 2


def test_a_circle_between_nodes_with_different_manifests_ends() -> None:
    a, b = read(job("a"), job("b", after="a")).jobs
    followers = Followers([a._replace(after=("demo.b",)), b])
    fires, count = followers.fires(fire_at(a, DUE), WELL, NOW), 0
    while fires and count < 100:
        fires, count = followers.fires(fires[0], WELL, NOW), count + 1
    assert count == DEPTH_MAX - 1
