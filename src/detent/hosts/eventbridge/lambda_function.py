"""The Lambda function that a schedule calls: it runs the trigger in a process, and fails if the trigger
fails.

Contention is not a failure.  Any other non-zero exit code is raised, so that Lambda's metrics, alarms and
failure destination see it.  The trigger is stopped shortly before Lambda's own limit, so that it can settle
its attempt.
"""

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

SPARE_S = 10.0  # before Lambda's limit, the trigger is stopped
KILL_S = 2.0  # before Lambda's limit, the trigger is killed
CODES = {1: "rejected", 2: "all attempts failed", 3: "it could not be attempted"}

_JOB = re.compile(r"[a-z][a-z0-9-]{0,62}\.[a-z][a-z0-9-]{0,62}")


class TriggerEvent(NamedTuple):
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
        raise HostError(f"{called.job}: {why}; see the log of the trigger above")
    return {"job": called.job, "rang_at": called.rang_at}


def read_event(event: Any) -> TriggerEvent:
    content = event.get("detent") if isinstance(event, dict) else None
    if not isinstance(content, dict) or not isinstance(content.get("spec"), dict):
        raise UsageError("only schedules of `detent apply --host eventbridge` may call this function")
    job = content.get("job")
    if not isinstance(job, str) or not _JOB.fullmatch(job):
        raise UsageError(f"{show(job)} is not a job name such as app.job")
    rang_at = str(content.get("rang_at", ""))
    return TriggerEvent(job, "" if rang_at.startswith("<") else rang_at, content["spec"])


def run_trigger(event: TriggerEvent, left_s: float | None, env: Mapping[str, str]) -> int:
    """Return the exit code of the trigger; for a signal, 128 plus its number."""
    with TemporaryDirectory(prefix="detent-") as folder:
        (Path(folder) / f"{event.job}.json").write_text(json.dumps(event.spec))
        rang = ["--rang-at", event.rang_at] if event.rang_at else []
        words = [sys.executable, "-m", "detent", "trigger", "--contended-ok", "--spec-dir", folder]
        process = subprocess.Popen([*words, *rang, event.job], env=_environment(event, env))
        code = _wait(process, left_s)
    return 128 - code if code < 0 else code


def _environment(event: TriggerEvent, env: Mapping[str, str]) -> dict[str, str]:
    """Lambda can only write to the temporary directory, and detent may be installed anywhere."""
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
