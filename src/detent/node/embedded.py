"""A node as a guest in a process that is not its own: a web server's, say.

It takes part as any other node does, but it has no warden, and so nobody who could end its work:

1. Its calls, of jobs and of messages, run in threads of the process, as with `isolation: thread`.  One whose
   claim is lost is asked to end (an async one is cancelled); if it does not, it goes on.
2. Each holds its lane's lock of this host until it has really ended: no other node of the host starts the
   next fire of that lane before.
3. When the process dies, so do its calls: its life's lock is free, and the others take over at once.
4. It leaves signals, systemd and the children of the process alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from detent.manifest.check import Manifest
from detent.messages.message import Task
from detent.model import Call, End, Outcome
from detent.node.service import Service
from detent.runners.call.spec import GuardSpec
from detent.runners.running import LaneHeld
from detent.warden.client import TaskHandle, WardenClient
from detent.warden.program import host_locks

STOP_S = 6.0  # after `drain_seconds`, so long may what was asked to end take for it


class EmbeddedService(Service):
    def _new_processes(self) -> WardenClient:
        return NoWarden(self._instance.name)

    async def run(self) -> int:
        self._thread_pools.begin("look", "renew", "report")
        working = asyncio.create_task(self._work())
        working.add_done_callback(lambda _: self._stop.set())
        try:
            await self._stop.wait()
            await asyncio.wait([working], timeout=self._manifest.node.drain_s + STOP_S)
        finally:
            working.cancel()
            await self._leave()
        return self._code

    def leave(self) -> None:
        """Its host ends."""
        self._stop.set()

    def _heartbeat(self) -> dict[str, object]:
        return super()._heartbeat() | {"embedded": True}


class NoWarden(WardenClient):
    """The warden's place, empty: what runs in this process is begun, and nobody ends it."""

    def __init__(self, instance: str) -> None:
        super().__init__(instance)
        self._lanes: dict[str, int] = {}  # work -> the descriptor of its place in its lane

    async def start(self) -> None:
        """There is nobody to start."""

    def take(self, work: TaskHandle) -> None:
        spec = work.spec
        if not isinstance(spec, GuardSpec):
            work.resolve(
                End(Outcome("failed", "no process is started from within another program", "not-here"))
            )
            return
        fd = host_locks.take_lane(spec.lane, spec.places) if spec.lane else host_locks.NO_LANE
        if fd is None:
            work.resolve(LaneHeld(host_locks.holders(spec.lane, spec.places)))
        else:
            self._lanes[work.id] = fd
            asyncio.get_running_loop().call_soon(partial(self._begin, work))

    def _begin(self, work: TaskHandle) -> None:
        """The work itself checks whether its claim is still trusted, as it does under a warden."""
        if self.is_closing:
            self.release(work)
            work.resolve(None)
        else:
            work.begun()

    def extend(self, work: TaskHandle) -> None:
        """Nobody has to know."""

    def release(self, work: TaskHandle) -> None:
        host_locks.release_lane(self._lanes.pop(work.id, host_locks.NO_LANE))


def in_threads(manifest: Manifest) -> Manifest:
    """The manifest as a guest runs it: the same jobs, of the same revisions, in threads."""
    return manifest._replace(
        jobs=tuple(
            job._replace(work=_in_thread(job.work)) if isinstance(job.work, Call) else job
            for job in manifest.jobs
        )
    )


def tasks_in_threads(tasks: Mapping[str, Task]) -> dict[str, Task]:
    """The tasks as a guest runs them, in threads too."""
    return {name: task._replace(call=_in_thread(task.call)) for name, task in tasks.items()}


def _in_thread(call: Call) -> Call:
    return call._replace(isolation="thread") if call.isolation == "process" else call
