"""The world of a chaos run: three nodes as on three hosts, their store, their clocks and their networks.

Each node has its own id, state folder, manifest file, wall clock and connection to the store, so that
none can prove another's death through the kernel; `pairs` puts the last two on one host.  On SQLite all
share one host and its clock. The second node has no cgroups, if that can be arranged.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import yaml
from tests.chaos.jobs import APP, Place, manifest
from tests.chaos.servers import STORES
from tests.equipment.fleet import SOURCES, NodeProcess, wait_for
from tests.equipment.proxy import Proxy
from tests.equipment.wall_clock import WallClock, build_skew

from detent.clock import instant
from detent.model import Query, Row
from detent.stores.base import find_all
from detent.stores.registry import open_store
from detent.warden.program import kernel
from detent.warden.program.cgroups import mounted_at
from detent.warden.program.sweep import sweep

ROOT = Path(__file__).parents[2]
PATIENCE_S = 30.0
ALL = 1_000_000


class Member:
    """A node and everything of its host; it may be restarted many times."""

    def __init__(self, name: str, world: World, host: Path) -> None:
        self.name, self._world, self._host = name, world, host
        self.folder = world.folder / name
        self.folder.mkdir()
        self.proxy = Proxy(world.store.target)
        self.clock = WallClock(world.skew, self.folder / "clock")
        self.busy, self.net_busy, self.clock_busy = threading.Lock(), threading.Lock(), threading.Lock()
        self.lives: list[NodeProcess] = []
        self.deploy(0)

    @property
    def node(self) -> NodeProcess:
        return self.lives[-1]

    @property
    def file(self) -> Path:
        return self.folder / "detent.yaml"

    def deploy(self, number: int) -> None:
        """Replace the manifest atomically."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(yaml.safe_dump(self._world.manifest(self.name, number)))
        fresh.rename(self.file)

    def start(self) -> None:
        url = self._world.store.url_by(self.proxy.port)
        words = [*self._prefix(), *self._world.program, "run", "-f", str(self.file), "--store", url]
        log = self.folder / f"{len(self.lives):04}.log"
        self.lives.append(NodeProcess(words, self._world.env | self.clock.env | self._own(), log))

    def is_up(self) -> bool:
        return self.node.process.poll() is None

    def wardens(self) -> list[int]:
        """Return the ids of its running processes."""
        return [pid for pid in kernel.children(self.node.pid) if _is_warden(pid)]

    def pids(self, *, node: bool = False, warden: bool = False) -> list[int]:
        """Kill the warden first, so that it cannot react to the death of its node."""
        return [*(self.wardens() if warden else []), *([self.node.pid] if node and self.is_up() else [])]

    def reap(self, within_s: float = PATIENCE_S) -> None:
        self.node.process.wait(within_s)

    def clear_up(self) -> None:
        self.proxy.restore()
        if self.lives and self.is_up():
            send(self.pids(node=True, warden=True), signal.SIGCONT)
            self.node.process.kill()
        for life in self.lives:
            life.process.wait(PATIENCE_S)
            for said in life.events("started"):
                sweep(said["node"], PATIENCE_S)
        self.proxy.close()

    def _own(self) -> dict[str, str]:
        return {"XDG_STATE_HOME": str(self._host)} | self._world.store.node_env

    def _prefix(self) -> list[str]:
        mount = mounted_at()
        if self.name != "b" or not mount or os.geteuid() or not shutil.which("unshare"):
            return []
        return ["unshare", "--mount", "sh", "-c", f'umount "{mount}" && exec "$@"', "sh"]


class World:
    def __init__(
        self, folder: Path, store: str, program: Sequence[str] = ("-m", "detent"), pairs: bool = False
    ) -> None:
        self.folder, self.began_at = folder, 0.0
        folder.mkdir(parents=True, exist_ok=True)
        self.skew = build_skew(folder)
        self.place = Place(build_witness(folder), folder / "witnessed", folder / "locks")
        self.place.locks.mkdir()
        self.place.file.touch()
        self.program = [sys.executable, *program]
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("DETENT_")}
        self.env |= {"PYTHONPATH": f"{SOURCES}:{ROOT}", "DETENT_CONFIG": "", "PYTHONDONTWRITEBYTECODE": "1"}
        self.store = STORES[store](folder, self.skew)
        self.store_busy, self.deploy_busy, self.deploys = threading.Lock(), threading.Lock(), 0
        hosts = ("host-a", "host-b", "host-b" if pairs else "host-c")
        self.members = [Member(name, self, folder / host) for name, host in zip("abc", hosts, strict=True)]

    def manifest(self, node: str, deploy: int) -> dict[str, Any]:
        return manifest(self.place, node, deploy, hooks=self.store.keeps_epoch)

    def start(self) -> None:
        """Start the nodes, and wait until all take part."""
        for member in self.members:
            member.start()
        for member in self.members:
            member.node.wait("started")
        wait_for(self.place.file.read_text, what="a first launch")  # then all jobs are deployed
        self.began_at = self.store.clock.now()

    def find(self, until: float, since: float = 0.0) -> list[Row]:
        """Return the fires that were due by then, by the store's clock."""
        with closing(open_store(self.store.url)) as store:
            query = Query(app=APP, since=instant(since), until=instant(until), limit=ALL)
            return find_all(store, query)

    def is_settled(self, until: float) -> bool:
        """Return open fires of the last hour by one query: between two, a fire may change its state."""
        return all(row.state == "over" for row in self.find(until, until - 3600))

    def stop(self) -> list[int]:
        """Stop all nodes, and return their exit codes."""
        for member in self.members:
            member.node.send(signal.SIGTERM)
        return [member.node.process.wait(PATIENCE_S) for member in self.members]

    def survivors(self) -> set[int]:
        """Return processes of work that are still alive."""
        mark = f"{self.place.program}".encode()
        return {pid for pid in kernel.processes() if mark in _command(pid)}

    def clear_up(self) -> None:
        with suppress(ProcessLookupError):
            self.store.signal(signal.SIGCONT)
        for member in self.members:
            member.clear_up()
        self.store.remove()


def build_witness(folder: Path) -> Path:
    """Compile the witness, statically if possible, so that no preloaded library can change its clock."""
    program = folder / "witness"
    words = ["cc", "-O2", "-o", str(program), str(Path(__file__).with_name("witness.c"))]
    if subprocess.run([*words, "-static"], capture_output=True).returncode:
        subprocess.run(words, check=True)
    return program


def send(pids: Iterable[int], signum: int) -> None:
    """Send a signal to these processes; ignore those that have ended."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signum)


def _command(pid: int) -> bytes:
    try:
        return kernel.read(f"{kernel.PROC}/{pid}/cmdline")
    except OSError:
        return b""


def _is_warden(pid: int) -> bool:
    return b"warden/main.py" in _command(pid)
