"""A trigger's presence on its host: its life, the locks of its job's lane, and those that died before it.

- The folder of a job, below the lock directory, has a lock for each life of a trigger (`warden/lives.py`):
  the kernel frees it when trigger and warden are gone, so a dead one is known at once, what it left is ended,
  and its claim is over before it expires.
- The lane's locks are beside them (`warden/program/host_locks.py`): work holds one until its last process
  is gone.
- Where nothing can be written (a container with a read-only disk), there is no such proof: a claim in a
  store that hosts share expires all the same.
"""

from __future__ import annotations

import os
import signal

from detent.warden.instances import SUFFIX, DeadInstances, Instance, lane_path
from detent.warden.program import kernel
from detent.warden.program.host_locks import who_has_open

SWEEP_S = 5.0  # how long it may take to end what a dead life left


class TriggerLocks:
    def __init__(self, directory: str, node_id: str) -> None:
        """`directory`: "" where nothing can be written."""
        self._directory = directory
        self._instance = Instance(directory, node_id)
        self._dead_instances = DeadInstances(directory, self._instance.name)
        self._dead: list[str] = []
        self.is_begun = False

    @property
    def name(self) -> str:
        """What the store knows this trigger by."""
        return self._instance.name

    @property
    def lock_fd(self) -> int:
        return self._instance.lock_fd

    def begin(self) -> None:
        """Before the first claim: from now on our end can be seen."""
        if self._directory and not self.is_begun:
            self._instance.begin()
            self._instance.record_warden(os.getpid())
        self.is_begun = True

    def tell(self, warden: int) -> None:
        if self._directory:
            self._instance.record_warden(warden)

    def find_dead(self) -> tuple[str, ...]:
        """Lives of this job's triggers that are over, with nothing of them left."""
        if self._directory:
            for instance in self._dead_instances.find():
                if _sweep(instance):
                    self._dead.append(instance)
        return tuple(self._dead)

    def remove_dead(self) -> None:
        """The store knows that they are dead."""
        for instance in self._dead:
            self._dead_instances.remove(instance)
        self._dead.clear()

    def lane(self, lane: str) -> str:
        """Where the locks of a lane are; "": there are none."""
        return lane_path(self._instance.lanes, lane) if self._directory else ""

    def end_holder(self, instance: str) -> None:
        """End a living trigger of this host with all that it runs: one that does not hear.  Who is meant is
        told by the lock that it holds, and held by a pidfd: never one who was given its process id."""
        if not self._directory or instance == self.name:
            return
        lock = f"{self._directory}/{instance}{SUFFIX}"
        try:
            told = {int(pid) for pid in kernel.read(lock).split()}
        except (OSError, ValueError):  # it has just ended
            return
        kernel.signal_all(lambda: told & set(who_has_open([lock])), signal.SIGKILL)
        _sweep(instance)

    def end(self) -> None:
        self._dead_instances.close()
        if self._directory and self.is_begun:
            self._instance.end()


def _sweep(instance: str) -> bool:
    from detent.warden.program.sweep import sweep  # late: most have no dead instances

    return sweep(instance, SWEEP_S)
