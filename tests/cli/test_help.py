"""The help of the program, and the one way to name a manifest."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.cli.cli_world import MANIFEST, Detent, Result, command, environment

from detent.cli.main import GROUPS, VERBS, build_parser

WITHOUT_MANIFEST = (
    "worker",
    "queue",
    "dashboard",
    "init",
    "convert",
    "help",
    "completion",
    "schema",
    "version",
)
JSON = '{"version": 2, "app": "demo", "jobs": [{"name": "a", "schedule": "@daily", "command": "true"}]}'
TOML = 'version = 2\napp = "demo"\n[[jobs]]\nname = "a"\nschedule = "@daily"\ncommand = "true"\n'
CRONTAB = "30 2 * * * /bin/true\n"


def pipe(folder: Path, text: str, *words: str) -> Result:
    """A verb in a process of its own that reads this text from standard input."""
    done = subprocess.run(
        command(*words), cwd=folder, env=environment(folder), input=text, capture_output=True, text=True
    )
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("words", [("--help",), ("-h",), ("help",)])
def test_help_lists_every_verb_once_below_its_group(detent: Detent, words: tuple[str, ...]) -> None:
    said = detent(*words)
    assert said.code == 0
    assert [line for line in said.out.splitlines() if line in GROUPS] == list(GROUPS)
    assert re.findall(r"^  (\S+) ", said.out, re.MULTILINE) == list(VERBS)
    assert all(len(line) <= 80 for line in said.out.splitlines()[1:])


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_is_the_help_that_the_verb_prints(detent: Detent, verb: str) -> None:
    assert detent("help", verb) == detent(verb, "--help")


def test_help_of_an_unknown_verb_suggests_the_nearest(detent: Detent) -> None:
    assert detent("help", "histroy").err == 'detent: there is no verb "histroy"; did you mean "history"?\n'


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in WITHOUT_MANIFEST])
def test_every_verb_takes_the_manifest_by_the_same_option_and_by_no_argument(verb: str) -> None:
    options = {name for action in build_parser(verb)._actions for name in action.option_strings}
    assert {"-f", "--file"} <= options
    assert not any(
        action.metavar == "FILE" for action in build_parser(verb)._actions if not action.option_strings
    )


def test_a_manifest_named_as_an_argument_is_an_error_that_names_the_option(detent: Detent) -> None:
    said = detent("validate", "jobs.yaml")
    assert said.code == 2
    assert "unexpected argument: jobs.yaml; name the manifest with `-f jobs.yaml`" in said.err


def test_a_mistyped_option_suggests_the_nearest(detent: Detent) -> None:
    said = detent("validate", "--srict")
    assert said.code == 2 and 'did you mean "--strict"?' in said.err


@pytest.mark.parametrize("text", [MANIFEST, JSON, TOML])
def test_a_manifest_can_come_from_standard_input(folder: Path, text: str) -> None:
    said = pipe(folder, text, "validate", "-f", "-")
    assert (said.code, said.err) == (0, "")
    assert "ok: -: app demo" in said.out


def test_a_problem_in_standard_input_has_its_line(folder: Path) -> None:
    said = pipe(folder, MANIFEST.replace("@hourly", "@hurly"), "validate", "-f", "-")
    assert said.code == 1 and "jobs[1].schedules[1] (-:9)" in said.err


def test_doctor_takes_a_manifest_that_is_no_file(folder: Path) -> None:
    said = pipe(folder, JSON, "doctor", "-f", "-", "--store", f"sqlite:///{folder}/x.db")
    assert said.code == 0, said.out + said.err
    said = pipe(folder, "", "doctor", "-f", "http://127.0.0.1:1/", "--store", f"sqlite:///{folder}/x.db")
    assert said.code == 1 and "connection refused" in said.out


def test_a_crontab_can_come_from_standard_input(folder: Path) -> None:
    for words in (("validate", "--crontab", "user:-"), ("convert", "-"), ("convert", "--crontab", "user:-")):
        said = pipe(folder, CRONTAB, *words)
        assert said.code == 0, said.err
        assert "app" in said.out
