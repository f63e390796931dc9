"""What tests of apps share: modules in a temporary folder, processes that run them, and their ticks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tests.equipment.fleet import PATIENCE_S, wait_for

SOURCES = Path(__file__).parents[2] / "src"

APP = """
import os

import detent

app = detent.Detent("shop", store=os.environ["STORE"])


def note(line: str) -> None:
    fd = os.open(os.environ["TICKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{line} {os.getpid()}\\n".encode())
    os.close(fd)
"""
EVERY_SECOND = """

@app.job("* * * * * *", concurrency="Allow")
def tick(fire: detent.Fire) -> None:
    note(fire.key)
"""


class Tick(NamedTuple):
    what: str
    pid: int


class World:
    """A folder with modules, and processes in it."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder, self.store = folder, store
        self.env = {**os.environ, "STORE": store, "TICKS": str(folder / "ticks"), "PYTHONPATH": str(SOURCES)}
        self.env |= {"XDG_STATE_HOME": str(folder / "state")}

    def write(self, name: str, *texts: str) -> None:
        (self.folder / name).write_text("\n".join(texts))

    def ticks(self) -> list[Tick]:
        path = self.folder / "ticks"
        lines = path.read_text().splitlines() if path.exists() else []
        return [Tick(what, int(pid)) for what, _, pid in (line.rpartition(" ") for line in lines)]

    def wait_ticks(self, count: int, within_s: float = PATIENCE_S) -> list[Tick]:
        wait_for(lambda: len(self.ticks()) >= count, within_s, f"tick {count}: {self.log()}")
        return self.ticks()

    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text() if path.exists() else ""

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a program to its end."""
        said = {"capture_output": True, "text": True, "timeout": 2 * PATIENCE_S}
        return subprocess.run(_words(words), cwd=self.folder, env=self.env, **said)  # type: ignore[call-overload]

    @contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a program until the block ends; then SIGTERM must end it in time."""
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                _words(words), cwd=self.folder, env=self.env, stdout=log, stderr=log, start_new_session=True
            )
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)
        finally:
            with suppress(ProcessLookupError):  # also its forks, which may outlive it
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE_S)


def _words(words: Sequence[str]) -> list[str]:
    """Run `python`, or a module of another program, with this interpreter."""
    if words[0] == "python":
        return [sys.executable, *words[1:]]
    return [sys.executable, "-m", *words]
