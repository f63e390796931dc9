"""The canonical form, to the letter."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from tests.manifest.manifests import manifests

from detent.manifest.canonical import canonical_job, job_text, revision, without_password
from detent.manifest.check import Manifest, canonical_text, check_manifest

V1 = {
    "jobs": [
        {
            "name": "b",
            "schedule": "@daily",
            "request": {"url": "https://h/%C3%BC?a=1&b=<2>", "headers": {"X-B": "2", "Accept": "é"}},
        },
        {
            "auth": {"secret_refs": ["env:KEY", "old"]},
            "policy": {"retries": {"max_seconds": 5.0, "min_seconds": 0}, "concurrency": "Replace"},
            "schedules": ["0 2 * * *", "@hourly"],
            "timezone": "Europe/Berlin",
            "request": {"body": "{}", "method": "PUT", "url": "http://h"},
            "name": "a",
        },
    ],
    "app": "demo",
    "version": 1,
}
V1_TEXT = (
    '{"version":1,"app":"demo","jobs":['
    '{"name":"a","schedules":["0 2 * * *","@hourly"],"timezone":"Europe/Berlin",'
    '"request":{"method":"PUT","url":"http://h","headers":{},"body":"{}"},'
    '"policy":{"concurrency":"Replace","concurrency_scope":"host","timeout_seconds":60,'
    '"retries":{"max_attempts":3,"min_seconds":0,"max_seconds":5}},'
    '"auth":{"secret_refs":["env:KEY","old"]}},'
    '{"name":"b","schedules":["@daily"],"timezone":"UTC",'
    '"request":{"method":"POST","url":"https://h/%C3%BC?a=1&b=<2>","headers":{"Accept":"é","X-B":"2"},"body":""},'
    '"policy":{"concurrency":"Forbid","concurrency_scope":"host","timeout_seconds":60,'
    '"retries":{"max_attempts":3,"min_seconds":1,"max_seconds":60}},'
    '"auth":{"secret_refs":[]}}]}'
)
V2: dict[str, Any] = {
    "version": 2,
    "app": "demo",
    "store": "postgresql://u:top:secret@h/db",
    "node": {"max_running": 32, "keep_days": 7},
    "secrets": {"key": "raw:hunter2"},
    "defaults": {"env": {"Z": "1"}, "policy": {"catch_up": "all", "timeout_seconds": 9}},
    "jobs": [
        {
            "name": "a",
            "on_failure": "echo $${X} $Y",
            "command": ["x", "${V}"],
            "env": {"A": "ü"},
            "at": "2030-12-24T18:00+01:00",
            "enabled": True,
            "kill_after_seconds": 10,
            "description": "d",
            "policy": {"max_running": 1, "retries": {"jitter": 0.5}},
        }
    ],
}
V2_TEXT = (
    '{"version":2,"app":"demo","jobs":['
    '{"name":"a","timezone":"UTC",'
    '"policy":{"concurrency":"Forbid","concurrency_scope":"host","timeout_seconds":9,'
    '"retries":{"max_attempts":1,"min_seconds":1,"max_seconds":60,"jitter":0.5},"catch_up":"all"},'
    '"auth":{"secret_refs":[]},"command":["x","value"],"env":{"A":"ü","Z":"1"},'
    '"at":"2030-12-24T17:00:00Z","description":"d","on_failure":["echo $${X} $Y"]}],'
    '"store":{"url":"postgresql://u:***@h/db"},"node":{"keep_days":7}}'
)


def load(document: Any) -> Manifest:
    return check_manifest(document, variables={"V": "value"})


def test_the_form_of_version_1() -> None:
    assert canonical_text(load(V1)) == V1_TEXT


def test_the_form_of_version_2() -> None:
    assert canonical_text(load(V2)) == V2_TEXT


def test_a_revision_is_the_start_of_the_forms_hash_without_words_for_people() -> None:
    job = {"name": "a", "schedule": "@daily", "command": "x"}
    text = json.dumps(canonical_job(job, 2), separators=(",", ":")).encode()
    assert revision(canonical_job(job, 2)) == hashlib.sha256(text).hexdigest()[:16]
    described = {**job, "description": "d", "tags": ["t"]}
    assert revision(canonical_job(described, 2)) == revision(canonical_job(job, 2))


def with_job(**fields: Any) -> Manifest:
    job = {"name": "a", "schedule": "@daily", "command": "x", **fields}
    return load({"version": 2, "app": "demo", "jobs": [job]})


@pytest.mark.parametrize(
    "fields",
    [
        {"command": "y"},
        {"command": ["x"]},
        {"schedule": "@hourly"},
        {"timezone": "Europe/Berlin"},
        {"policy": {"on_lost": "rerun"}},
        {"policy": {"dst": "skip"}},
        {"env": {"A": "1"}},
        {"on_skip": "x"},
        {"run_on": "every"},
        {"queue": "db"},
        {"ends_at": "2040-01-01T00:00Z"},
    ],
)
def test_another_meaning_is_another_revision(fields: dict[str, Any]) -> None:
    assert with_job(**fields).jobs[0].revision != with_job().jobs[0].revision


@pytest.mark.parametrize(
    "fields",
    [
        {"description": "d"},
        {"tags": ["t"]},
        {"enabled": True},
        {"timezone": "UTC"},
        {"policy": {"claim_seconds": 30.0, "retries": {}}},
        {"env": {}},
        {"kill_after_seconds": 10},
    ],
)
def test_the_same_meaning_is_the_same_revision(fields: dict[str, Any]) -> None:
    assert with_job(**fields).jobs[0].revision == with_job().jobs[0].revision


def test_no_secret_is_in_the_form_or_in_what_is_hashed() -> None:
    manifest = load(V2)
    assert manifest.secrets == {"key": "raw:hunter2"}
    assert "hunter2" not in canonical_text(manifest) and "secret@" not in canonical_text(manifest)
    other = load({**V2, "secrets": {"key": "raw:other"}})
    assert other.jobs[0].revision == manifest.jobs[0].revision


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:p@h:1/0", "redis://:***@h:1/0"),
        ("redis://u:p@ss:w@h/0", "redis://u:***@h/0"),
        ("postgresql://h/db?user=u&password=p&x=1", "postgresql://h/db?user=u&password=***&x=1"),
        ("sqlite:///a:b@c.db", "sqlite:///a:b@c.db"),
        ("redis://h:6379", "redis://h:6379"),
    ],
)
def test_a_stores_password_is_not_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown


@given(manifests(version=2))
@settings(max_examples=25, deadline=None)
def test_the_form_read_again_has_the_same_form_and_the_same_jobs(document: dict[str, Any]) -> None:
    manifest = load(document)
    again = load(json.loads(canonical_text(manifest)))
    assert canonical_text(again) == canonical_text(manifest)
    assert [job._replace(schedule=None) for job in again.jobs] == sorted(  # type: ignore[arg-type]
        job._replace(schedule=None)  # type: ignore[arg-type]
        for job in manifest.jobs
    )


@given(manifests(version=1))
@settings(max_examples=15, deadline=None)
def test_the_form_of_a_form_is_itself_in_version_1(document: dict[str, Any]) -> None:
    for text in load(document).canonical.values():
        assert job_text(canonical_job(json.loads(text), 1), 1) == text
