"""A place to try a warden in: real processes, a directory of their own, and nothing left behind."""

import asyncio
import fcntl
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from detent.clock import boottime
from detent.model import End, Outcome
from detent.runners.command import Spec
from detent.runners.running import LaneHeld
from detent.warden.client import AnySpec, TaskHandle, WardenClient
from detent.warden.program import kernel
from detent.warden.program.sweep import sweep

PATIENCE_S = 20.0  # for a condition that comes at once on an idle machine
TTL_S = 30.0

# A grandchild in a session of its own, its parent gone, its output elsewhere; it says its id, and stays.
DAEMON = """
import os, sys, time
if os.fork():
    os.wait() if "wait" in sys.argv else None
    time.sleep(float(sys.argv[2]))
    sys.exit(0)
os.setsid()
if os.fork():
    os._exit(0)
null = os.open(os.devnull, os.O_RDWR)
[os.dup2(null, fd) for fd in (0, 1, 2)]
open(sys.argv[1] + ".new", "w").write(str(os.getpid()))
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(1000)
"""


OPEN_FDS = """
import fcntl
for fd in range(4096):
    try:
        fcntl.fcntl(fd, fcntl.F_GETFD)
        print(fd)
    except OSError:
        pass
"""


def daemon(pid_file: Path, main_stays_s: float) -> tuple[str, ...]:
    """The words of a command that leaves a daemon and itself stays so long."""
    return (sys.executable, "-I", "-S", "-c", DAEMON, str(pid_file), str(main_stays_s))


def python(program: str, *words: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", program, *words)


def is_alive(pid: int) -> bool:
    stat = kernel.stat(pid)
    return stat is not None and stat.state not in "ZX"


def wait_until(is_so: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    give_up_at = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < give_up_at, "it did not come to pass"
        time.sleep(0.005)


async def until(is_so: Callable[[], object], within_s: float = PATIENCE_S) -> None:
    give_up_at = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < give_up_at, "it did not come to pass"
        await asyncio.sleep(0.005)


def pid_in(path: Path) -> int:
    wait_until(lambda: path.exists() and path.read_text())
    return int(path.read_text())


class World:
    """A instance of a node, with its processes."""

    def __init__(self, directory: Path, cgroup: str) -> None:
        self.directory, self.cgroup = directory, cgroup
        self.instance = f"test/{uuid.uuid4()}"
        self.count = 0

    def spec(self, *words: str, **fields: object) -> Spec:
        self.count += 1
        id = f"run-{self.count}"
        env = {
            "PATH": os.environ["PATH"],
            "DETENT_RUN_ID": f"{self.instance}-{id}",
            "DETENT_ATTEMPT": "1",
            "DETENT_NODE": self.instance,
        }
        if fields.get("children") == "leave":
            env["DETENT_CHILDREN"] = "leave"
        spec = Spec(id=id, words=words, env=env, ttl_s=TTL_S, kill_after_s=1.0)
        return spec._replace(**fields)

    @asynccontextmanager
    async def processes(self, lock_fd: int = -1) -> AsyncIterator[WardenClient]:
        processes = WardenClient(self.instance, cgroup=self.cgroup, lock_fd=lock_fd)
        await processes.start()
        try:
            yield processes
        finally:
            await processes.close()

    def run(self, *words: str, dead: Path | None = None, **fields: object) -> End:
        """Run one command to its end; then the process whose id is in the file `dead` is so."""
        return asyncio.run(self._run(self.spec(*words, **fields), dead))

    async def _run(self, spec: Spec, dead: Path | None) -> End:
        async with self.processes() as processes:
            work = await begin(processes, spec)
            end = await asyncio.wait_for(work.gone, PATIENCE_S)
            assert dead is None or not is_alive(int(dead.read_text()))
            return end

    def clear_up(self) -> None:
        assert sweep(self.instance, PATIENCE_S)


def warden_pid(client: WardenClient) -> int:
    """0: no warden is up."""
    return client._warden.pid if client._warden and client._is_up.is_set() else 0


async def spawn(client: WardenClient, spec: AnySpec, trusted_by: float) -> TaskHandle | None:
    """Start a task and wait until it has started.  None: it was too late.  Raises `LaneHeld`."""
    begun = asyncio.get_running_loop().create_future()
    task = client.begin(spec, trusted_by, lambda: begun.set_result(None))
    try:
        await asyncio.wait([begun, task.gone], return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        task.stop(Outcome("cancelled", "the caller no longer waits for it", "stopped"))
        raise
    if not task.gone.done():
        return task
    end = task.gone.result()
    if isinstance(end, LaneHeld):
        raise end
    return task if end else None


async def begin(processes: WardenClient, spec: Spec, for_s: float = TTL_S) -> TaskHandle:
    work = await spawn(processes, spec, boottime() + for_s)
    assert work is not None
    return work


NODE = """
import asyncio, fcntl, json, os, sys
from detent.clock import boottime
from detent.warden.client import WardenClient
from detent.runners.command import NO_BASE_ENV, Spec

async def main():
    given = json.loads(sys.argv[1])
    lock = os.open(given["lock"], os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    processes = WardenClient(given["instance"], cgroup=given["cgroup"], lock_fd=lock)
    await processes.start()
    trusted_by = boottime() + given["for_s"]
    begun = asyncio.Event()
    work = processes.begin(Spec(**given["spec"] | {"base": NO_BASE_ENV}), trusted_by, begun.set)
    await begun.wait()
    said = {"warden": processes._warden.pid, "main": work.pid, "trusted_by": trusted_by}
    print(json.dumps(said), flush=True)
    print((await work.gone).outcome, flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


class Node:
    """A real process with a warden of its own, and one command under way."""

    def __init__(self, world: World, *words: str, for_s: float = 30.0, **fields: Any) -> None:
        self.lock = world.directory / "lock"
        given = {
            "instance": world.instance,
            "cgroup": world.cgroup,
            "lock": str(self.lock),
            "spec": world.spec(*words, **fields)._asdict() | {"base": None},
            "for_s": for_s,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", NODE, json.dumps(given)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert self.process.stdout is not None
        said = json.loads(self.process.stdout.readline())
        self.warden, self.main, self.trusted_by = said["warden"], said["main"], said["trusted_by"]

    def __enter__(self) -> "Node":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        wait_until(lambda: not is_alive(self.warden))

    def lock_is_free(self) -> bool:
        with self.lock.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True
