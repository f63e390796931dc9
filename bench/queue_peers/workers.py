"""The worker processes of a program: their notes, and their cost.

They are started once, and stopped (SIGSTOP) while their queue is filled: so what they do with a full queue is
measured without their start.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import noted
from node_process import environment, spent
from queue_peers.tally import URL, VARIANT

PROCESSES = 2
LOOK_S, GENTLE_S = 0.01, 20.0
PATIENCE_S = 60.0  # without a task
WARM_UP, WARM_UP_S, WARM_UPS = 32, 3.0, 20
# The extra of each program, and the name of its environment: some programs exclude others.
USUAL, OLDER = "bench-queues", "bench-queues-older"
PLACES = {"arq": OLDER, "saq": OLDER}


class Stuck(Exception):
    """A program does not work, and cannot be measured."""


class Peer(NamedTuple):
    """One variant of a program, and its settings."""

    module: str
    variant: str = ""

    @property
    def python(self) -> str:
        """Return the interpreter of its environment; detent uses this one."""
        if self.module == "ours":
            return sys.executable
        return str(Path(sys.prefix, PLACES.get(self.module, USUAL), "bin", "python"))

    @property
    def is_there(self) -> bool:
        return Path(self.python).exists()


class Site(NamedTuple):
    """Where a program runs: an empty server, and a file for the tasks' notes."""

    peer: Peer
    url: str
    notes: Path

    @property
    def env(self) -> dict[str, str]:
        folder = str(Path(self.peer.python).parent)
        path = os.pathsep.join((folder, os.environ.get("PATH", os.defpath)))
        settings = {noted.VARIABLE: str(self.notes), URL: self.url, VARIANT: self.peer.variant}
        return environment(**settings, PATH=path)

    def ask(self, verb: str, *numbers: int) -> dict[str, Any]:
        """Run the driver in the program's environment, and return its JSON."""
        line = [self.peer.python, "-m", "queue_peers.driver", self.peer.module, verb, *map(str, numbers)]
        answer = subprocess.run(line, env=self.env, capture_output=True, text=True)
        if answer.returncode:
            raise Stuck(f"{verb}: {answer.stderr[-3000:]}")
        found: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
        return found

    def count(self) -> int:
        return self.notes.stat().st_size // 8 if self.notes.exists() else 0

    def warm(self) -> int:
        """Return how many processes have run a task."""
        return sum(1 for _ in self.notes.parent.glob(f"{self.notes.name}.*"))


@contextmanager
def site(peer: Peer, url: str) -> Iterator[Site]:
    """Return a folder in memory if possible, because notes must be cheap."""
    memory = "/dev/shm"
    folder = tempfile.mkdtemp(prefix="detent-bench-", dir=memory if Path(memory).is_dir() else None)
    try:
        yield Site(peer, url, Path(folder, "notes"))
    finally:
        shutil.rmtree(folder)


class Workers:
    """The warm worker processes of one program."""

    def __init__(self, at: Site, lines: Iterable[list[str]]) -> None:
        self.site, self.log = at, at.notes.with_name("log")
        with self.log.open("ab") as log:
            self._roots = [
                subprocess.Popen(
                    [shutil.which(line[0], path=at.env["PATH"]) or line[0], *line[1:]],
                    env=at.env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
                for line in lines
            ]

    def warm_up(self) -> None:
        """Wait until each process has run a task and none is left."""
        for i in range(WARM_UPS):
            self.site.ask("push", WARM_UP)
            with suppress(Stuck):
                self._wait_for(lambda: self.site.warm() >= PROCESSES, WARM_UP_S)
                self.wait_count((i + 1) * WARM_UP)
                return
        raise Stuck(f"{self.site.warm()} of {PROCESSES} processes work: {self._said()}")

    def wait_count(self, n: int) -> None:
        """Wait until this many tasks were called since the start."""
        while (before := self.site.count()) < n:
            self._wait_for(lambda seen=before: self.site.count() > seen, PATIENCE_S)
            time.sleep(LOOK_S)

    def _wait_for(self, look: Callable[[], bool], within_s: float) -> None:
        give_up_at = time.monotonic() + within_s
        while not look():
            if any(root.poll() is not None for root in self._roots):
                raise Stuck(f"a worker ended: {self._said()}")
            if time.monotonic() > give_up_at:
                raise Stuck(f"nothing happens any more after {self.site.count()} tasks: {self._said()}")
            time.sleep(LOOK_S)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop all of them while their queue is filled."""
        pids = self.pids()
        for pid in pids:
            _send(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                _send(pid, signal.SIGCONT)

    def pids(self) -> list[int]:
        return tree(root.pid for root in self._roots)

    def end(self) -> None:
        """Send SIGTERM, then SIGKILL to all that are left, including orphans."""
        pids = self.pids()
        for root in self._roots:
            _send(root.pid, signal.SIGTERM)
        give_up_at = time.monotonic() + GENTLE_S
        while any(root.poll() is None for root in self._roots) and time.monotonic() < give_up_at:
            time.sleep(LOOK_S)
        for pid in {*pids, *self.pids()}:
            _send(pid, signal.SIGKILL)
        for root in self._roots:
            root.wait()

    def _said(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]


@contextmanager
def workers(at: Site, lines: Iterable[list[str]]) -> Iterator[Workers]:
    started = Workers(at, lines)
    try:
        started.warm_up()
        yield started
    finally:
        started.end()


# From the kernel.


def tree(roots: Iterable[int]) -> list[int]:
    """Return these processes and their descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found = list(roots)
    for pid in found:
        found += children.get(pid, ())
    return found


def cpu_s(pids: Iterable[int]) -> float:
    """CPU of these processes and of their ended children."""
    total = 0.0
    for pid in pids:
        with suppress(OSError):
            total += sum(spent(pid))
    return total


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
