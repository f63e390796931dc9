"""`detent validate`: warnings with their locations, missing programs of this host, and `--strict`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.cli.cli_world import Detent, command, environment

from detent.cli.write.validate import WARNINGS_LOGGED_MAX
from detent.cli.write.validate_checks import (
    Host,
    check_job,
    first_program,
    is_generator_function,
    missing_part,
)
from detent.loading.config import load_manifest
from detent.manifest.problems import PROBLEMS_MAX

GOOD = """
version: 2
app: demo
jobs:
  - {name: a, schedule: "0 3 * * *", command: [sh, -c, "echo hello"]}
  - {name: b, schedule: "*/5 * * * *", command: "echo hello | sort > /dev/null"}
"""
NOBODY = 65534
EXAMPLE = Path(__file__).parents[2] / "examples" / "detent.yaml"


def write(folder: Path, *jobs: str, top: str = "") -> None:
    listed = "".join(f"  - {{name: job-{i}, {job}}}\n" for i, job in enumerate(jobs))
    (folder / "detent.yaml").write_text(f"version: 2\napp: demo\n{top}jobs:\n{listed}")


def codes(detent: Detent) -> list[str]:
    return [warning["code"] for warning in detent("validate", "-o", "json").json]


def test_an_ordinary_manifest_has_no_warning_strict_or_not(detent: Detent, folder: Path) -> None:
    (folder / "detent.yaml").write_text(GOOD)
    for words in (["validate"], ["validate", "--strict"]):
        assert detent(*words) == (0, "ok: detent.yaml: app demo, 2 jobs\n", "")
    assert detent("validate", "-o", "json", "--strict") == (0, "[]\n", "")
    assert detent("validate", "--strict", "-f", str(EXAMPLE)).code == 0


def test_a_warning_has_its_place_its_code_and_its_advice(detent: Detent, folder: Path) -> None:
    write(folder, 'command: "true", schedule: "*/7 * * * *"')
    said = detent("validate")
    first, second, last = said.out.splitlines()
    assert first.startswith('warning: "*/7 * * * *" fires at minutes 0, 7,')
    assert first.endswith("(jobs[0].schedule, detent.yaml:4) [uneven-step]")
    assert second.startswith("  → */6 and */10")
    assert (said.code, last) == (0, "ok: detent.yaml: app demo, 1 job, 1 warning")
    [record] = detent("validate", "-o", "json").json
    assert (record["level"], record["line"], record["path"]) == ("warning", 4, "jobs/0/schedule")
    assert record["code"] == "uneven-step"
    assert "@every 7m" in record["advice"]


def test_strict_makes_a_warning_an_error(detent: Detent, folder: Path) -> None:
    write(folder, 'command: "true", schedule: "*/7 * * * *"')
    said = detent("validate", "--strict")
    assert said.code == 1
    assert said.out.splitlines()[-1] == "not ok: detent.yaml: app demo, 1 job, 1 warning"
    assert detent("validate", "--strict", "-o", "json").code == 1


def test_a_warning_of_the_checker_has_a_code_too(detent: Detent, folder: Path) -> None:
    write(folder, 'command: "true", schedule: "0 0 */2 * MON", policy: {claim_seconds: 5}')
    assert sorted(codes(detent)) == ["both-days", "short-claim"]


def test_a_problem_of_the_defaults_is_reported_there(detent: Detent, folder: Path) -> None:
    write(folder, 'schedule: "@daily"', top="defaults: {command: no-such-program-x}\n")
    [record] = detent("validate", "-o", "json").json
    assert (record["path"], record["line"]) == ("defaults/command", 3)


def test_a_disabled_job_is_not_looked_at(detent: Detent, folder: Path) -> None:
    write(folder, 'command: no-such-program-x, schedule: "*/7 * * * *", enabled: false')
    assert codes(detent) == []


@pytest.mark.parametrize(("policy", "warns"), [("{}", True), ("{dst: vixie}", False), ("{dst: skip}", False)])
def test_a_policy_with_dst_is_not_warned_of_clock_changes(
    detent: Detent, folder: Path, policy: str, warns: bool
) -> None:
    write(folder, f'command: "true", schedule: "30 2 * * *", timezone: Europe/Berlin, policy: {policy}')
    assert codes(detent) == (["dst-change"] if warns else [])


def test_warnings_beyond_the_limit_are_counted(detent: Detent, folder: Path) -> None:
    write(folder, *['command: "true", schedule: "*/7 * * * *"'] * (PROBLEMS_MAX + 5))
    lines = detent("validate").out.splitlines()
    assert lines[-2] == "… and 5 more warnings"
    assert len(lines) == 2 * PROBLEMS_MAX + 2


# What this host lacks.


@pytest.mark.parametrize(
    ("job", "code"),
    [
        ("command: [no-such-program-x, y]", "command-not-found"),
        ('command: "no-such-program-x | sort"', "command-not-found"),
        ("command: [./no-such-program-x]", "command-not-found"),
        ("command: [./detent.yaml]", "command-not-found"),
        ("command: [sort], env: {PATH: /nowhere}", "command-not-found"),
        ('command: "true", on_failure: [[no-such-program-x, y]]', "command-not-found"),
        ('command: "true", on_failure: ["true", no-such-program-x]', "command-not-found"),
        ('command: "true", work_dir: gone', "work-dir-missing"),
        ('command: "true", work_dir: detent.yaml', "work-dir-missing"),
        ('command: "true", user: no-such-user-x', "user-unknown"),
        ("call: no_such_module_x.jobs:run", "function-not-found"),
        ('request: {url: "https://example.org/"}, auth: {secret_refs: [env:NO_SUCH_X]}', "secret-unresolved"),
    ],
)
def test_resources_missing_on_this_host_are_reported(
    detent: Detent, folder: Path, job: str, code: str
) -> None:
    write(folder, f'schedule: "@daily", {job}')
    assert codes(detent) == [code]


@pytest.mark.parametrize(
    "job",
    [
        "command: [sort, x]",
        'command: "cd /tmp && no-such-program-x"',
        'command: "PATH=/opt/x no-such-program-x"',
        'command: "[ -x /opt/x ] && /opt/x"',
        'command: "$PROGRAM --now"',
        'command: "{ no-such-program-x; }"',
        'command: "LANG=C sort /dev/null"',
        'command: "true", on_failure: "https://example.org/"',
        'command: "true", work_dir: .',
        "command: [no-such-program-x], queue: elsewhere",
        "call: json:dumps",
        "call: sys:exit",
    ],
)
def test_existing_and_unknowable_resources_are_not_reported(detent: Detent, folder: Path, job: str) -> None:
    write(folder, f'schedule: "@daily", {job}')
    assert codes(detent) == []


def test_a_program_is_looked_for_in_the_folder_and_path_of_its_job(detent: Detent, folder: Path) -> None:
    (folder / "bin").mkdir()
    shutil.copy("/bin/sh", folder / "bin" / "mine")
    write(
        folder,
        'schedule: "@daily", command: [./mine], work_dir: bin',
        f'schedule: "@daily", command: mine x, env: {{PATH: "{folder}/bin"}}',
        'schedule: "@daily", command: mine x',
    )
    assert [warning["path"] for warning in detent("validate", "-o", "json").json] == ["jobs/2/command"]


def test_a_user_of_a_system_crontab_is_recognised(detent: Detent, folder: Path) -> None:
    write(folder, 'schedule: "@daily", command: "root run-parts /etc/cron.daily"')
    [warning] = detent("validate", "-o", "json").json
    assert "user: root" in warning["advice"]


def test_a_secret_is_never_shown(detent: Detent, folder: Path) -> None:
    request = 'request: {url: "https://example.org/"}, auth: {secret_refs: ["raw:hunter2", env:NO_SUCH_X]}'
    write(folder, f'schedule: "@daily", {request}', top="secrets: {pay: hunter2}\n")
    assert sorted(codes(detent)) == ["plain-secret", "plain-secret", "secret-unresolved"]
    assert "hunter2" not in detent("validate").out


@pytest.mark.parametrize(
    ("script", "program"),
    [
        ("curl -s x", "curl"),
        ("  /usr/bin/env python", "/usr/bin/env"),
        ("A=1 B=two run.sh;x", "run.sh"),
        ("run>/dev/null", "run"),
        ("cd /x && run", ""),
        ('"$HOME/run" x', ""),
        ("f() { x; }; f", ""),
        ("$(which run)", ""),
        ("(run)", ""),
        ("", ""),
    ],
)
def test_the_first_program_of_a_shell_command_is_named_only_if_it_is_plain(script: str, program: str) -> None:
    assert first_program(script) == program


def test_a_function_is_looked_for_without_importing_its_module(folder: Path) -> None:
    package = folder / "billing"
    package.mkdir()
    source = "raise SystemExit('imported')\ndef run(): ...\nfrom os import path as elsewhere\n"
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    (package / "jobs.py").write_text(source)
    (package / "loose.py").write_text("from os import *\n")
    found = {name: missing_part(f"billing.{name}", [str(folder)]) for name in (
        "jobs:run", "jobs:elsewhere", "loose:anything", "jobs:rum", "other:run", "jobs.deep:run",
    )}  # fmt: skip
    assert found == {
        "jobs:run": "",
        "jobs:elsewhere": "",
        "loose:anything": "",
        "jobs:rum": 'the module "billing.jobs" has no "rum"; did you mean "run"?',
        "other:run": 'there is no module "billing.other" on this host',
        "jobs.deep:run": 'there is no module "billing.jobs.deep" on this host',
    }


def test_a_generator_function_is_recognised_by_its_source(folder: Path) -> None:
    source = """
