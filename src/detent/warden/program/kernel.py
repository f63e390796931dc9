"""What the warden asks of the operating system: time, signals, and which process is whose child.

Linux answers by prctl, pidfd and /proc.  Without /proc, a process has no known relatives, and the warden
uses process groups.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ctypes

PROC = "/proc"
READ_MAX = 4096
HAS_PROC = os.access(f"{PROC}/self/stat", os.F_OK)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Stat(NamedTuple):
    state: str
    parent: int
    session: int
    started: int  # in ticks since the machine was booted


def boottime() -> float:
    """Seconds that also count while the machine sleeps; the same for every process of the host."""
    return time.clock_gettime(_BOOTTIME)


@cache
def _c_library() -> "ctypes.CDLL":
    """The warden becomes a subreaper before it forks, so that no fork of it loads this."""
    import ctypes  # late: the trigger of a request does not need it

    return ctypes.CDLL(None)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        _c_library().prctl(option, value, 0, 0, 0)


def become_subreaper() -> None:
    """From now on, orphans among our descendants become our children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have the kernel kill us when our parent ends.  A change of user resets this."""
    _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def read(path: str) -> bytes:
    """Read a small file of the kernel.  Called for every task, so it avoids the cost of a Path."""
    fd = os.open(path, os.O_RDONLY)
    try:
        data = b""
        while part := os.read(fd, READ_MAX):  # a short part is not always the last
            data += part
        return data
    finally:
        os.close(fd)


def _read_or_nothing(path: str) -> bytes:
    try:
        return read(path)
    except OSError:
        return b""


def processes() -> Iterator[int]:
    """Yield the id of every process that we can see."""
    return (int(name) for name in os.listdir(PROC) if name.isdecimal())


def stat(pid: int) -> Stat | None:
    """None: there is no such process."""
    text = _read_or_nothing(f"{PROC}/{pid}/stat")
    fields = text.rpartition(b")")[2].split()  # the name before it may contain anything
    return Stat(fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19])) if fields else None


def is_over(pid: int) -> bool:
    """Whether nothing of the process runs any more.  A zombie may still have running threads."""
    seen = stat(pid)
    if seen is None or seen.state == "X":
        return True
    if seen.state == "Z":
        with contextlib.suppress(OSError):
            return all(name == str(pid) for name in os.listdir(f"{PROC}/{pid}/task"))
        return True
    return False


def ticks() -> int:
    """The present as `Stat.started` counts it, rounded down: no later process has a smaller value."""
    return int(boottime() * os.sysconf("SC_CLK_TCK"))


def environ(pid: int) -> frozenset[bytes]:
    """Return the `NAME=value` entries that it was started with; none if we may not look, or of a zombie."""
    return frozenset(_read_or_nothing(f"{PROC}/{pid}/environ").split(b"\0"))


def cgroups(pid: int) -> bytes:
    return _read_or_nothing(f"{PROC}/{pid}/cgroup")


def children(pid: int) -> set[int]:
    """Return its children.  For our own process the list is complete."""
    found: set[int] = set()
    try:
        with os.scandir(f"{PROC}/{pid}/task") as threads:
            for thread in threads:
                found.update(map(int, read(f"{thread.path}/children").split()))
    except FileNotFoundError:  # this kernel does not list children, or the process is gone
        by_parent = ((other, stat(other)) for other in processes()) if stat(pid) else ()
        return {other for other, seen in by_parent if seen and seen.parent == pid}
    except (ProcessLookupError, PermissionError):
        return found
    return found


def descendants(pids: Iterable[int]) -> set[int]:
    """Return these processes, their children, and so on."""
    found: set[int] = set()
    ahead = set(pids)
    while ahead:
        found |= ahead
        ahead = set().union(*map(children, ahead)) - found
    return found


def signal_all(members: Callable[[], set[int]], signum: int, first: int = 0) -> None:
    """Signal all members, and never another process that got the id of a member that ended: a process that
    is held by a pidfd, and is still a member after that, is the right one.  The main process comes first:
    a shell whose child is signalled before the shell exits by itself, as if the child had failed."""
    held = {pid: fd for pid in members() if (fd := _hold(pid)) is not None}
    try:
        for pid in sorted(held.keys() & members(), key=lambda pid: (pid != first, pid)) if held else ():
            _send(pid, held[pid], signum)
    finally:
        for fd in held.values():
            if fd >= 0:
                os.close(fd)


def _hold(pid: int) -> int | None:
    """Return a pidfd; None: the process is gone; -1: this kernel has no pidfds."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    except (OSError, AttributeError):
        return -1


def _send(pid: int, fd: int, signum: int) -> None:
    with contextlib.suppress(
        ProcessLookupError, PermissionError
    ):  # ended, or now another user's: only root can
        if fd >= 0:
            signal.pidfd_send_signal(fd, signum)
        else:
            os.kill(pid, signum)
