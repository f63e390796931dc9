"""The other schedulers of the benchmarks, each in a fresh process: `python peers.py NAME N …` prints JSON.

Instants are seconds since the epoch.  Each program is used as its documentation recommends; its settings are
arguments, so that a table can name them.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from node_process import environment

TRUE = "/bin/true"
LEAD_S = 1.0  # from the last preparation to the due instant


def is_there(module: str) -> bool:
    return find_spec(module) is not None


def missing_note(module: str) -> str:
    return f"{module} is not installed and was left out: pip install -e '.[bench]'"


def ask_peer(*words: object) -> dict[str, Any]:
    """Return what such a process prints."""
    line = [sys.executable, str(Path(__file__)), *map(str, words)]
    answer = subprocess.run(
        line, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
    )  # APScheduler logs each fire that it drops
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


# Raw spawning.


def spawn(n: int, in_flight: int) -> dict[str, Any]:
    """Start this many commands, with a limit on how many run at a time."""
    actions = [(os.POSIX_SPAWN_OPEN, fd, "/dev/null", os.O_RDWR, 0) for fd in range(3)]
    env, starts, running, failed = dict(os.environ), [], 0, 0
    due, before = time.time(), _cpu_s()
    for _ in range(n):
        if running == in_flight:
            failed += os.wait()[1] != 0
            running -= 1
        starts.append(time.time())
        os.posix_spawn(TRUE, [TRUE], env, file_actions=actions)
        running += 1
    while running:
        failed += os.wait()[1] != 0
        running -= 1
    return _found(due, starts, time.time(), before) | {"ran": n - failed}


# APScheduler 3.


def apscheduler(n: int, work: str, workers: int, misfire_grace_s: int) -> dict[str, Any]:
    """Run this many jobs with a date trigger at one instant.  `misfire_grace_s` 0 keeps the default.  A
    misfire in APScheduler is a dropped fire."""
    from apscheduler.events import EVENT_JOB_EXECUTED, EVENT_JOB_MISSED
    from apscheduler.executors.pool import ThreadPoolExecutor
    from apscheduler.schedulers.background import BackgroundScheduler

    defaults = {"misfire_grace_time": misfire_grace_s} if misfire_grace_s else {}
    executors = {"default": ThreadPoolExecutor(workers)}
    scheduler = BackgroundScheduler(executors=executors, job_defaults=defaults, timezone="UTC")
    starts: list[float] = []
    ended: list[float] = []
    all_over = threading.Event()

    def count(event: Any) -> None:
        ended.append(time.time())
        if len(ended) == n:
            all_over.set()

    scheduler.add_listener(count, EVENT_JOB_EXECUTED | EVENT_JOB_MISSED)
    scheduler.start(paused=True)
    due = _due(n)
    for _ in range(n):
        scheduler.add_job(WORKS[work], "date", run_date=due, args=[starts])
    before = _cpu_s()
    scheduler.resume()
    all_over.wait(600)
    last = max(ended)
    scheduler.shutdown()
    return _found(due.timestamp(), starts, last, before)


def _due(n: int) -> datetime:
    """Return a whole second before which this many jobs are added."""
    return datetime.fromtimestamp(int(time.time() + LEAD_S + n / 2000) + 1, UTC)


def _run_true(starts: list[float]) -> None:
    starts.append(time.time())
    null = subprocess.DEVNULL
    subprocess.run([TRUE], stdin=null, stdout=null, stderr=null, check=True)


def _note(starts: list[float]) -> None:
    starts.append(time.time())


WORKS = {"command": _run_true, "call": _note}


def _found(due: float, starts: list[float], end: float, before: list[float]) -> dict[str, Any]:
    """`before` is the CPU used before the work started."""
    cpu_s = [now - then for now, then in zip(_cpu_s(), before, strict=True)]
    late_s = sorted(start - due for start in starts)
    return {"took_s": end - due, "late_s": late_s, "ran": len(starts), "cpu_s": cpu_s}


def _cpu_s() -> list[float]:
    """CPU of this process and of its ended children."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return [usage.ru_utime + usage.ru_stime for usage in usages]


if __name__ == "__main__":
    name, *given = sys.argv[1:]
    if name == "spawn":
        found = spawn(*map(int, given))
    else:
        n, work, workers, grace = given
        found = apscheduler(int(n), work, int(workers), int(grace))
    print(json.dumps(found))
