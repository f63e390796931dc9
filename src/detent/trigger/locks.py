"""The locks of a trigger on its host: its instance lock, its job's lane locks, and those of dead triggers.

- Each trigger holds an instance lock in the folder of its job (`warden/instances.py`).  The kernel frees it
  when the trigger and its warden are gone.  So the next trigger notices a death at once, ends what the dead
  trigger left, and frees its claim before it expires.
- Work holds a lane lock until its last process is gone (`warden/program/host_locks.py`).
- Without a writable directory there is no such proof.  Claims in a shared store still expire.
"""

from __future__ import annotations

import os
import signal

from detent.warden.instances import SUFFIX, DeadInstances, Instance, lane_path
from detent.warden.program import kernel
from detent.warden.program.host_locks import who_has_open

SWEEP_S = 5.0  # the time to end the processes of a dead instance


class TriggerLocks:
    def __init__(self, directory: str, node_id: str) -> None:
        """`directory` is empty where nothing can be written."""
        self._directory = directory
        self._instance = Instance(directory, node_id)
        self._dead_instances = DeadInstances(directory, self._instance.name)
        self._dead: list[str] = []
        self._is_begun = False

    @property
    def name(self) -> str:
        """The name of this trigger in the store."""
        return self._instance.name

    @property
    def lock_fd(self) -> int:
        return self._instance.lock_fd

    def begin(self) -> None:
        """Take the instance lock before the first claim, so that other triggers notice our death."""
        if self._directory and not self._is_begun:
            self._instance.begin()
            self._instance.record_warden(os.getpid())
        self._is_begun = True

    def record_warden(self, pid: int) -> None:
        if self._directory:
            self._instance.record_warden(pid)

    def find_dead(self) -> tuple[str, ...]:
        """Return the dead instances of this job's triggers that left no process."""
        if self._directory:
            self._dead += [instance for instance in self._dead_instances.find() if _sweep(instance)]
        return tuple(self._dead)

    def remove_dead(self) -> None:
        """Remove the locks of dead instances, once the store knows of their deaths."""
        for instance in self._dead:
            self._dead_instances.remove(instance)
        self._dead.clear()

    def lane(self, lane: str) -> str:
        """Return the path of a lane's locks, or "" if there are none."""
        return lane_path(self._instance.lanes, lane) if self._directory else ""

    def kill_holder(self, instance: str) -> None:
        """Kill a live trigger of this host that does not react, and its processes.  Its lock identifies it
        and a pidfd holds it, so that a process with a reused id is never killed."""
        if not self._directory or instance == self.name:
            return
        lock = f"{self._directory}/{instance}{SUFFIX}"
        try:
            recorded = {int(pid) for pid in kernel.read(lock).split()}
        except (OSError, ValueError):  # it has just ended
            return
        kernel.signal_all(lambda: recorded & set(who_has_open([lock])), signal.SIGKILL)
        _sweep(instance)

    def end(self) -> None:
        self._dead_instances.close()
        if self._directory and self._is_begun:
            self._instance.end()


def _sweep(instance: str) -> bool:
    from detent.warden.program.sweep import sweep  # late: there is seldom a dead instance

    return sweep(instance, SWEEP_S)
