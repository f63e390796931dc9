"""A node inside another program's process, such as a web server.

It works like any other node, but it has no warden, so no process can end its work:

1. Its calls run in threads of the process, as with `isolation: thread`.  A call whose claim is lost is asked
   to end (an async call is cancelled).  If it does not end, it goes on.
2. A call holds the lock of its lane on this host until it has really ended, so no other node of the host
   starts the next fire of that lane before.
3. If the process dies, its calls die with it.  Its instance lock is free then, and other nodes take over at
   once.
4. The node does not touch the signals, systemd and the children of the process.
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

STOP_S = 6.0  # the time that interrupted calls have to end, after `drain_seconds`


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
        self._stop.set()

    def _heartbeat(self) -> dict[str, object]:
        return super()._heartbeat() | {"embedded": True}


class NoWarden(WardenClient):
    """Takes the place of the warden's client: starts calls in this process, and kills none."""

    def __init__(self, instance: str) -> None:
        super().__init__(instance)
        self._lanes: dict[str, int] = {}  # task id -> descriptor of its lane lock

    async def start(self) -> None:
        """There is no process to start."""

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
        """Start the call.  The call itself checks whether its claim is still trusted."""
        if self.is_closing:
            self.release(work)
            work.resolve(None)
        else:
            work.begun()

    def extend(self, work: TaskHandle) -> None:
        """There is no warden that needs the new deadline."""

    def release(self, work: TaskHandle) -> None:
        host_locks.release_lane(self._lanes.pop(work.id, host_locks.NO_LANE))


def in_threads(manifest: Manifest) -> Manifest:
    """Return the manifest with the same jobs and revisions, but all calls in threads."""
    return manifest._replace(
        jobs=tuple(
            job._replace(work=_in_thread(job.work)) if isinstance(job.work, Call) else job
            for job in manifest.jobs
        )
    )


def tasks_in_threads(tasks: Mapping[str, Task]) -> dict[str, Task]:
    return {name: task._replace(call=_in_thread(task.call)) for name, task in tasks.items()}


def _in_thread(call: Call) -> Call:
    return call._replace(isolation="thread") if call.isolation == "process" else call
