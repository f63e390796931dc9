"""The node's side of the warden: starts it, sends orders, and cleans up after a warden that died.

1. A task is gone when the warden reports it.  If the warden died, the task is gone when everything that the
   warden left is dead: only then are its claims settled as lost, and another warden is started.
2. The processes of a dead warden become children of this process, as it is a subreaper.  Each child in a
   session of its own that is younger than the warden counts as such, whatever its environment says.  So
   this class is only for a process that starts no such children itself, as `detent run`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import assert_never

from detent.clock import boottime, monotonic
from detent.model import End, Outcome
from detent.rules.outcomes import NODE_STOPPED, WARDEN_DIED
from detent.rules.trust import overdue_at, term_by
from detent.runners.call.spec import CallSpec, GuardSpec
from detent.runners.command import Spec
from detent.runners.running import AttemptEnd, LaneHeld
from detent.warden import wire
from detent.warden.program import kernel
from detent.warden.program.cgroups import Cgroup, instance_directory
from detent.warden.program.sweep import kill_remaining, orphans_since
from detent.warden.wire import Event, WardenProtocol, end_of_task

WARDEN = Path(__file__).with_name("main.py")
RECEIVE = 1 << 20
POLL_S = 0.01  # between two checks whether processes have ended
FAREWELL_S = 5.0  # how long a warden may take to end its tasks before it is killed
PING_S, UNANSWERED_MAX = 1.0, 3  # a warden that answers none of so many pings is killed
ANSWER_S = 0.15  # time for one answer while there is a task that should be dead
RESTART_S = 1.0  # between two attempts to start a warden
KEPT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR")


AnySpec = Spec | CallSpec | GuardSpec
Begun = Callable[[], None]


def nothing(*_: object) -> None:
    """Ignores a notification."""


class TaskHandle:
    pid = 0  # of the main process, once started
    on_part: Callable[[str | int], None] = staticmethod(nothing)  # see `wire.Part`
    _stopped: Outcome | None = None

    def __init__(
        self, client: WardenClient, spec: AnySpec, trusted_by: float, begun: Begun = nothing
    ) -> None:
        self.gone: asyncio.Future[AttemptEnd] = asyncio.get_running_loop().create_future()
        self.id, self.spec, self.trusted_by = spec.id, spec, trusted_by
        self._begun, self._client = begun, client

    @property
    def overdue_at(self) -> float:
        return overdue_at(self.trusted_by, self.spec.ttl_s)

    @property
    def term_by(self) -> float:
        return term_by(self.trusted_by, self.spec.ttl_s, self.spec.kill_after_s)

    def begun(self) -> None:
        """Called when the warden has started the task, or guards it."""
        self._begun()

    def extend(self, trusted_by: float) -> None:
        """The claim was renewed: trust ends later."""
        if trusted_by > self.trusted_by:
            self.trusted_by = trusted_by
            self._client.extend(self)

    def stop(self, why: Outcome, kill_after_s: float | None = None) -> None:
        """End the task with this outcome, unless it has ended.  The outcome of the first stop counts; a
        further stop can only shorten the time until SIGKILL."""
        self._stopped = self._stopped or why
        if not self.gone.done():
            self._client.protocol.stop(self.id, kill_after_s)

    def release(self) -> None:
        """A guarded call, which runs in this process, has ended."""
        self._client.release(self)

    def end(self, gone: wire.Gone) -> None:
        self.resolve(end_of_task(self.spec, gone, self._stopped))

    def lose(self, why: Outcome) -> None:
        self.resolve(End(self._stopped or why))

    def resolve(self, end: AttemptEnd) -> None:
        if not self.gone.done():
            self.gone.set_result(end)


class WardenClient:
    """All tasks of one instance of a node."""

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
        self._tasks: dict[str, TaskHandle] = {}
        self._waiting: list[TaskHandle] = []  # for the next warden
        self.protocol = WardenProtocol(self._send_soon)
        self._is_sending = False
        self._is_up = asyncio.Event()
        self._is_closing = False
        self._launched_at = 0.0
        self._warden: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._listener: asyncio.Task[None] | None = None
        self._pinger: asyncio.Task[None] | None = None
        self._unanswered = 0  # pings since the last event
        self._is_outdated = False
        # Called with the reason why a child takes no further call, and why no child can be started.
        self.replaced: Callable[[str], None] = nothing
        self.outdated: Callable[[str], None] = nothing

    async def start(self) -> None:
        kernel.become_subreaper()
        reader = await self._launch()
        self._listener = asyncio.create_task(self._keep_a_warden(reader))
        self._pinger = asyncio.create_task(self._ping())

    @property
    def is_closing(self) -> bool:
        return self._is_closing

    def begin(self, spec: AnySpec, trusted_by: float, begun: Begun = nothing) -> TaskHandle:
        """Have a task started, to be gone by `trusted_by`.  `begun` is called when it has started."""
        task = TaskHandle(self, spec, trusted_by, begun)
        self.take(task)
        return task

    def take(self, task: TaskHandle) -> None:
        if task.id in self._tasks:
            raise ValueError(f"{task.id} is under way already")
        if self._is_closing:
            task.resolve(None)
            return
        self._tasks[task.id] = task
        if self._is_up.is_set():
            self._order(task)
        else:
            self._waiting.append(task)

    async def close(self) -> None:
        """End all tasks and the warden.  A task that still runs is lost."""
        self._is_closing = True
        if self._pinger:
            self._pinger.cancel()
        if self._listener is None or self._warden is None:
            return
        self.protocol.say_bye()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._listener), FAREWELL_S)
        self._warden.kill()
        await self._listener
        self._writer = self._warden = None
        for task in self._waiting:
            task.resolve(None)

    # Orders about a task.  While no warden is up they are dropped: its tasks are being ended anyway.

    def extend(self, task: TaskHandle) -> None:
        self.protocol.extend(task.id, task.trusted_by, task.term_by)

    def release(self, task: TaskHandle) -> None:
        if self._tasks.pop(task.id, None):
            self.protocol.release(task.id)

    def _order(self, task: TaskHandle) -> None:
        if isinstance(task.spec, GuardSpec):
            self.protocol.guard(task.spec, task.trusted_by)
        else:
            self.protocol.start(task.spec, task.trusted_by, task.term_by)

    def _send_soon(self) -> None:
        """One write for all orders of one iteration of the loop."""
        if not self._is_sending:
            self._is_sending = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_sending = False
        data = self.protocol.data_to_send()
        if self._writer and self._is_up.is_set() and not self._writer.is_closing():
            self._writer.write(data)

    # Events.

    def _handle(self, event: Event) -> None:
        self._unanswered = 0
        match event:
            case wire.Pong():
                pass
            case wire.Guarded(ids):
                for id in ids:
                    self._tasks[id].begun()
            case wire.Started(id, pid):
                self._tasks[id].pid = pid
                self._tasks[id].begun()
            case wire.Replaced(_, why):
                self.replaced(why)
            case wire.Part(id, part):
                self._tasks[id].on_part(part)
            case wire.Refused(id, why):
                self._tasks.pop(id).resolve(None)
                if why and not self._is_outdated:
                    self._is_outdated = True
                    self.outdated(why)
            case wire.Held(id, by):
                self._tasks.pop(id).resolve(LaneHeld(by))
            case wire.Gone(id):
                self._tasks.pop(id).end(event)
            case _:
                assert_never(event)

    # The life of a warden.

    async def _keep_a_warden(self, reader: asyncio.StreamReader) -> None:
        while True:
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(RECEIVE):
                    for event in self.protocol.receive(data):
                        self._handle(event)
            await self._clean_up_after_warden()
            if self._is_closing:
                return
            reader = await self._relaunch()
            if self._is_closing:
                self.protocol.say_bye()  # `close` found no warden to say it to

    async def _ping(self) -> None:
        """Kill a warden that does not answer: it is stopped, and ends no task in time.  It counts pings
        and not seconds, as this process may have been stopped itself.  If a task should be dead by now, one
        unanswered ping is enough: another node may soon get its claim."""
        while True:
            left_s = self._overdue_in_s()
            await asyncio.sleep(min(PING_S, left_s) if left_s > 0 else ANSWER_S)
            if not self._is_up.is_set() or not self._warden:
                continue
            if self._unanswered >= (UNANSWERED_MAX if left_s > 0 else 1):
                self._warden.kill()
            else:
                self._unanswered += 1
                self.protocol.ping()

    def _overdue_in_s(self) -> float:
        return min((task.overdue_at for task in self._tasks.values()), default=math.inf) - boottime()

    async def _relaunch(self) -> asyncio.StreamReader:
        """Start another warden; after a pause if the last one died at once."""
        if monotonic() - self._launched_at < RESTART_S:
            await asyncio.sleep(RESTART_S)
        while True:
            try:
                return await self._launch()
            except OSError:  # no process or descriptor is available
                await asyncio.sleep(RESTART_S)

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
        self._unanswered = 0
        self.protocol = WardenProtocol(self._send_soon)
        self._is_up.set()
        self._launched(self._warden.pid)
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            self._order(task)
        return reader

    def _execute_warden(self, fd: int) -> subprocess.Popen[bytes]:
        """Start a new program and not a fork, as this process may have threads.  It has its own session, as
        Ctrl-C is for the node."""
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
        """The warden is dead or does not answer: kill it and everything that it left."""
        assert self._warden is not None and self._writer is not None
        self._is_up.clear()
        if not self._is_closing:
            self._died()
        self._writer.close()
        born = kernel.stat(self._warden.pid)
        if not self._is_closing:
            self._warden.kill()
        while self._warden.poll() is None:
            await asyncio.sleep(POLL_S)
        cgroups = [self._cgroup] if self._cgroup else []
        while not kill_remaining(self._instance, cgroups, lambda: orphans_since(born.started if born else 0)):
            await asyncio.sleep(POLL_S)
        if self._cgroup:
            self._cgroup.remove()
        tasks, self._tasks = self._tasks, {task.id: task for task in self._waiting}
        why = NODE_STOPPED if self._is_closing else WARDEN_DIED
        for task in tasks.values():
            if task.id not in self._tasks:
                task.lose(why)
