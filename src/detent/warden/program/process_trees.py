"""All processes of a fire, by descent: of one that has no cgroup, or that left it.

The warden is a subreaper: whoever loses its parent becomes its child.  So everything that a command
left behind is among the warden's own children or below them; only whose it is must be told:

1. by the run id and attempt in the environment it was started with;
2. else by its session, which is the main process's unless it began one of its own;
3. else it may be of any fire that was under way when it started, and it ends with the first of
   these that ends: rather one daemon too few than a lane given away over living work.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from . import kernel
from .cgroups import Cgroup, Spare, Spares

TAGGED = ("DETENT_RUN_ID", "DETENT_ATTEMPT")
TAGS = tuple(f"{name}=".encode() for name in TAGGED)
LEAVE = b"DETENT_CHILDREN=leave"  # in the environment of work whose children are left on purpose


class Tree(Protocol):
    """All processes of one fire."""

    def signal(self, signum: int) -> None:
        """Signal each of them."""

    def is_empty(self) -> bool:
        """Nothing is left but, perhaps, the main process."""

    def remove(self) -> bool:
        """Clear up after the last one; True: done."""


class Owner:
    """A node, by the process id that it told us: the parent of its warden, or gone."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def signal(self, signum: int) -> None:
        """Only what cannot be put off: see `task.Guard`."""
        if signum == signal.SIGKILL:
            kernel.signal_all(lambda: {self._pid} & {os.getppid()}, signum)

    def is_empty(self) -> bool:
        return os.getppid() != self._pid

    def remove(self) -> bool:
        return True


class Orphan(NamedTuple):
    """A child of the warden that it did not start itself."""

    tag: frozenset[bytes]
    session: int
    started: int


def tag_of(entries: Iterable[bytes]) -> frozenset[bytes]:
    """What tells the processes of one fire's attempt, among the entries of an environment."""
    return frozenset(entry for entry in entries if entry.startswith(TAGS))


class OrphanTracker:
    """The warden's children: the main processes that it started, and the orphans that came to it.

    What was learnt of an orphan stays true until it is reaped, and only we reap it."""

    def __init__(self) -> None:
        # Also those that ended, while their fire goes on.  Who is there before the first fire, as a node's
        # reaper is, belongs to none: it may seem as old as one that began in the same tick.
        self.mains: set[int] = kernel.children(os.getpid())
        self._orphans: dict[int, Orphan] = {}
        self._is_seen = False

    def orphans(self) -> dict[int, Orphan]:
        pids = kernel.children(os.getpid()) - self.mains
        self._orphans = {pid: self._orphans.get(pid) or _look_at(pid) for pid in pids}
        self._is_seen = True
        return self._orphans

    def look_again(self) -> None:
        self._is_seen = False

    def seen(self) -> dict[int, Orphan]:
        """Those of the newest look.  It serves for all that ended before it: whatever they left had lost
        its parent by then, or descends from one that had."""
        return self._orphans if self._is_seen else self.orphans()


def _look_at(pid: int) -> Orphan:
    stat = kernel.stat(pid)
    if stat is None:  # hidden from us: it may be anybody's
        return Orphan(frozenset(), 0, sys.maxsize)
    return Orphan(tag_of(kernel.environ(pid)), stat.session, stat.started)


class DescentTree:
    """The processes of one fire: its main process, its orphans, and all below them."""

    def __init__(
        self, orphan_tracker: OrphanTracker, main: int, tag: frozenset[bytes], *, leaves: bool
    ) -> None:
        self._orphan_tracker, self._main, self._tag, self._leaves = orphan_tracker, main, tag, leaves
        self._started = self._started_at()

    def signal(self, signum: int) -> None:
        kernel.signal_all(self.members, signum, self._main)

    def is_empty(self) -> bool:
        return not self._roots(self._orphan_tracker.seen())

    def remove(self) -> bool:
        return True

    def has_orphans(self) -> bool:
        return not self.is_empty()

    def members(self) -> set[int]:
        main = {self._main} & kernel.children(os.getpid())
        return kernel.descendants(main | self._roots(self._orphan_tracker.orphans()))

    def _roots(self, orphans: Mapping[int, Orphan]) -> set[int]:
        return {pid for pid, orphan in orphans.items() if self._owns(orphan)}

    def _started_at(self) -> int:
        stat = kernel.stat(self._main)
        return stat.started if stat else 0

    def _owns(self, orphan: Orphan) -> bool:
        if orphan.tag:
            return orphan.tag == self._tag
        if orphan.session in self._orphan_tracker.mains:
            return orphan.session == self._main
        return not self._leaves and orphan.started >= self._started


class EscapedTree(DescentTree):
    """The processes of one fire that left its cgroup, as su and sudo do where logins have their own:
    told by the first two rules only, as most orphans that the third is for are in a cgroup."""

    def __init__(
        self, orphan_tracker: OrphanTracker, main: int, tag: frozenset[bytes], instance: str
    ) -> None:
        super().__init__(orphan_tracker, main, tag, leaves=False)
        self._instance = f"/{instance}/".encode()

    def _started_at(self) -> int:
        return 0  # only the third rule asks for it

    def _roots(self, orphans: Mapping[int, Orphan]) -> set[int]:
        return {pid for pid in super()._roots(orphans) if self._instance not in kernel.cgroups(pid)}

    def _owns(self, orphan: Orphan) -> bool:
        return orphan.tag == self._tag if orphan.tag else orphan.session == self._main


class CallDescentTree(DescentTree):
    """The processes of a call in a child that is older than the call."""

    def _started_at(self) -> int:
        return kernel.ticks()


class CallTree:
    """What a call has started, and the child that carries it out, unless it is spared for the next one.

    Where the rest has to be killed, the child is too: rather a new child than an unclear one."""

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
        """Mostly there is nothing, and that must be seen fast: it is looked for after every call."""
        if self.spares_child and not self._has_others():
            return True
        return not self.members()

    def _has_others(self) -> bool:
        if self._cgroup and self._cgroup.has_others_than(self._child):
            return True
        return bool(kernel.children(self._child)) or self._descent.has_orphans()

    def members(self) -> set[int]:
        found = self._descent.members()
        if self._cgroup:
            found |= self._cgroup.members()
        if self.spares_child:
            found.discard(self._child)
        return {pid for pid in found if not kernel.is_over(pid)}

    def remove(self) -> bool:
        return True  # the cgroup is the child's, and stays as long


class CgroupTree:
    """The processes of one fire, in its cgroup and out of it."""

    def __init__(self, cgroup: Spare, strays: Tree, spares: Spares) -> None:
        self._cgroup, self._strays, self._spares = cgroup, strays, spares

    def signal(self, signum: int) -> None:
        self._cgroup.signal(signum)
        self._strays.signal(signum)

    def is_empty(self) -> bool:
        return self._cgroup.is_empty() and self._strays.is_empty()

    def remove(self) -> bool:
        return self._spares.give_back(self._cgroup)


class ProcessGroupTree:
    """The main process's group: all that is known where there is no /proc."""

    def __init__(self, main: int) -> None:
        self._main = main

    def signal(self, signum: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # empty, or but a zombie
            os.killpg(self._main, signum)

    def is_empty(self) -> bool:
        try:
            os.killpg(self._main, 0)
        except (ProcessLookupError, PermissionError):
            return True
        return False

    def remove(self) -> bool:
        return True