def rows():
    for n in range(3):
        yield n
async def later():
    yield 1
def outer():
    def inner():
        yield 1
    return [*inner()]
def plain(): ...
"""
    (folder / "sources.py").write_text(source)
    names = ("rows", "later", "outer", "plain", "nothing")
    found = [name for name in names if is_generator_function(f"sources:{name}", [str(folder)])]
    assert found == ["rows", "later"]
    write(folder, 'schedule: "@daily", call: "sources:rows"')
    [job] = load_manifest(folder / "detent.yaml", {}).jobs
    env = {**os.environ, "PYTHONPATH": str(folder)}
    assert [problem.code for problem in check_job(job, Host(env, {}))] == ["generator-function"]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="root: switches to user nobody to check its permissions")
def test_only_root_can_run_a_command_as_another_user(folder: Path) -> None:
    write(folder, 'schedule: "@daily", command: "true", user: root')
    [job] = load_manifest(folder / "detent.yaml", {}).jobs
    host = Host(dict(os.environ), {})
    assert [*check_job(job, host)] == []
    os.seteuid(NOBODY)
    try:
        assert [problem.code for problem in check_job(job, host)] == ["user-forbidden"]
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    ("shell", "found"),
    [("[/bin/bash]", ["shell-without-c"]), ("[/bin/bash, -ec]", []), ("[/bin/bash, -o, pipefail, -c]", [])],
)
def test_a_shell_that_would_take_the_command_for_a_file_is_a_warning(
    detent: Detent, folder: Path, shell: str, found: list[str]
) -> None:
    write(folder, f'schedule: "@daily", command: "true", shell: {shell}')
    assert codes(detent) == found


def test_a_program_that_a_shell_with_options_starts_is_looked_for(detent: Detent, folder: Path) -> None:
    write(folder, 'schedule: "@daily", command: no-such-program-x, shell: [/bin/bash, -o, pipefail, -c]')
    assert codes(detent) == ["command-not-found"]


# `$$`.


@pytest.mark.parametrize(
    ("job", "paths"),
    [
        ("command: 'echo $$'", ["jobs/0/command"]),
        ("command: 'kill -TERM $$; true'", ["jobs/0/command"]),
        ("command: 'echo $$HOME'", ["jobs/0/command"]),
        ("command: 'true', on_failure: 'echo $$'", ["jobs/0/on_failure"]),
        ("command: 'true', on_failure: ['true', 'echo $$']", ["jobs/0/on_failure/1"]),
        ("command: 'echo $$$$'", []),
        ("command: 'echo $$$'", []),
        ("command: 'echo $${HOME}'", []),
        ("command: [echo, $$]", []),
    ],
)
def test_two_dollars_that_a_shell_gets_as_one_are_a_warning(
    detent: Detent, folder: Path, job: str, paths: list[str]
) -> None:
    write(folder, f'schedule: "@daily", {job}')
    found = [one for one in detent("validate", "-o", "json").json if one["code"] == "double-dollar"]
    assert [one["path"] for one in found] == paths


# What a node says when it starts.


def events_of_a_node(folder: Path) -> list[dict[str, Any]]:
    """Return the events of a node up to `started`."""
    words, env = command("run", "--store", "sqlite:///x.db"), environment(folder)
    with subprocess.Popen(words, cwd=folder, env=env, stderr=subprocess.PIPE, text=True) as node:
        assert node.stderr
        events = []
        for line in node.stderr:
            events.append(json.loads(line))
            if events[-1]["event"] == "started":
                node.terminate()
        return events


def test_a_node_logs_each_warning_of_its_manifest_once(folder: Path) -> None:
    write(folder, "schedule: '@daily', command: 'no-such-program-x $$', policy: {claim_seconds: 5}")
    warnings = [one["error"] for one in events_of_a_node(folder) if one["event"] == "manifest-warning"]
    assert len(warnings) == 3
    assert all("(jobs[0]." in one and ", detent.yaml:4)" in one for one in warnings)
    for word in ("no-such-program-x", "dollar", "claim"):
        assert [word in one for one in warnings].count(True) == 1


def test_a_node_counts_warnings_that_are_too_many_to_log(folder: Path) -> None:
    write(folder, *["schedule: '@daily', command: no-such-program-x"] * (WARNINGS_LOGGED_MAX + 5))
    warnings = [one["error"] for one in events_of_a_node(folder) if one["event"] == "manifest-warning"]
    assert len(warnings) == WARNINGS_LOGGED_MAX + 1
    assert warnings[-1] == "5 more warnings: `detent validate` lists them"
