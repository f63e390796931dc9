"""Every verb's example runs, as it is written, in a folder where a node runs the jobs that it names.

A new verb needs no change here, unless its example needs another file or fire.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.cli_world import SOURCES, WAIT_MAX_S, call, environment, node, until
from tests.equipment.receiver import Receiver

from detent.cli.main import VERBS, verb_module

MANIFEST = """
version: 2
app: demo
store: sqlite:///try.db
jobs:
  - {name: backup, schedule: "30 2 * * *", timezone: Europe/Berlin, policy: {dst: vixie},
     command: 'echo done; while test -e held; do sleep 0.05; done', on_failure: "json://127.0.0.1:9"}
  - {name: report-daily, schedule: "0 9 * * MON-FRI", command: 'true'}
"""
SHOP = """
import detent

app = detent.Detent("shop", store="sqlite:///shop.db")


@app.task(queue="mail")
def send(to: str) -> None: ...
"""
FILES = {
    "detent.yaml": MANIFEST,
    "shop.py": SHOP,
    "crontab": "30 2 * * * echo done\n",
    "system.crontab": "0 9 * * 1-5 root true\n",
    "cronlock.yaml": "jobs:\n  - {name: backup, schedule: '30 2 * * *', command: echo done}\n",
}
ENDLESS = ("run", "worker")  # they run until a signal stops them


def examples(verb: str) -> list[str]:
    """The commands of an example: `detent show backup, detent show detent.yaml`."""
    first, *more = str(verb_module(verb).EXAMPLE).split(", detent ")
    return [first, *(f"detent {words}" for words in more)]


def furnish(folder: Path) -> Path:
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "bin").mkdir()
    program = folder / "bin" / "detent"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m detent "$@"\n')
    program.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with files and a past, in which a node runs; `detent` is on its PATH."""
    folder, receiver = furnish(tmp_path_factory.mktemp("world")), Receiver()
    address = receiver.url.replace("http://", "json://")
    (folder / "detent.yaml").write_text(MANIFEST.replace("json://127.0.0.1:9", address))
    with node(folder):
        assert call(folder, "fire", "backup", "--wait").code == 0
        yield folder
    receiver.close()


def start(folder: Path, example: str) -> subprocess.Popen[bytes]:
    env = environment(folder, PATH=f"{folder / 'bin'}:{os.environ['PATH']}")
    return subprocess.Popen(
        ["/bin/sh", "-c", f"exec {example}"],
        cwd=folder,
        env={**env, "PYTHONPATH": str(SOURCES)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def hold_a_fire(folder: Path) -> None:
    (folder / "held").touch()
    key = call(folder, "fire", "backup").out.strip()
    until("it has begun", lambda: "done" in call(folder, "logs", key).out)


def let_go(folder: Path) -> None:
    (folder / "held").unlink(missing_ok=True)


BEFORE: dict[str, Callable[[Path], None]] = {"kill": hold_a_fire}
AFTER: dict[str, Callable[[Path], None]] = {"kill": let_go}


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ENDLESS])
def test_the_example_of_a_verb_runs(world: Path, verb: str) -> None:
    BEFORE.get(verb, lambda folder: None)(world)
    for example in examples(verb):
        assert example.startswith(f"detent {verb}")
        process = start(world, example)
        out, err = process.communicate(timeout=WAIT_MAX_S)
        assert process.returncode == 0, f"{example}\n{out.decode()}\n{err.decode()}"
    AFTER.get(verb, lambda folder: None)(world)


@pytest.mark.parametrize("verb", ENDLESS)
def test_the_example_of_a_long_running_verb_runs_until_a_signal_stops_it(verb: str, tmp_path: Path) -> None:
    for example in examples(verb):
        process = start(furnish(tmp_path), example)
        assert process.stderr
        first = process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=WAIT_MAX_S)
        assert b'"started"' in first
        assert process.returncode == 0
