"""What the operating system tells the warden: time, parenthood, and who is whose child.

Linux answers by prctl, pidfd and /proc.  Where there is no /proc, a process has no known relatives,
and the warden falls back on process groups.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

PROC = "/proc"
_C_LIBRARY = ctypes.CDLL(None)
READ_MAX = 4096
HAS_PROC = os.access(f"{PROC}/self/stat", os.F_OK)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Stat(NamedTuple):
    """What /proc/PID/stat says that we need."""

    state: str
    parent: int
    session: int
    started: int  # in ticks since the machine was booted


def boottime() -> float:
    """Seconds that also count while the machine sleeps; the same for every process of the host."""
    return time.clock_gettime(_BOOTTIME)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        _C_LIBRARY.prctl(option, value, 0, 0, 0)


def become_subreaper() -> None:
    """From now on, orphans among our descendants become our children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """The kernel kills us when our parent ends.  A change of user takes this back."""
    _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def read(path: str) -> bytes:
    """A small file of the kernel's.  This is done for every call: a Path would take longer than it."""
    fd = os.open(path, os.O_RDONLY)
    try:
        data = b""
        while part := os.read(fd, READ_MAX):  # it may be short and not the last
            data += part
        return data
    finally:
        os.close(fd)


def processes() -> Iterator[int]:
    """The id of every process that we can see."""
    return (int(name) for name in os.listdir(PROC) if name.isdecimal())


def stat(pid: int) -> Stat | None:
    """None: there is no such process."""
    try:
        text = read(f"{PROC}/{pid}/stat")
    except OSError:
        return None
    fields = text.rpartition(b")")[2].split()  # the name before it may hold anything
    return Stat(fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]))


def is_over(pid: int) -> bool:
    """Is nothing of it at work?  A zombie may have threads that are not over."""
    seen = stat(pid)
    if seen is None or seen.state == "X":
        return True
    return seen.state == "Z" and not any(_threads_at_work(pid))


def _threads_at_work(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        yield from (int(name) for name in os.listdir(f"{PROC}/{pid}/task") if name != str(pid))


def ticks() -> int:
    """Now, as `Stat.started` counts it; rounded so that what starts later is not less."""
    return int(boottime() * os.sysconf("SC_CLK_TCK"))


def environ(pid: int) -> frozenset[bytes]:
    """The `NAME=value` entries that it was started with; none where we may not look, or of a zombie."""
    try:
        return frozenset(read(f"{PROC}/{pid}/environ").split(b"\0"))
    except OSError:
        return frozenset()


def cgroups(pid: int) -> bytes:
    """The lines that say which cgroups it is in."""
    try:
        return read(f"{PROC}/{pid}/cgroup")
    except OSError:
        return b""


def children(pid: int) -> set[int]:
    """Its children.  Of ourselves complete, as nobody else can take one from our list meanwhile."""
    found: set[int] = set()
    try:
        with os.scandir(f"{PROC}/{pid}/task") as tasks:
            for task in tasks:
                found.update(map(int, read(f"{task.path}/children").split()))
    except FileNotFoundError:
        return _children_by_parent(pid) if stat(pid) else set()
    except (ProcessLookupError, PermissionError):
        return found
    return found


def _children_by_parent(pid: int) -> set[int]:
    """For a kernel that lists no children."""
    return {other for other in processes() if (seen := stat(other)) and seen.parent == pid}


def descendants(pids: Iterable[int]) -> set[int]:
    """These, their children, and so on."""
    found: set[int] = set()
    ahead = set(pids)
    while ahead:
        found |= ahead
        ahead = set().union(*map(children, ahead)) - found
    return found


def signal_all(members: Callable[[], set[int]], signum: int, first: int = 0) -> None:
    """Signal all members, and never a stranger who was given the id of one that ended: what is held
    by a pidfd and still a member after that is the one that we mean.  The main process comes first: a
    shell whose child is signalled before it exits by itself, as if the child had failed."""
    held = {pid: fd for pid in members() if (fd := _hold(pid)) is not None}
    try:
        for pid in sorted(held.keys() & members(), key=lambda pid: (pid != first, pid)) if held else ():
            _send(pid, held[pid], signum)
    finally:
        for fd in held.values():
            if fd >= 0:
                os.close(fd)


def _hold(pid: int) -> int | None:
    """A pidfd; None: it is gone; -1: this kernel has none."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    except (OSError, AttributeError):
        return -1


def _send(pid: int, fd: int, signum: int) -> None:
    try:
        if fd >= 0:
            signal.pidfd_send_signal(fd, signum)
        else:
            os.kill(pid, signum)
    except (ProcessLookupError, PermissionError):
        pass  # it has ended; or it became another user, and only root can end it
