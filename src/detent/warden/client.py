"""The node's side of the warden: starts it, speaks with it, and buries what a dead one left.

1. This is the only file of the package that knows the warden's wire (`program/loop.py` has the words).
2. TaskHandle is gone when the warden says so or, where the warden died, when everything that it left is
   dead: only then is its claim settled, as lost, and another warden started.
3. What a dead warden leaves comes to us, as we are a subreaper: every child of ours that is in a
   session of its own and younger than that warden is taken for such, whatever its environment says.
   So this belongs into a process that starts no such children itself, as `detent run`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import math
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from detent.clock import boottime, monotonic
from detent.model import End, Outcome
from detent.rules.outcomes import NODE_STOPPED, WARDEN_DIED
from detent.runners.call.spec import CallSpec, GuardSpec, PoolSpec
from detent.runners.command import BaseEnv, ProcessExit, Spec
from detent.runners.running import LaneHeld
from detent.warden.handle import AnySpec, Begun, TaskHandle, nothing
from detent.warden.program import kernel
from detent.warden.program.cgroups import Cgroup, find_cgroup, instance_directory
from detent.warden.program.sweep import kill_left, orphans_since, sweep
from detent.warden.wire import base, guard_all, order_of, register, written

__all__ = ["AnySpec", "Begun", "TaskHandle", "WardenClient", "find_cgroup", "sweep"]

WARDEN = Path(__file__).with_name("main.py")
RECEIVE = 1 << 20
LOOK_S = 0.01  # between two looks at processes that are about to be gone
FAREWELL_S = 5.0  # how long a warden may take to end what it has, before it is ended itself
PING_S, UNHEARD_MAX = 1.0, 3  # a warden that answers none of so many pings is killed
ANSWER_S = 0.15  # how long it may take to answer one while there is work that should be dead
AGAIN_S = 1.0  # between two tries to start a warden
POOLS_MAX = 256
KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR")


class WardenClient:
    """All processes of one instance of a node."""

    def __init__(
        self,
        instance: str,
        *,
        cgroup: str = "",
        lock_fd: int = -1,
        launched: Callable[[int], None] = lambda pid: None,
        died: Callable[[], None] = lambda: None,
    ) -> None:
        self._instance, self._lock_fd = instance, lock_fd
        self._launched, self._died = launched, died  # called with each warden's process id, and at its death
        self._cgroup = Cgroup(instance_directory(cgroup, instance)) if cgroup else None
        self._works: dict[str, TaskHandle] = {}
        self._unordered: list[TaskHandle] = []  # what waits for a warden
        self._extended: dict[str, TaskHandle] = {}
        self._is_sending = False
        self._unsent: list[bytes] = []
        self._unguarded: list[TaskHandle] = []  # guards that are to be asked for
        self._released: list[str] = []
        self._bases: dict[str, BaseEnv] = {}  # environments that the warden knows
        self._pools: dict[str, None] = {}  # those that the warden knows, the longest unused first
        self._is_up = asyncio.Event()
        self._is_closing = False
        self._launched_at = 0.0
        self._warden: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._listener: asyncio.Task[None] | None = None
        self._pinger: asyncio.Task[None] | None = None
        self._unheard = 0  # pings since it last said something
        self.replaced: Callable[[str], None] = nothing  # called with why a child carries out no other call

    @property
    def warden_pid(self) -> int:
        """0: there is none just now."""
        return self._warden.pid if self._warden and self._is_up.is_set() else 0

    async def start(self) -> None:
        kernel.become_subreaper()
        reader = await self._launch()
        self._listener = asyncio.create_task(self._keep_a_warden(reader))
        self._pinger = asyncio.create_task(self._ping())

    @property
    def is_closing(self) -> bool:
        return self._is_closing

    def begin(self, spec: AnySpec, trusted_by: float, begun: Begun = nothing) -> TaskHandle:
        """Have it started, to be gone by `trusted_by` at the latest.  `begun` is called when it is."""
        work = TaskHandle(self, spec, trusted_by, begun)
        self.take(work)
        return work

    def take(self, work: TaskHandle) -> None:
        """Have this work started."""
        if work.id in self._works:
            raise ValueError(f"{work.id} is under way already")
        if self._is_closing:
            work.resolve(None)
            return
        self._works[work.id] = work
        if self._is_up.is_set():
            self._order(work)
        else:
            self._unordered.append(work)

    async def spawn(self, spec: AnySpec, trusted_by: float) -> TaskHandle | None:
        """Start it, and see it started.  None: it is too late, nothing was begun; nor was it where its
        lane is held."""
        begun = asyncio.get_running_loop().create_future()
        work = self.begin(spec, trusted_by, lambda: begun.set_result(None))
        try:
            await asyncio.wait([begun, work.gone], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            work.stop(Outcome("cancelled", "nobody waits for it any more", "stopped"))
            raise
        went = work.gone.result() if work.gone.done() else End(Outcome("succeeded"))
        if isinstance(went, LaneHeld):
            raise went
        return work if went else None

    def _order(self, work: TaskHandle) -> None:
        """One message for all guards that are asked for in one turn of the loop: they come in thousands."""
        spec = work.spec
        if isinstance(spec, GuardSpec):
            self._unguarded.append(work)
            return self._send_soon()
        if isinstance(spec, CallSpec):
            self._register(spec.pool)
        elif isinstance(spec, Spec) and self._bases.get(spec.base.name) is not spec.base:
            self.send(base(spec.base))
            self._bases[spec.base.name] = spec.base
        self.send(order_of(spec, work.trusted_by, work.term_by))
        return None

    async def close(self) -> None:
        """End everything, the warden too.  TaskHandle that is still under way is lost."""
        self._is_closing = True
        if self._pinger:
            self._pinger.cancel()
        if self._listener is None or self._warden is None:
            return
        self.send({"do": "bye"})
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._listener), FAREWELL_S)
        self._warden.kill()
        await self._listener
        self._writer = self._warden = None
        for work in self._unordered:
            work.resolve(None)

    # Households.

    def _register(self, pool: PoolSpec) -> None:
        """The warden is told of surroundings once, and told to forget them when they are long unused."""
        if pool.name not in self._pools:
            if len(self._pools) >= POOLS_MAX:
                self._unregister(next(iter(self._pools)))
            self.send(register(pool))
        self._pools.pop(pool.name, None)
        self._pools[pool.name] = None  # the last to be dissolved

    def _unregister(self, name: str) -> None:
        del self._pools[name]
        self.send({"do": "unregister", "pool": name})

    def close_pools(self) -> None:
        """Children that are idle end; fresh ones have fresh code, and another environment."""
        for name in [*self._pools]:
            self._unregister(name)

    # What work says, and hears.

    def release(self, work: TaskHandle) -> None:
        if self._works.pop(work.id, None):
            self._released.append(work.id)
            self._send_soon()

    def send(self, message: dict[str, Any]) -> None:
        """Where no warden is up, there is nobody to tell: what it had is being buried."""
        if self._writer and self._is_up.is_set():
            self._unsent.append(written(message))
            self._send_soon()

    def _send_soon(self) -> None:
        if not self._is_sending:
            self._is_sending = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """One write for all that is said in one turn of the loop."""
        self._is_sending = False
        first = [guard_all(self._unguarded)] if self._unguarded else []
        if self._released:
            first.append({"do": "release", "ids": self._released})
        if self._writer and self._is_up.is_set() and not self._writer.is_closing():
            self._writer.write(b"\n".join((*map(written, first), *self._unsent, b"")))
        for said in (self._unguarded, self._released, self._unsent):
            said.clear()

    def extend(self, work: TaskHandle) -> None:
        """One message for all that are extended in one turn of the loop."""
        if not self._extended:
            asyncio.get_running_loop().call_soon(self._send_extensions)
        self._extended[work.id] = work

    def _send_extensions(self) -> None:
        terms = {work.id: [work.trusted_by, work.term_by] for work in self._extended.values()}
        self._extended.clear()
        self.send({"do": "extend", "terms": terms})

    def _hear(self, message: dict[str, Any]) -> None:
        self._unheard = 0
        if message["did"] == "hear":
            return
        if message["did"] == "guarded":
            for id in message["ids"]:
                self._works[id].begun()
            return
        work = self._works[message["id"]]
        match message["did"]:
            case "started":
                work.pid = message["pid"]
                work.begun()
            case "replaced":
                self.replaced(message["why"])
            case "part":
                work.parted(message["part"])
            case "refused":
                del self._works[work.id]
                work.resolve(None)
            case "held":
                del self._works[work.id]
                work.resolve(LaneHeld(message["by"]))
            case "gone":
                del self._works[work.id]
                tail = base64.b64decode(message["tail"])
                facts = (message["status"], message["cause"], message["error"], message["took_s"])
                work.end(ProcessExit(*facts, tail), message["result"])

    # The warden's instance, and death.

    async def _keep_a_warden(self, reader: asyncio.StreamReader) -> None:
        while True:
            with contextlib.suppress(ConnectionError):
                await self._listen(reader)
            await self._clean_up_after_warden()
            if self._is_closing:
                return
            reader = await self._launch_at_last()
            if self._is_closing:
                self.send({"do": "bye"})  # nobody was there to hear it before

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        """To all that it says, until it is gone."""
        rest = b""
        while data := await reader.read(RECEIVE):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                for message in json.loads(line):
                    self._hear(message)

    async def _ping(self) -> None:
        """A warden that is stopped ends nothing in time: it is killed, and what it had is buried.  Counted
        in pings and not in seconds, as it may be us who were stopped.  Where work should be dead and is
        not said to be, it is asked for less long: its claim may soon be another's."""
        while True:
            left_s = self._overdue_in_s()
            await asyncio.sleep(min(PING_S, left_s) if left_s > 0 else ANSWER_S)
            if not self._is_up.is_set() or not self._warden:
                continue
            if self._unheard >= (UNHEARD_MAX if left_s > 0 else 1):
                self._warden.kill()
            else:
                self._unheard += 1
                self.send({"do": "ping"})

    def _overdue_in_s(self) -> float:
        return min((work.overdue_at for work in self._works.values()), default=math.inf) - boottime()

    async def _launch_at_last(self) -> asyncio.StreamReader:
        """Not at once where the last one hardly lived: its successor may fare no better."""
        if monotonic() - self._launched_at < AGAIN_S:
            await asyncio.sleep(AGAIN_S)
        while True:
            try:
                return await self._launch()
            except OSError:  # no process or descriptor to be had just now
                await asyncio.sleep(AGAIN_S)

    async def _launch(self) -> asyncio.StreamReader:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._warden = self._execute_warden(theirs.fileno())
            except OSError:
                ours.close()
                raise
        reader, self._writer = await asyncio.open_connection(sock=ours, limit=RECEIVE)
        self._launched_at = monotonic()
        self._unheard = 0
        self._pools.clear()
        self._bases.clear()
        self._is_up.set()
        self._launched(self._warden.pid)
        waiting, self._unordered = self._unordered, []
        for work in waiting:
            self._order(work)
        return reader

    def _execute_warden(self, fd: int) -> subprocess.Popen[bytes]:
        """A fresh program and not a fork, as we may have threads; a session of its own, as Ctrl-C is
        for the node."""
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        cgroup = self._cgroup.path if self._cgroup else ""
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(WARDEN), str(fd), str(self._lock_fd), cgroup],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[fd, self._lock_fd] if self._lock_fd >= 0 else [fd],
            start_new_session=True,
            env=kept | {"DETENT_NODE": self._instance},
        )

    async def _clean_up_after_warden(self) -> None:
        """The warden is dead, or as good as dead: make it so, and everything that it left."""
        assert self._warden is not None and self._writer is not None
        self._is_up.clear()
        if not self._is_closing:
            self._died()
        self._writer.close()
        born = kernel.stat(self._warden.pid)
        if not self._is_closing:
            self._warden.kill()
        while self._warden.poll() is None:
            await asyncio.sleep(LOOK_S)
        cgroups = [self._cgroup] if self._cgroup else []
        while not kill_left(self._instance, cgroups, lambda: orphans_since(born.started if born else 0)):
            await asyncio.sleep(LOOK_S)
        if self._cgroup:
            self._cgroup.remove()
        works, self._works = self._works, {work.id: work for work in self._unordered}
        why = NODE_STOPPED if self._is_closing else WARDEN_DIED
        for work in works.values():
            if work.id not in self._works:
                work.lose(why)
