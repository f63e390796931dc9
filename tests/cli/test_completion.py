"""`detent completion`: a real bash runs its script; shtab writes the other scripts from the same parsers."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.cli_world import MANIFEST, SOURCES, Detent, command, environment

from detent.cli.main import VERBS

Complete = Callable[..., list[str]]
BASH = shutil.which("bash") or "/bin/bash"


@pytest.fixture(autouse=True)
def manifest(folder: Path) -> None:
    (folder / "detent.yaml").write_text(MANIFEST)


@pytest.fixture
def complete(detent: Detent, folder: Path) -> Complete:
    """What bash offers for the last of these words."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    program = bin_folder / "detent"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={SOURCES} exec {" ".join(command())} "$@"\n')
    program.chmod(0o755)
    script = folder / "script.bash"
    script.write_text(detent("completion", "bash").out)
    env = environment(folder) | {"PATH": f"{bin_folder}:{os.environ['PATH']}"}

    def ask(*words: str) -> list[str]:
        asked = f'source script.bash; COMP_WORDS=("$@"); COMP_CWORD={len(words)}; _shtab_detent; '
        asked += 'printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(
            [BASH, "-c", asked, "bash", "detent", *words], cwd=folder, env=env, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split()

    return ask


def test_verbs_are_completed(complete: Complete) -> None:
    assert {*VERBS} <= {*complete("")}
    assert complete("val") == ["validate"]
    assert complete("hi") == ["history"]


def test_options_and_their_values_are_completed(complete: Complete) -> None:
    assert complete("validate", "--st") == ["--strict"]
    assert complete("list", "-o", "") == ["text", "json"]
    assert complete("completion", "z") == ["zsh"]
    assert complete("run", "--queues", "d") == []


def test_jobs_and_files_are_completed_where_they_are_allowed(complete: Complete) -> None:
    assert complete("fire", "re") == ["report", "resting"]
    assert complete("next", "ba") == ["backup"]
    assert complete("validate", "-f", "det") == ["detent.yaml"]
    assert complete("convert", "det") == ["detent.yaml"]
    assert complete("next", "--file", "det") == ["detent.yaml"]
    assert "backup" not in complete("validate", "")


def test_job_names_are_listed_only_with_a_manifest(detent: Detent, folder: Path) -> None:
    jobs = ["backup", "report", "money", "resting", "deadbeef"]
    assert detent("completion", "jobs") == (0, "\n".join(jobs) + "\n", "")
    assert detent("completion", "jobs", "-o", "json").json == jobs
    (folder / "detent.yaml").write_text("jobs: 7\n")
    assert detent("completion", "jobs").err == ""
    (folder / "detent.yaml").unlink()
    assert detent("completion", "jobs") == (0, "", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_completes_verbs_and_jobs(detent: Detent, shell: str) -> None:
    script = detent("completion", shell).out
    assert all(verb in script for verb in VERBS)
    assert "--strict" in script or "-l strict" in script
    assert "detent completion jobs" in script


def test_help_says_how_to_install_it(detent: Detent) -> None:
    said = detent("completion", "--help").out
    assert 'eval "$(detent completion bash)"' in said
    assert "detent completion fish | source" in said
