"""The JSON Schema takes every sound manifest, and refuses those whose fault a schema can see."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator
from tests.manifest.manifests import manifests
from tests.manifest.test_broken_manifests import CALL, JOB, VERSION_1, VERSION_2

from detent.manifest.json_schema import schema

VALIDATORS = {version: Draft202012Validator(schema(version)) for version in (1, 2)}

# Faults between fields, in texts that a schema does not read, or that only a number's limits show.
BEYOND_A_SCHEMA = {
    "an app with a line break",  # ECMA's $ refuses it; that of Python, which this validator uses, does not
    "two jobs of one name",
    "a misspelt placeholder",
    "a placeholder from nowhere",
    "an open placeholder",
    "a body that is no JSON",
    "a shell for words",
    "a shell for a request",
    "a bad minute",
    "a schedule that never fires",
    "variables in a schedule",
    "the second is bad",
    "a zone that is not",
    "a zone as path",
    "a zone of a one-off",
    "at without offset",
    "at as words",
    "at in 1969",
    "at between seconds",
    "an end before the start",
    "no instant between start and end",
    "an empty program",
    "a NUL in a command",
    "half a surrogate",
    "an argument of no kind",
    "an argument that is no number",
    "an argument named by a number",
    "an unset argument",
    "deep arguments",
    "long arguments",
    "a thread elsewhere",
    "a loop as a user",
    "a call that leaves",
    "a command with arguments",
    "env on a request",
    "env on a message",
    "auth on a command",
    "a port too high",
    "not a number",
    "min over max",
    "min over the default",
    "a hook's URL without host",
    "words as hooks",
    "an unset variable",
    "an unset word",
    "an open brace",
    "a shell's expansion",
    "a default in a default",
    "a variable that does not fit",
    "a seconds field",
    "Sunday as 7",
    "every 59 s",
}
BROKEN = [(*row[:2], 1) for row in VERSION_1] + [(*row[:2], 2) for row in VERSION_2]


@pytest.mark.parametrize("version", [1, 2])
def test_the_schema_is_one(version: int) -> None:
    Draft202012Validator.check_schema(schema(version))
    assert json.loads(json.dumps(schema(version))) == schema(version)


@given(manifests(version=1))
@settings(max_examples=15, deadline=None)
def test_it_takes_every_sound_manifest_of_version_1(document: dict[str, Any]) -> None:
    assert [error.message for error in VALIDATORS[1].iter_errors(document)] == []


@given(manifests(version=2))
@settings(max_examples=15, deadline=None)
def test_it_takes_every_sound_manifest_of_version_2(document: dict[str, Any]) -> None:
    assert [error.message for error in VALIDATORS[2].iter_errors(document)] == []


@pytest.mark.parametrize(("name", "document", "version"), BROKEN, ids=[f"{r[0]} ({r[2]})" for r in BROKEN])
def test_it_refuses_a_broken_structure(name: str, document: Any, version: int) -> None:
    assert VALIDATORS[version].is_valid(document) == (name in BEYOND_A_SCHEMA)


def test_a_variable_may_stand_where_a_word_is_asked_for() -> None:
    job = {**JOB, "queue": "${QUEUE}", "policy": {"concurrency": "${POLICY:-Forbid}"}}
    assert VALIDATORS[2].is_valid({"version": 2, "app": "${APP}", "jobs": [job]})
    assert not VALIDATORS[1].is_valid({"version": 1, "app": "${APP}", "jobs": [CALL]})


def test_defaults_may_complete_a_job() -> None:
    bare = {"version": 2, "app": "demo", "jobs": [{"name": "a"}]}
    assert not VALIDATORS[2].is_valid(bare)
    assert VALIDATORS[2].is_valid({**bare, "defaults": {"schedule": "@daily", "command": "x"}})
