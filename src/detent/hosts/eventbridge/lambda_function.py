"""The Lambda function that a schedule calls: it runs the trigger, and fails where the trigger does.

- The trigger is a process of its own, as everywhere else: its signals, its warden and its exit code.
- Contention is no failure.  Whatever else ends with another code than 0 is raised, so that the function has
  failed in the eyes of Lambda: its metrics, its alarms, its destination for failures.
- Shortly before Lambda's own limit the trigger is told to stop, so that the attempt is ended and settled.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, NamedTuple

from detent.errors import HostError, UsageError
from detent.text import show

SPARE_S = 10.0  # before Lambda's limit: for the attempt to end and to be settled
KILL_S = 2.0  # before Lambda's limit: it is over, settled or not
CODES = {1: "rejected", 2: "no attempt is left", 3: "it could not be tried"}

_JOB = re.compile(r"[a-z][a-z0-9-]{0,62}\.[a-z][a-z0-9-]{0,62}")


class TriggerEvent(NamedTuple):
    """What a schedule says when it rings."""

    job: str
    rang_at: str
    spec: dict[str, Any]


def handler(event: Any, context: Any) -> dict[str, Any]:
    """The entry point: `detent.hosts.eventbridge.host:handler`."""
    called = read_event(event)
    left_s = context.get_remaining_time_in_millis() / 1000 if context is not None else None
    code = run_trigger(called, left_s, dict(os.environ))
    if code:
        why = CODES.get(code, f"ended by signal {code - 128}" if code > 128 else f"exit code {code}")
        raise HostError(f"{called.job}: {why}; what the trigger logged is above")
    return {"job": called.job, "rang_at": called.rang_at}


def read_event(event: Any) -> TriggerEvent:
    said = event.get("detent") if isinstance(event, dict) else None
    if not isinstance(said, dict) or not isinstance(said.get("spec"), dict):
        raise UsageError("this function is called by schedules that `detent apply --host eventbridge` wrote")
    job = said.get("job")
    if not isinstance(job, str) or not _JOB.fullmatch(job):
        raise UsageError(f"{show(job)} is not the name of a job: it is app.job")
    rang_at = str(said.get("rang_at", ""))
    return TriggerEvent(job, "" if rang_at.startswith("<") else rang_at, said["spec"])


def run_trigger(event: TriggerEvent, left_s: float | None, env: Mapping[str, str]) -> int:
    """The exit code of the trigger; of a signal, 128 and its number."""
    with TemporaryDirectory(prefix="detent-") as folder:
        (Path(folder) / f"{event.job}.json").write_text(json.dumps(event.spec))
        rang = ["--rang-at", event.rang_at] if event.rang_at else []
        words = [
            sys.executable,
            "-m",
            "detent",
            "trigger",
            "--contended-ok",
            "--spec-dir",
            folder,
            *rang,
            event.job,
        ]
        process = subprocess.Popen(words, env=_environment(event, env))
        code = _wait(process, left_s)
    return 128 - code if code < 0 else code


def _environment(event: TriggerEvent, env: Mapping[str, str]) -> dict[str, str]:
    """Nothing but the temporary folder can be written there, and our modules may be anywhere."""
    store = event.spec.get("store", {}).get("url", "")
    return {
        **({"DETENT_STORE": store} if store else {}),
        **env,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "XDG_STATE_HOME": gettempdir(),
    }


def _wait(process: subprocess.Popen[bytes], left_s: float | None) -> int:
    if left_s is None:
        return process.wait()
    try:
        return process.wait(max(left_s - SPARE_S, 0.1))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
    try:
        return process.wait(SPARE_S - KILL_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
