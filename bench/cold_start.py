"""The cold start of the command line: CPU of a whole process, as a ratio to `python3 -c pass`.

The same interpreter starts all of them, in turn; a process's CPU is what the kernel counted for it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from node_process import environment, manifest_of
from peers import TRUE
from report import Bench, Cell, Effort, Result, Table, main, median

JOBS = 10


def commands(manifest: Path) -> dict[str, list[str]]:
    ours = [sys.executable, "-m", "detent"]
    return {
        "python3 -c pass": [sys.executable, "-c", "pass"],
        "detent version": [*ours, "version"],
        f"detent validate, {JOBS} jobs": [*ours, "validate", str(manifest)],
        f"detent next, {JOBS} jobs": [*ours, "next", "--file", str(manifest)],
    }


def measure(effort: Effort) -> Result:
    with tempfile.TemporaryDirectory(prefix="detent-bench-") as directory:
        manifest = Path(directory) / "detent.json"
        jobs = [{"name": f"job-{i}", "schedule": "0 2 * * *", "command": [TRUE]} for i in range(JOBS)]
        manifest.write_text(json.dumps(manifest_of(jobs)))
        words = commands(manifest)
        took: dict[str, list[float]] = {name: [] for name in words}
        for _ in range(effort.rounds):
            for name, line in words.items():
                took[name].append(_cpu_ms(line))
    return Result((_table(took, effort.rounds),))


def _cpu_ms(words: list[str]) -> float:
    """Milliseconds of CPU of a process, from its start to its end."""
    process = subprocess.Popen(words, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} exited with {process.returncode}")
    return (usage.ru_utime + usage.ru_stime) * 1000


def _table(took: dict[str, list[float]], rounds: int) -> Table:
    bare, *_ = (median(times) for times in took.values())
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (name, median(times), median(times) / bare) for name, times in took.items()
    )
    notes = (f"medians of {rounds} rounds; `detent trigger` has a budget of its own when it is there",)
    return Table("Cold start", ("command", "CPU ms", "÷ python3 -c pass"), rows, notes)


BENCH = Bench("cold_start", {"tiny": Effort(1), "usual": Effort(1, 15), "full": Effort(1, 50)}, measure)

if __name__ == "__main__":
    sys.exit(main(BENCH, __doc__ or ""))
