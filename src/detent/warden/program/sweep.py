"""Kills the processes that a dead instance left on this host.

Every process of an instance has `DETENT_NODE=<instance>` in the environment that it was started with, or is
in the instance's cgroup.  Processes that a job leaves on purpose are spared; the main process of such a job
dies with its warden, by the parent-death signal.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from functools import partial

from . import kernel
from .cgroups import Cgroup, cgroups_of
from .process_trees import LEAVE

POLL_S = 0.01


def sweep(instance: str, patience_s: float, orphans: Callable[[], set[int]] = set) -> bool:
    """Kill all processes of a dead instance, and wait until they are dead.  False: after `patience_s` one is
    still alive, in a system call that cannot be interrupted: its work must not be started again."""
    cgroups = cgroups_of(instance)
    give_up_at = kernel.boottime() + patience_s
    while not kill_remaining(instance, cgroups, orphans):
        if kernel.boottime() > give_up_at:
            return False
        time.sleep(POLL_S)
    for cgroup in cgroups:
        cgroup.remove()
    return True


def kill_remaining(instance: str, cgroups: list[Cgroup], orphans: Callable[[], set[int]]) -> bool:
    """Kill once all that is left of an instance, and these orphans.  True: there was nothing.

    The cgroups come first.  To read the environment of a process may take seconds while that process executes
    a program with a low priority, and it may be any process of this host."""
    populated = [cgroup for cgroup in cgroups if not cgroup.is_empty()]
    for cgroup in populated:
        cgroup.signal(signal.SIGKILL)
    left = orphans()
    if left:
        kernel.signal_all(lambda: kernel.descendants(orphans()), signal.SIGKILL)
    was_tagged = kernel.HAS_PROC and _kill_tagged(instance)
    return not (populated or left or was_tagged)


def _kill_tagged(instance: str) -> bool:
    """Kill the processes whose environment names this instance, each as soon as it is found.  A zombie's
    environment cannot be read.  The oldest come first: what was just started may be slow to read."""
    tag = f"DETENT_NODE={instance}".encode("utf-8", "surrogateescape")

    def tagged(pid: int) -> set[int]:
        env = kernel.environ(pid)
        return {pid} if tag in env and LEAVE not in env else set()

    was_tagged = False
    for pid in sorted(kernel.processes()):
        if pid != os.getpid() and tagged(pid):
            was_tagged = True
            kernel.signal_all(partial(tagged, pid), signal.SIGKILL)
    return was_tagged


def orphans_since(born: int) -> set[int]:
    """Return our children that a warden left which was born then: those in a session of their own that are no
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
