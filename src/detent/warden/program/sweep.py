"""Ends what a dead instance of a node left on this host.

Everything that belongs to a instance carries `DETENT_NODE=<instance>` in the environment that it was started
with, or is in the instance's cgroup.  Work whose children are left on purpose is left: its main process
dies with its warden, by the parent-death signal.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable

from . import kernel
from .cgroups import Cgroup, directories_of
from .process_trees import LEAVE

ROUND_S = 0.01  # between two looks


def sweep(instance: str, patience_s: float, orphans: Callable[[], set[int]] = set) -> bool:
    """Kill whatever a dead instance left on this host, and wait until nothing of it is alive.  False: after
    so long, something still is (in a system call that cannot be interrupted): it must not be replaced."""
    cgroups = directories_of(instance)
    give_up_at = kernel.boottime() + patience_s
    while not kill_remaining(instance, cgroups, orphans):
        if kernel.boottime() > give_up_at:
            return False
        time.sleep(ROUND_S)
    for cgroup in cgroups:
        cgroup.remove()
    return True


def kill_remaining(instance: str, cgroups: list[Cgroup], orphans: Callable[[], set[int]]) -> bool:
    """One round: kill all that is left of a instance, and these orphans.  True: there was nothing."""
    carriers = _carriers(instance) if kernel.HAS_PROC else set()
    if carriers or orphans():
        kernel.signal_all(lambda: _carriers(instance) | kernel.descendants(orphans()), signal.SIGKILL)
    populated = [cgroup for cgroup in cgroups if not cgroup.is_empty()]
    for cgroup in populated:
        cgroup.signal(signal.SIGKILL)
    return not (carriers or orphans() or populated)


def _carriers(instance: str) -> set[int]:
    """Processes that say that they belong to this instance.  A zombie says nothing."""
    mark = f"DETENT_NODE={instance}".encode("utf-8", "surrogateescape")
    entries = ((pid, kernel.environ(pid)) for pid in kernel.processes() if pid != os.getpid())
    return {pid for pid, said in entries if mark in said and LEAVE not in said}


def orphans_since(born: int) -> set[int]:
    """Children of ours that a warden left which was born then: those in a session of their own that are no
    older.  Reaps those that have ended."""
    found = set()
    own = os.getsid(0)
    for pid in kernel.children(os.getpid()) if kernel.HAS_PROC else ():
        stat = kernel.stat(pid)
        if stat is None or stat.session == own or stat.started < born or LEAVE in kernel.environ(pid):
            continue
        if stat.state == "Z":
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        else:
            found.add(pid)
    return found
