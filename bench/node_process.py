"""A real `detent run` to measure: a process with a manifest, a SQLite store on disk and a log.

What it did is read from its store and its log, and what it cost from the kernel.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

SOURCES = Path(__file__).parents[1] / "src"
LOOK_S = 0.1  # between two checks of a condition
PATIENCE_S = 600.0
START_S, START_EACH_S = 1.5, 1 / 400  # time to plan the jobs: fixed, and per job; doubled after each failure
TRIES = 4
BRINK_S = 0.2  # before the due instant: nothing has started yet
OPEN = "SELECT 1 FROM fires WHERE lane <> '' AND state <> 'over' LIMIT 1"
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1e6
T = TypeVar("T")


class Spent(NamedTuple):
    """CPU seconds of a process and of its ended children."""

    own_s: float
    children_s: float


class Hasty(Exception):
    """The jobs were due before they were planned, so the run is void."""


class NodeProcess:
    def __init__(
        self,
        directory: Path,
        manifest: dict[str, Any],
        env: dict[str, str],
        store: str,
        further: Sequence[str],
    ) -> None:
        self.directory = directory
        self.database, self.log = directory / "detent.db", directory / "log"
        file = directory / "detent.json"
        file.write_text(json.dumps(manifest))
        url = store or f"sqlite:///{self.database}"
        words = [sys.executable, "-m", "detent", "run", "-f", str(file), "--store", url, *further]
        with self.log.open("ab") as log:  # append mode, so that a long benchmark can truncate it
            self._process = subprocess.Popen(
                words, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory
            )
        self.pid = self._process.pid

    def wait_for(self, look: Callable[[], T], what: str, within_s: float) -> T:
        """Return what `look` finds, as soon as it finds something."""
        give_up_at = time.monotonic() + within_s
        while not (found := look()):
            if self._process.poll() is not None:
                raise SystemExit(f"the node ended before {what}: {self.log.read_text()[-2000:]}")
            if time.monotonic() > give_up_at:
                raise SystemExit(f"no sign of {what} within {within_s:g} s")
            time.sleep(LOOK_S)
        return found

    def wait_started(self) -> None:
        self.wait_for(lambda: b'"started"' in self.log.read_bytes()[:100_000], "its start", PATIENCE_S)

    def wait_brink(self, n: int, due: float) -> None:
        """Wait until this many fires are planned and nearly due.  A node that is too late plans none."""
        self.wait_for(lambda: self.count_fires() == n or time.time() > due, f"{n} planned fires", PATIENCE_S)
        left_s = due - time.time() - BRINK_S
        if left_s < 0:
            raise Hasty
        time.sleep(left_s)

    def wait_over(self, due: float) -> None:
        """Wait until every due fire is settled."""
        time.sleep(max(0.0, due - time.time() + LOOK_S))
        self.wait_for(lambda: not self.ask(OPEN), "the last end", PATIENCE_S)

    def events(self, event: str) -> list[dict[str, Any]]:
        with self.log.open() as lines:
            return [json.loads(line) for line in lines if f'"{event}"' in line]

    def ask(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return rows of its store, or none if the store does not exist yet."""
        if not self.database.exists():
            return []
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=10)) as db:
            made = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'jobs'").fetchone()
            return db.execute(statement, values).fetchall() if made else []

    def count_fires(self) -> int:
        return sum(count for (count,) in self.ask("SELECT count(*) FROM fires"))

    @property
    def warden(self) -> int:
        """The process id of its warden."""
        text = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return next(pid for pid in map(int, text.split()) if b"warden/main.py" in _cmdline(pid))

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def node(
    manifest: dict[str, Any],
    env: dict[str, str] | None = None,
    store: str = "",
    further: Sequence[str] = (),  # words of the command line
) -> Iterator[NodeProcess]:
    """Run a node in a temporary directory, on a SQLite file there or on the given store."""
    with tempfile.TemporaryDirectory(prefix="detent-bench-") as directory:
        process = NodeProcess(Path(directory), manifest, env or environment(), store, further)
        try:
            yield process
        finally:
            process.stop()


def manifest_of(jobs: list[dict[str, Any]], **settings: Any) -> dict[str, Any]:
    return {"version": 2, "app": "bench", "node": settings, "jobs": jobs}


def at_one_instant(n: int, turn: Callable[[int], T]) -> T:
    """Call `turn` with an instant, in whole seconds, before which this many jobs can be planned."""
    for patience in range(TRIES):
        try:
            return turn(int(time.time() + (START_S + n * START_EACH_S) * 2**patience) + 1)
        except Hasty:
            continue
    raise SystemExit(f"{n} jobs were not planned in time: this machine is too busy for this bench")


def environment(**further: str) -> dict[str, str]:
    """Return the environment of a measured process: this tree's package, without the caller's DETENT_…
    variables, and with cached bytecode as in an installed package."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("DETENT_")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    path = filter(None, (str(SOURCES), str(Path(__file__).parent), env.get("PYTHONPATH")))
    return env | {"PYTHONPATH": os.pathsep.join(path)} | further


# From the kernel.


def spent(pid: int) -> Spent:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own, system, children, children_system = map(int, fields[11:15])
    return Spent((own + system) * TICK_S, (children + children_system) * TICK_S)


def memory_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_MB


def peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024 / 1e6


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
