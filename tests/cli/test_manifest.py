"""The verbs that only read a manifest, or nothing at all: validate, show, next, schema, version, help."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.cli_world import MANIFEST, Detent, call, command, environment

from detent.cli.main import VERBS


@pytest.fixture(autouse=True)
def manifest(folder: Path) -> Path:
    (folder / "detent.yaml").write_text(MANIFEST)
    return folder / "detent.yaml"


def test_a_good_manifest_is_counted(detent: Detent) -> None:
    said = detent("validate")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[-1] == "ok: detent.yaml: app demo, 5 jobs (1 disabled), 2 warnings"


def test_a_warning_is_reported_and_is_no_error(detent: Detent, manifest: Path) -> None:
    manifest.write_text(MANIFEST.replace("30 2 * * *", "0 0 */2 * MON"))
    said = detent("validate", "-f", "detent.yaml")
    assert said.code == 0
    assert "(jobs[0].schedule, detent.yaml:6)" in said.out
    warning = detent("validate", "-o", "json").json[0]
    assert (warning["level"], warning["line"], warning["path"]) == ("warning", 6, "jobs/0/schedule")


def test_all_problems_are_reported_at_once_with_their_lines(detent: Detent, manifest: Path) -> None:
    manifest.write_text(MANIFEST.replace("30 2 * * *", "61 2 * * *").replace("@hourly", "@howrly"))
    said = detent("validate")
    lines = said.err.splitlines()
    assert (said.code, said.out) == (1, "")
    assert [line.rpartition(" at ")[2] for line in lines[:2]] == [
        "jobs[0].schedule (detent.yaml:6)",
        "jobs[1].schedules[1] (detent.yaml:9)",
    ]
    assert lines[2] == "2 problems"
    problems = detent("validate", "-o", "json")
    assert problems.code == 1
    assert [(problem["level"], problem["line"]) for problem in problems.json] == [("error", 6), ("error", 9)]


def test_a_file_that_cannot_be_read_is_a_problem_for_programs_too(detent: Detent) -> None:
    said = detent("validate", "-f", "gone.yaml", "-o", "json")
    assert said.code == 1
    assert said.json[0]["message"] == 'cannot read "gone.yaml": no such file or directory'


def test_show_prints_the_fields_of_a_job(detent: Detent) -> None:
    said = detent("show", "money")
    lines = dict(line.split(maxsplit=1) for line in said.out.splitlines())
    assert lines["job"] == "demo.money"
    assert lines["command"] == "echo '$$ab' 'two words'"
    assert lines["tags"] == '["a", "b"]'
    assert "next" in lines


def test_a_disabled_job_is_shown_as_such_and_has_no_next_instant(detent: Detent) -> None:
    said = detent("show", "demo.resting")
    assert "state" in said.out
    assert "next" not in said.out


def test_show_lists_the_jobs_of_a_manifest(detent: Detent) -> None:
    for words in (("show",), ("show", "-f", "detent.yaml"), ("show", "--file", "detent.yaml")):
        lines = detent(*words).out.splitlines()
        assert [line.split()[0] for line in lines] == [
            "job", "demo.backup", "demo.report", "demo.money", "demo.resting", "demo.deadbeef",
        ]  # fmt: skip
        assert "0 9 * * MON-FRI, @hourly" in lines[2]
        assert "POST https://example.org/report" in lines[2]


def test_the_canonical_form_is_compact_and_ordered(detent: Detent) -> None:
    whole = detent("show", "--canonical").out
    assert whole.startswith('{"version":2,"app":"demo","jobs":[{"name":"backup","schedules":["30 2 * * *"],')
    assert whole.endswith('"store":{"url":"sqlite:///try.db"}}\n')
    job = detent("show", "backup", "--canonical").out
    assert job.strip() in whole
    assert detent("show", "backup", "-o", "json").json == json.loads(job)


def test_a_mistyped_job_suggests_the_nearest(detent: Detent) -> None:
    for verb in ("show", "next", "history", "fire"):
        said = detent(verb, "bakcup")
        assert (said.code, said.out) == (1, "")
        assert said.err == 'detent: no job "bakcup" in the manifest; did you mean "backup"?\n'
    assert 'did you mean "demo.backup"?' in detent("show", "demo.bakup").err


def test_a_name_that_is_near_to_nothing_gets_a_list(detent: Detent) -> None:
    assert detent("next", "zzz").err.endswith("it has backup, report, money, resting and deadbeef\n")


def test_next_merges_all_jobs_in_the_order_of_their_instants(detent: Detent) -> None:
    rows = detent("next", "-n", "7", "--from", "2026-03-02T07:00Z", "-o", "json").json
    assert [(row["job"], row["due_at"][11:]) for row in rows] == [
        ("money", "07:00:00Z"),
        ("report", "07:00:00Z"),
        ("money", "08:00:00Z"),
        ("report", "08:00:00Z"),
        ("money", "09:00:00Z"),
        ("report", "09:00:00Z"),
        ("money", "10:00:00Z"),
    ]


def test_next_explains_a_change_of_offset(detent: Detent) -> None:
    said = detent("next", "backup", "-n", "2", "--from", "2026-03-28T12:00:00+01:00")
    first, second = said.out.splitlines()[1:]
    assert first.startswith(
        "Sun 2026-03-29 03:00:00 Europe/Berlin  2026-03-29T01:00:00Z  demo.backup  02:30 does not"
    )
    assert second.split() == [
        "Mon",
        "2026-03-30",
        "02:30:00",
        "Europe/Berlin",
        "2026-03-30T00:30:00Z",
        "demo.backup",
    ]
    twice = detent("next", "backup", "-n", "1", "--from", "2026-10-25T00:30:00Z", "-o", "json").json
    assert twice[0]["local"] == "2026-10-25T02:30:00+02:00"
    assert "happens twice" in twice[0]["note"]


def test_a_job_with_nothing_left_to_do_says_so(detent: Detent, manifest: Path) -> None:
    manifest.write_text(MANIFEST.replace('schedule: "@every 1h"', "at: 2020-01-01T00:00Z"))
    assert detent("next", "money") == (0, "", "nothing is due any more\n")
    assert detent("next", "money", "-o", "json").json == []
    assert "is disabled" in detent("next", "resting").err


@pytest.mark.parametrize(
    "words",
    [
        ["next", "-n", "0"],
        ["next", "-n", "1e9"],
        ["next", "--from", "tomorrow"],
        ["next", "--from", "0001-01-01T00:00:00Z"],
        ["next", "--from", "2026-01-01T00:00"],
        ["schema", "--version", "3"],
        ["show", "--no-such-option"],
        ["logs"],
        ["list", "-o", "xml"],
        ["--nonsense"],
        ["lst"],
        [],
    ],
)
def test_a_usage_error_exits_with_2(detent: Detent, words: list[str]) -> None:
    said = detent(*words)
    assert (said.code, said.out) == (2, "")
    assert said.err


def test_an_unknown_verb_suggests_the_nearest(detent: Detent) -> None:
    assert detent("histroy").err == 'detent: there is no verb "histroy"; did you mean "history"?\n'


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_with_an_example(detent: Detent, verb: str) -> None:
    said = detent(verb, "--help")
    assert said.code == 0
    assert f"example: detent {verb}" in said.out
    assert "--output" in said.out


def test_the_schema_of_each_version_is_a_document(detent: Detent) -> None:
    assert detent("schema").json["title"] == "detent manifest, version 2"
    assert detent("schema", "--version", "1").json["properties"]["version"] == {"const": 1}


def test_two_manifests_are_a_usage_error(detent: Detent) -> None:
    said = detent("show", "-f", "detent.yaml", "--file", "other.yaml")
    assert said.code == 2
    assert "two manifests" in said.err


LATE = ["asyncio", "sqlite3", "rich", "http", "ssl", "concurrent.futures", "detent.node", "detent.runners"]


@pytest.mark.parametrize("words", [["version"], ["next"], ["validate"], ["show"], ["schema"]])
def test_a_verb_loads_only_what_it_needs(folder: Path, words: list[str]) -> None:
    (folder / "look.py").write_text(
        "import sys\nfrom detent.cli.main import main\n"
        f"main({words!r})\nprint([name for name in {LATE!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "look.py"], cwd=folder, env=environment(folder), capture_output=True, text=True
    )
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize("words", [["version"], ["schema"], ["next", "-n", "5000"]])
def test_a_closed_output_is_no_error(folder: Path, words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        command(*words), cwd=folder, env=environment(folder), stdout=writer, stderr=subprocess.PIPE
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_terminal_without_unicode_gets_json_that_can_be_read(folder: Path) -> None:
    (folder / "detent.yaml").write_text(MANIFEST.replace("Sends the report", "Schickt Grüße – täglich"))
    said = call(folder, "show", "-o", "json", PYTHONIOENCODING="ascii")
    assert said.code == 0
    descriptions = [job["description"] for job in said.json["jobs"] if "description" in job]
    assert descriptions == ["Schickt Grüße – täglich"]
    assert call(folder, "show", PYTHONIOENCODING="ascii").code == 0


def test_a_job_that_is_due_at_boot_has_not_ended(detent: Detent, folder: Path) -> None:
    job = "{name: b, schedule: '@reboot', command: 'true'}"
    (folder / "detent.yaml").write_text(f"version: 2\napp: x\njobs: [{job}]\n")
    said = detent("list").out
    assert "at boot" in said and "ended" not in said
