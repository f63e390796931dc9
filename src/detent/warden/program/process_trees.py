"""Finds all processes of a task: by its cgroup, and by descent.

The warden is a subreaper: a process that loses its parent becomes a child of the warden.  So all processes
that a command left are children of the warden, or descend from one.  Which task an orphan belongs to is
found

1. by the run id and attempt in the environment that it was started with;
2. else by its session, which is that of the main process, unless the orphan began one of its own;
3. else it may belong to any task that ran when it started: it ends with the first of these that ends.  It is
   better to end a daemon of another task than to free a lane while its work is alive.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from . import kernel
from .cgroups import Cgroup, CgroupPool, ReusableCgroup

TAGGED = ("DETENT_RUN_ID", "DETENT_ATTEMPT")
TAGS = tuple(f"{name}=".encode() for name in TAGGED)
LEAVE = b"DETENT_CHILDREN=leave"  # in the environment of a task whose children are left on purpose


class ProcessTree(Protocol):
    def signal(self, signum: int) -> None: ...

    def is_empty(self) -> bool:
        """Whether nothing is left, except perhaps the main process."""

    def remove(self) -> bool:
        """Clean up after the last process.  False: try again later."""
        return True


class NodeTree(ProcessTree):
    """The node, for a call that runs in the node itself."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def signal(self, signum: int) -> None:
        """Sends SIGKILL only: see `task.GuardTask`.  The node is our parent, or gone."""
        if signum == signal.SIGKILL:
            kernel.signal_all(lambda: {self._pid} & {os.getppid()}, signum)

    def is_empty(self) -> bool:
        return os.getppid() != self._pid


class Orphan(NamedTuple):
    """A child of the warden that the warden did not start."""

    tag: frozenset[bytes]  # the `TAGGED` entries of its environment
    session: int
    started: int


class OrphanTracker:
    """The children of the warden: the main processes that it started, and orphans.

    What is known of an orphan stays true until it is reaped, and only the warden reaps it."""

    def __init__(self) -> None:
        # Main processes stay here until their task is gone.  A process that is there before the first task,
        # as the reaper of a node, belongs to no task, although it may have started in the same tick as the
        # first.
        self.mains: set[int] = kernel.children(os.getpid())
        self._orphans: dict[int, Orphan] = {}
        self._is_current = False

    def find(self) -> dict[int, Orphan]:
        pids = kernel.children(os.getpid()) - self.mains
        self._orphans = {pid: self._orphans.get(pid) or _look_at(pid) for pid in pids}
        self._is_current = True
        return self._orphans

    def expire(self) -> None:
        self._is_current = False

    def found(self) -> dict[int, Orphan]:
        """Return the result of the last `find` if it has not expired.  It is valid for all tasks that ended
        before it: what they left had lost its parent by then, or descends from a process that had."""
        return self._orphans if self._is_current else self.find()


def _look_at(pid: int) -> Orphan:
    stat = kernel.stat(pid)
    if stat is None:  # hidden from us: it may belong to any task
        return Orphan(frozenset(), 0, sys.maxsize)
    tag = frozenset(entry for entry in kernel.environ(pid) if entry.startswith(TAGS))
    return Orphan(tag, stat.session, stat.started)


class DescentTree(ProcessTree):
    """The processes of one task without a cgroup: its main process, its orphans, and their descendants."""

    def __init__(self, tracker: OrphanTracker, main: int, tag: frozenset[bytes], *, leaves: bool) -> None:
        self._tracker, self._main, self._tag, self._leaves = tracker, main, tag, leaves
        self._started = self._started_at()

    def signal(self, signum: int) -> None:
        kernel.signal_all(self.members, signum, self._main)

    def is_empty(self) -> bool:
        return not self._roots(self._tracker.found())

    def members(self) -> set[int]:
        main = {self._main} & kernel.children(os.getpid())
        return kernel.descendants(main | self._roots(self._tracker.find()))

    def _roots(self, orphans: Mapping[int, Orphan]) -> set[int]:
        return {pid for pid, orphan in orphans.items() if self._owns(orphan)}

    def _started_at(self) -> int:
        stat = kernel.stat(self._main)
        return stat.started if stat else 0

    def _owns(self, orphan: Orphan) -> bool:
        if orphan.tag:
            return orphan.tag == self._tag
        if orphan.session in self._tracker.mains:
            return orphan.session == self._main
        return not self._leaves and orphan.started >= self._started


class EscapedTree(DescentTree):
    """The processes of one task that left its cgroup, as su and sudo do on hosts where each login has its
    own. Only rules 1 and 2 apply: most orphans that rule 3 is for are in a cgroup."""

    def __init__(self, tracker: OrphanTracker, main: int, tag: frozenset[bytes], instance: str) -> None:
        super().__init__(tracker, main, tag, leaves=False)
        self._instance = f"/{instance}/".encode()

    def _started_at(self) -> int:
        return 0  # only rule 3 needs it

    def _roots(self, orphans: Mapping[int, Orphan]) -> set[int]:
        return {pid for pid in super()._roots(orphans) if self._instance not in kernel.cgroups(pid)}

    def _owns(self, orphan: Orphan) -> bool:
        return orphan.tag == self._tag if orphan.tag else orphan.session == self._main


class CallDescentTree(DescentTree):
    """The processes of a call in a child that is older than the call."""

    def _started_at(self) -> int:
        return kernel.ticks()


class CallTree(ProcessTree):
    """The processes that a call has started, and its child, unless that is spared for the next call.
    Its cgroup belongs to the child.

    If one of them has to be killed, the child is killed too: its state would be uncertain."""

    def __init__(self, child: int, descent: DescentTree, cgroup: Cgroup | None) -> None:
        self._child, self._descent, self._cgroup = child, descent, cgroup
        self.spares_child = False

    def signal(self, signum: int) -> None:
        if signum == signal.SIGKILL:
            self.spares_child = False
            if self._cgroup:
                self._cgroup.signal(signum)
        kernel.signal_all(self.members, signum, self._child)

    def is_empty(self) -> bool:
        """Fast in the usual case, as this is checked after every call."""
        if self.spares_child and not self._has_others():
            return True
        return not self.members()

    def _has_others(self) -> bool:
        if self._cgroup and self._cgroup.has_others_than(self._child):
            return True
        return bool(kernel.children(self._child)) or not self._descent.is_empty()

    def members(self) -> set[int]:
        found = self._descent.members()
        if self._cgroup:
            found |= self._cgroup.members()
        if self.spares_child:
            found.discard(self._child)
        return {pid for pid in found if not kernel.is_over(pid)}


class CgroupTree:
    """The processes of one task in its cgroup, and those that left it."""

    def __init__(self, cgroup: ReusableCgroup, escaped: ProcessTree, pool: CgroupPool) -> None:
        self._cgroup, self._escaped, self._pool = cgroup, escaped, pool

    def signal(self, signum: int) -> None:
        self._cgroup.signal(signum)
        self._escaped.signal(signum)

    def is_empty(self) -> bool:
        return self._cgroup.is_empty() and self._escaped.is_empty()

    def remove(self) -> bool:
        return self._pool.put(self._cgroup)


class ProcessGroupTree(ProcessTree):
    """The process group of the main process: all that is known without /proc."""

    def __init__(self, main: int) -> None:
        self._main = main

    def signal(self, signum: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # empty, or only a zombie
            os.killpg(self._main, signum)

    def is_empty(self) -> bool:
        try:
            os.killpg(self._main, 0)
        except (ProcessLookupError, PermissionError):
            return True
        return False
