"""Shared by tests of the command line: a manifest, a store with history, a running node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from detent import clock
from detent.cli.main import main
from detent.loading.config import load_manifest
from detent.model import Ask, Claim, Fire, Outcome, Report, Verdict
from detent.rules.planning import hook_fire, manual_fire
from detent.stores.sqlite.store import SqliteStore

SOURCES = Path(__file__).parents[2] / "src"
WAIT_MAX_S = 60.0

MANIFEST = """
version: 2
app: demo
store: sqlite:///try.db
jobs:
  - {name: backup, schedule: "30 2 * * *", timezone: Europe/Berlin, command: 'echo done'}
  - name: report
    description: Sends the report
    schedules: ["0 9 * * MON-FRI", "@hourly"]
    request: {url: "https://example.org/report", headers: {Accept: text/plain}}
  - {name: money, schedule: "@every 1h", command: [echo, "$$$$ab", "two words"], tags: [a, b]}
  - {name: resting, schedule: "@daily", command: 'true', enabled: false}
  - {name: deadbeef, schedule: "@yearly", command: 'true', policy: {concurrency: Allow}}
"""


class Result(NamedTuple):
    """The exit code and the output of a verb."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Detent = Callable[..., Result]  # the type of the fixture `detent`


def in_process(capfd: pytest.CaptureFixture[str]) -> Detent:
    """Return a function that runs a verb in this process."""

    def run(*words: str) -> Result:
        code = main(list(words))
        out, err = capfd.readouterr()
        return Result(code, out, err)

    return run


class Past:
    """A store in the working directory, to be filled as by a node."""

    def __init__(self, folder: Path) -> None:
        (folder / "detent.yaml").write_text(MANIFEST)
        manifest = load_manifest(folder / "detent.yaml", {})
        self.jobs = {job.name: job for job in manifest.jobs}
        self.store = SqliteStore(folder / "try.db")
        self._asks = 0

    def put(self, job: str, token: str, seconds_ago: float = 0) -> Fire:
        due_at = clock.now().replace(microsecond=0) - timedelta(seconds=seconds_ago)
        fire = manual_fire(self.jobs[f"demo.{job}"], due_at, token)
        assert self.store.put([fire]) == [True]
        return fire

    def claim(self, fire: Fire) -> Claim:
        self._asks += 1
        ask = Ask("demo", "host.life", self._asks, limit=1)
        return next(claim for claim in self.store.claim(ask).claims if claim.fire.key == fire.key)

    def finish(self, claim: Claim, verdict: Verdict, tail: bytes = b"", **facts: Any) -> None:
        self.store.finish([Report(claim, verdict, tail=tail, **facts)])

    def over(self, job: str, token: str, outcome: Outcome, seconds_ago: float = 0, tail: bytes = b"") -> Fire:
        fire = self.put(job, token, seconds_ago)
        status = 0 if outcome.kind == "succeeded" else 3
        self.finish(self.claim(fire), Verdict(outcome), tail, status=status, took_s=1.5)
        return fire

    def hook(self, fire: Fire) -> Fire:
        hook = hook_fire(fire, "on_failure", fire.due_at, {"outcome": "failed"})
        self.store.put([hook])
        return hook

    def beat(self, **said: Any) -> None:
        about = {"host": "elsewhere", "queues": ["default"], "outputs": "/nowhere", **said}
        self.store.note("demo", "node/host.life", json.dumps(about), 30)


def until(what: str, holds: Callable[[], Any]) -> Any:
    """Wait for a condition; the bound is there only to end a test that fails."""
    deadline = time.monotonic() + WAIT_MAX_S
    while not (found := holds()):
        assert time.monotonic() < deadline, f"not within {WAIT_MAX_S:g} s: {what}"
        time.sleep(0.02)
    return found


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "detent", *words]


def environment(folder: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DETENT_", "PYTHON"))}
    return {**kept, "PYTHONPATH": str(SOURCES), "XDG_STATE_HOME": str(folder / "state"), **more}


def call(folder: Path, *words: str, **more: str) -> Result:
    """Run a verb in its own process."""
    env = environment(folder, **more)
    done = subprocess.run(command(*words), cwd=folder, env=env, capture_output=True, timeout=WAIT_MAX_S)
    return Result(
        done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    )


@contextmanager
def node(folder: Path, store: SqliteStore | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A running `detent run`, ready, for the manifest in the folder; `store`: its store, if not `try.db`."""
    log = folder / "run.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(command("run"), cwd=folder, env=environment(folder), stderr=stream)
    try:
        until("the heartbeat of the node", lambda: process.poll() is not None or _beats(folder, store))
        assert process.poll() is None, log.read_text()
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(WAIT_MAX_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _beats(folder: Path, store: SqliteStore | None) -> bool:
    if '"event": "started"' not in (folder / "run.log").read_text():
        return False
    if store:
        return bool(store.notes(load_manifest(folder / "detent.yaml", {}).app, "node/"))
    with closing(SqliteStore(folder / "try.db")) as own:
        return bool(own.notes("demo", "node/"))
