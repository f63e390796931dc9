"""A spec is the manifest of one job: it loads, means the same, and holds no secret."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hosts.schedule_texts import PATIENT
from tests.manifest.manifests import manifests

from detent.errors import UsageError
from detent.manifest.check import Machine, check_manifest
from detent.manifest.spec import specs_of

REQUEST = {"name": "a", "schedule": "@daily", "request": {"url": "https://example.org/"}}
STORES = st.sampled_from(["", "redis://h/1", "postgresql://me:p$$w@db/x"])


@settings(PATIENT, max_examples=5)
@given(st.sampled_from([1, 2]).flatmap(manifests), STORES)
def test_a_spec_loads_and_gives_the_same_job(document: Any, store: str) -> None:
    manifest = check_manifest(document)
    specs = specs_of(manifest, store)
    assert [spec.name for spec in specs] == [job.name for job in manifest.jobs]
    for spec in specs:
        again = check_manifest(json.loads(spec.text))
        (job,) = again.jobs
        assert job._replace(schedule=spec.job.schedule) == spec.job
        assert again.everywhere == manifest.everywhere & {spec.name}
        assert again.store.url == store and again.node == manifest.node
        assert specs_of(again)[0].text == spec.text
        assert spec.is_private == ("p$$w" in store or "raw:" in spec.text)
        assert len(spec.times) == len(document_of(spec.text).get("schedules", ["at"]))


def document_of(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)["jobs"][0]
    return found


def signed(secrets: dict[str, str], *refs: str) -> dict[str, Any]:
    return {
        "version": 2,
        "app": "shop",
        "secrets": secrets,
        "jobs": [{**REQUEST, "auth": {"secret_refs": [*refs]}}],
    }


def test_a_spec_has_references_and_no_secrets() -> None:
    table = {"old": "env:OLD", "new": "file:/run/key", "unused": "the secret itself"}
    (spec,) = specs_of(check_manifest(signed(table, "new", "old", "elsewhere")))
    assert json.loads(spec.text)["secrets"] == {"new": "file:/run/key", "old": "env:OLD"}
    assert spec.variables == ("OLD", "elsewhere")
    for literal in ("s3cret", "raw:s3cret"):
        with pytest.raises(UsageError, match="a spec file must not") as refused:
            specs_of(check_manifest(signed({"new": literal}, "new")))
        assert "s3cret" not in str(refused.value)


def test_a_spec_does_not_copy_settings_of_the_machine() -> None:
    machine = Machine(secrets={"key": "s3cret"}, store={"url": "redis://here"})
    manifest = check_manifest(signed({}, "key"), machine=machine)
    (spec,) = specs_of(manifest, machine=machine)
    assert "s3cret" not in spec.text and "redis" not in spec.text


def test_a_job_of_version_1_is_written_as_version_2_and_stays_the_same() -> None:
    manifest = check_manifest({"version": 1, "app": "shop", "jobs": [REQUEST]})
    (spec,) = specs_of(manifest)
    assert json.loads(spec.text)["version"] == 2
    assert check_manifest(json.loads(spec.text)).jobs[0].revision == manifest.jobs[0].revision
