"""The verbs that deal with a running node: a real `detent run`, real commands, real output."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.cli_world import Result, call, command, environment, node, until

MANIFEST = """
version: 2
app: demo
store: sqlite:///try.db
defaults: {schedule: "@yearly"}
jobs:
  - {name: seven, command: 'echo out; echo err >&2; exit 7'}
  - {name: hurt, command: 'kill -9 $$$$'}
  - {name: fine, command: 'echo fine'}
  - {name: third, command: 'echo a$DETENT_ATTEMPT; test $DETENT_ATTEMPT -ge 3',
     policy: {retries: {max_attempts: 3, min_seconds: 0}}}
  - {name: refused, request: {url: "http://127.0.0.1:9/"}, policy: {retries: {max_attempts: 1}}}
  - {name: brief, command: 'echo one; until test -e brief; do sleep 0.05; done; echo two'}
  - {name: large, command: 'echo one; until test -e large; do sleep 0.05; done; seq 1 200000; echo last'}
  - {name: endless, command: 'echo begun; while true; do sleep 0.05; done', kill_after_seconds: 1}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which a node runs, for all tests of this file."""
    folder = tmp_path_factory.mktemp("node")
    (folder / "detent.yaml").write_text(MANIFEST)
    with node(folder):
        yield folder


@pytest.mark.parametrize(
    ("job", "code", "out", "ending"),
    [
        ("fine", 0, "fine\n", "succeeded: 1 attempt"),
        ("seven", 7, "out\nerr\n", "failed: exit 7"),
        ("hurt", 137, "", "failed: killed by SIGKILL"),
        ("third", 0, "a1\na2\na3\n", "succeeded: 3 attempts"),
        ("refused", 1, "", "failed"),
    ],
)
def test_waiting_for_a_fire_ends_as_the_fire_ends(
    home: Path, job: str, code: int, out: str, ending: str
) -> None:
    said = call(home, "fire", job, "--wait")
    assert (said.code, said.out) == (code, out)
    assert re.fullmatch(rf"demo\.{job}@\S+ {ending}.*", said.err.splitlines()[-1])


def test_waiting_for_programs_gives_the_record_with_its_output(home: Path) -> None:
    said = call(home, "fire", "seven", "--wait", "-o", "json")
    assert (said.code, said.err) == (7, "")
    assert [attempt["output"] for attempt in said.json["attempts"]] == ["out\nerr\n"]


@pytest.mark.parametrize(("job", "ending"), [("brief", b"two\n"), ("large", b"\n200000\nlast\n")])
def test_output_is_followed_while_it_is_written(home: Path, job: str, ending: bytes) -> None:
    key = call(home, "fire", job).out.strip()
    until("its first line is there", lambda: call(home, "logs", key).out == "one\n")
    record = call(home, "logs", job, "-o", "json").json
    assert (record["state"], record["running"]["output"]) == ("claimed", "one\n")
    words, env = command("logs", key, "--follow"), environment(home)
    with subprocess.Popen(
        words, cwd=home, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout and process.stderr
        assert process.stdout.readline() == b"one\n"
        (home / job).touch()
        rest = process.stdout.read()
        assert rest.endswith(ending) if job == "large" else rest == ending
        assert f"{key} succeeded" in process.stderr.read().decode()
        assert process.wait() == 0


def test_a_running_fire_blocks_others_until_it_is_killed(home: Path) -> None:
    key = call(home, "fire", "endless").out.strip()
    until("it has begun", lambda: call(home, "logs", key).out == "begun\n")
    skipped = call(home, "fire", "endless", "--wait")
    assert (skipped.code, skipped.out) == (1, "")
    assert re.search(rf"demo\.endless@\S+ skipped: .*{re.escape(key)}", skipped.err)
    said = call(home, "kill", "endless", "--wait")
    assert said.code == 0
    assert said.err.splitlines()[-1] == f"{key} cancelled"
    record = call(home, "logs", key, "-o", "json").json
    assert (record["outcome"], record["attempts"][0]["output"]) == ("cancelled", "begun\n")
    assert record["reason"].startswith("killed by ")


def test_a_stopping_node_is_not_alive(tmp_path: Path) -> None:
    (tmp_path / "detent.yaml").write_text(MANIFEST)
    with node(tmp_path):
        assert call(tmp_path, "fire", "fine", "--wait").code == 0
    said = call(tmp_path, "fire", "fine")
    assert (said.code, said.out) == (1, "")
    assert "no node of demo is alive" in said.err


def test_the_node_logs_json_when_that_is_asked_for(home: Path) -> None:
    lines = (home / "run.log").read_text().splitlines()
    assert json.loads(lines[0])["event"] == "started"


def on_terminal(folder: Path, *words: str, **more: str) -> Result:
    """A verb with a terminal for its output."""
    outer, inner = pty.openpty()
    env = environment(folder, COLUMNS="200", TERM="xterm-256color", **more)
    process = subprocess.Popen(command(*words), cwd=folder, env=env, stdout=inner, stderr=subprocess.PIPE)
    os.close(inner)
    shown = b""
    try:
        while data := os.read(outer, 65536):
            shown += data
    except OSError:  # how Linux says that the other side is closed
        pass
    os.close(outer)
    _, err = process.communicate()
    return Result(process.returncode, shown.decode(), err.decode())


def test_a_terminal_gets_colours_and_relative_times(home: Path) -> None:
    call(home, "fire", "seven", "--wait")
    said = on_terminal(home, "history", "seven", "-n", "1")
    assert "\x1b[31mfailed" in said.out
    assert " ago)" in said.out or "(now)" in said.out
    assert "\x1b[31m" not in on_terminal(home, "history", "seven", "-n", "1", NO_COLOR="1").out
    assert json.loads(on_terminal(home, "history", "seven", "-o", "json").out)


def test_a_node_on_a_terminal_says_where_to_look_and_what_it_waits_for(tmp_path: Path) -> None:
    text = MANIFEST.replace("app: demo", "app: demo\nnode: {drain_seconds: 600}")
    (tmp_path / "detent.yaml").write_text(text)
    reader, writer = pty.openpty()
    env = environment(tmp_path, NO_COLOR="1", TERM="xterm")
    words = command("run", "-f", "detent.yaml")
    process = subprocess.Popen(words, cwd=tmp_path, env=env, stdin=writer, stdout=writer, stderr=writer)
    os.close(writer)
    printed = b""

    def has_printed(text: str) -> bool:
        nonlocal printed
        printed += os.read(reader, 4096)
        return text in printed.decode()

    until("it has started", lambda: has_printed("logs JOB"))
    assert "in another terminal" in printed.decode() and "status -f detent.yaml" in printed.decode()
    key = call(tmp_path, "fire", "endless").out.strip()
    until("it has begun", lambda: call(tmp_path, "logs", key).out == "begun\n")
    process.send_signal(signal.SIGINT)
    until("it says what it waits for", lambda: has_printed("stops it at once"))
    assert f"still running: {key}  waits at most 600 s; a second Ctrl-C" in printed.decode()
    assert "fire-started" not in printed.decode()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    os.close(reader)
