"""Real nodes for tests: `detent run` as processes, with a manifest, a store and a witness of their own.

1. A test waits for a log event, a line of the witness or a row of the store; never for time.
2. Processes are ended by their ids.  The fixture checks for leftovers, and clears them up.
3. The witness is not ours: commands append to one file and hold a flock of their lane, so that the
   kernel says whether two of them ran together.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import yaml

from detent.clock import instant
from detent.loading.config import load_manifest
from detent.model import Query, Row
from detent.rules.planning import manual_fire
from detent.stores.base import find_all
from detent.stores.registry import open_store
from detent.warden.program import kernel
from detent.warden.program.sweep import sweep

PATIENCE_S = 60.0  # for events that take a second or two on an idle machine
LOOK_S = 0.1  # between two looks that cost much, such as queries of a store
START_S = 1.0  # between two looks that each start a process
SOURCES = Path(__file__).parents[2] / "src"
WITNESSED = Path(__file__).with_name("witnessed.py")
NEVER = "0 0 1 1 *"  # a schedule for jobs that a test fires by hand
T = TypeVar("T")


def wait_for(
    look: Callable[[], T], within_s: float = PATIENCE_S, what: str = "it", every_s: float = 0.05
) -> T:
    """Return what `look` finds, as soon as it finds something."""
    give_up_at = time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < give_up_at, f"{what} did not come to pass within {within_s:g} s"
        time.sleep(every_s)
    return found


def alive(**env: str) -> set[int]:
    """Return the live processes that were started with these variables."""
    entries = {f"{name}={value}".encode() for name, value in env.items()}
    return {pid for pid in kernel.processes() if entries <= kernel.environ(pid) and _is_alive(pid)}


def _is_alive(pid: int) -> bool:
    stat = kernel.stat(pid)
    return stat is not None and stat.state not in "ZX"


class Seen(NamedTuple):
    """One line of the witness."""

    what: str  # start | end
    at: float  # CLOCK_MONOTONIC, of the kernel
    lane: str
    key: str
    run_id: str
    node: str
    pid: int
    fence: int
    attempt: int
    free: bool  # at a start: no other process had the lane's flock

    def alive(self) -> set[int]:
        """The processes of this fire.  Its run id alone may be that of a fire of another test."""
        return alive(DETENT_RUN_ID=self.run_id, DETENT_NODE=self.node)


class Witness:
    def __init__(self, path: Path) -> None:
        self.path = path

    def words(self, lane: str, *deed: str) -> list[str]:
        """Return a witnessed command that does this; `witnessed.py` has the deeds."""
        return [sys.executable, "-I", "-S", str(WITNESSED), str(self.path), lane, *deed]

    def seen(self, what: str = "", lane: str = "", key: str = "") -> list[Seen]:
        if not self.path.exists():
            return []
        *lines, _ = self.path.read_text().split("\n")
        found = [Seen(**json.loads(line)) for line in lines]
        wanted = (what, lane, key)
        return [one for one in found if _fits((one.what, one.lane, one.key), wanted)]

    def starts(self, lane: str = "", key: str = "") -> list[Seen]:
        return self.seen("start", lane, key)

    def wait_start(self, lane: str = "", after: int = 0, within_s: float = PATIENCE_S) -> Seen:
        """Wait for the first start in this lane after this many."""
        return wait_for(lambda: self.starts(lane)[after:], within_s, f"start {after + 1} of {lane}")[0]

    def assert_no_overlap(self) -> None:
        assert [one for one in self.starts() if not one.free] == []

    def assert_launched_once(self) -> None:
        launched = [(one.key, one.attempt) for one in self.starts()]
        assert sorted(launched) == sorted(set(launched))


class NodeProcess:
    """One `detent run`, with a log file of its own."""

    def __init__(self, words: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.log = log
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                words, env=env, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr, start_new_session=True
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def instance(self) -> str:
        return str(self.wait("started")["node"])

    @property
    def warden(self) -> int:
        """The warden's process id."""
        return wait_for(lambda: list(filter(_is_warden, kernel.children(self.pid))), what="a warden")[0]

    def events(self, event: str = "", **fields: Any) -> list[dict[str, Any]]:
        """Return the events logged so far with this name and these fields."""
        *lines, _ = self.log.read_text().split("\n")
        said = [json.loads(line) for line in lines if line.startswith("{") and event in line]
        said = [one for one in said if not event or one["event"] == event]
        return [one for one in said if all(one.get(name) == value for name, value in fields.items())]

    def wait(self, event: str, count: int = 1, within_s: float = PATIENCE_S, **fields: Any) -> dict[str, Any]:
        """Wait for its event number `count` of this kind."""

        def look() -> list[dict[str, Any]]:
            found = self.events(event, **fields)[count - 1 :]
            assert found or self.process.poll() is None, f"it ended instead: {self.log.read_text()}"
            return found

        return wait_for(look, within_s, f"{event} {count} {fields}")[0]

    def send(self, signum: int) -> None:
        os.kill(self.pid, signum)

    def kill(self) -> None:
        """Like kill -9."""
        self.send(signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def end(self, signum: int = signal.SIGTERM) -> int:
        self.send(signum)
        return self.process.wait(PATIENCE_S)

    def plain_lines(self) -> list[str]:
        """Return lines of its log that are no events; there should be none."""
        return [line for line in self.log.read_text().splitlines() if not line.startswith("{")]

    def clear_up(self) -> None:
        """Kill its remaining processes."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE_S)
        for said in self.events("started"):
            assert sweep(said["node"], PATIENCE_S), f"something of {said['node']} cannot be ended"


class Fleet:
    """A manifest, a store, a witness, and the nodes that a test starts on them."""

    def __init__(self, directory: Path, prefix: Sequence[str] = ()) -> None:
        self.directory, self._prefix = directory, list(prefix)
        self.file, self.database = directory / "detent.yaml", directory / "state" / "detent.db"
        self.witness = Witness(directory / "witness")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("DETENT_")}
        self.env |= {"PYTHONPATH": str(SOURCES), "DETENT_CONFIG": ""}
        self.nodes: list[NodeProcess] = []

    @property
    def url(self) -> str:
        return f"sqlite:///{self.database}"

    @property
    def node_url(self) -> str:
        """The store's URL for nodes, which may go through a proxy."""
        return self.url

    @property
    def instances(self) -> Path:
        return self.database.with_name(self.database.name + ".nodes")

    def write(self, *jobs: Mapping[str, Any], **top: Any) -> None:
        """Write the manifest, atomically."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(yaml.safe_dump({"version": 2, "app": "t", "jobs": list(jobs), **top}))
        fresh.rename(self.file)

    def job(self, name: str, *deed: str, schedule: str = "@every 1s", **fields: Any) -> dict[str, Any]:
        """Return a job whose command is witnessed."""
        return {"name": name, "schedule": schedule, "command": self.witness.words(name, *deed), **fields}

    def start(self, **env: str) -> NodeProcess:
        """Start a node, and wait until it takes part."""
        node = self.launch(**env)
        node.wait("started")
        return node

    def launch(self, *options: str, **env: str) -> NodeProcess:
        """Start a node that may have to wait for its store, or refuse to."""
        words = [*self._prefix, sys.executable, "-m", "detent", "run", "-f", str(self.file), *options]
        words += ["--store", self.node_url]
        node = NodeProcess(words, self.env | env, self.directory / f"node-{len(self.nodes)}.log")
        self.nodes.append(node)
        return node

    def ask(self, verb: str, *words: str) -> bytes:
        """Return the output of another verb."""
        line = [sys.executable, "-m", "detent", verb, *words, "--store", self.url]
        return subprocess.run(line, env=self.env, cwd=self.directory, capture_output=True, check=True).stdout

    def node_of(self, instance: str) -> NodeProcess:
        return next(node for node in self.nodes if node.process.poll() is None and node.instance == instance)

    def fire(self, name: str) -> str:
        """Fire a job by hand, and return the key."""
        jobs = {job.name: job for job in load_manifest(self.file, self.env).jobs}
        fire = manual_fire(jobs[f"t.{name}"], instant(int(time.time())), secrets.token_hex(4))
        with closing(open_store(self.url)) as store:
            assert store.put([fire]) == [True]
        return fire.key

    def find(self, **query: Any) -> list[Row]:
        """Rows by due instant, oldest first."""
        with closing(open_store(self.url)) as store:
            return find_all(store, Query(app="t", limit=100_000, **query))[::-1]

    def row(self, key: str) -> Row:
        return self.find(key=key)[0]

    def wait_over(self, key: str, within_s: float = PATIENCE_S) -> Row:
        found = wait_for(lambda: self.find(key=key, state="over"), within_s, f"the end of {key}", LOOK_S)
        return found[0]

    def due(self, name: str, until: datetime) -> list[Row]:
        """The rows of a job that are due by then, oldest first."""
        return self.find(job=f"t.{name}", until=until, origins=("schedule",))

    def is_planned_until(self, name: str, until: datetime) -> bool:
        """Whether the job's watermark has reached this instant."""
        with closing(open_store(self.url)) as store:
            watermark = store.look("t").by_job.get(f"t.{name}")
        return watermark is not None and watermark.at >= until

    def clear_up(self) -> None:
        for node in self.nodes:
            node.clear_up()

    def assert_quiet(self) -> None:
        """Assert that nodes logged only events, and no internal error."""
        for node in self.nodes:
            assert node.plain_lines() == []
            assert node.events("internal-error") == []


def _fits(has: Sequence[str], wanted: Sequence[str]) -> bool:
    return all(want in ("", one) for one, want in zip(has, wanted, strict=True))


def _is_warden(pid: int) -> bool:
    try:
        return b"warden/main.py" in kernel.read(f"{kernel.PROC}/{pid}/cmdline")
    except OSError:
        return False
