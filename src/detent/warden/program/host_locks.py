"""A lane on this host, kept by the kernel: a flock on a file for each of its places.

The work inherits the descriptor, so that the place stays taken until the last process that has it is
gone, whatever became of those who started it, and however far it got away from them.

A file for each, although to make one can take 0.8 ms, and so is done when a fire is planned: locks on the
bytes of one shared file were tried, and any job could lock the bytes of all others through its own
descriptor.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterable, Iterator

from . import kernel

NO_LANE = -1
FORKED_S, LOOK_S = 0.02, 0.002
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
LANE_FD = 99  # where the work finds it: no script uses so high a number by chance


def take_lane(lane: str, places: int) -> int | None:
    """A descriptor that holds one of the lane's places; None: all of them are taken.  A process that was
    just forked has all our descriptors until it executes its own program: that is not taken."""
    give_up_at = kernel.boottime() + FORKED_S
    while (fd := _try(lane, places)) is None and kernel.boottime() < give_up_at:
        time.sleep(LOOK_S)
    return fd


def make(lane: str) -> None:
    """Have the file of its first place before it is needed."""
    path = _path(lane, 0)
    with contextlib.suppress(OSError):  # who takes the place sees what is wrong
        if not os.access(path, os.F_OK):
            os.close(os.open(path, _FLAGS, 0o600))


def _try(lane: str, places: int) -> int | None:
    for place in range(places):
        fd = os.open(_path(lane, place), _FLAGS, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
        else:
            return fd
    return None


def release_lane(fd: int) -> None:
    """Our hold on it; what still has the descriptor keeps the place."""
    if fd != NO_LANE:
        os.close(fd)


def holders(lane: str, places: int) -> list[int]:
    """Processes that hold a place of the lane, as far as we may look."""
    return who_has_open([_path(lane, place) for place in range(places)])


def who_has_open(paths: Iterable[str]) -> list[int]:
    """Processes that have one of these files open, as far as we may look."""
    files = {(found.st_dev, found.st_ino) for found in _files(paths)}
    return sorted(pid for pid in kernel.processes() if files & set(_open_files(pid))) if files else []


def _path(lane: str, place: int) -> str:
    return f"{lane}.{place}"


def _files(paths: Iterable[str]) -> Iterator[os.stat_result]:
    for path in paths:
        with contextlib.suppress(OSError):
            yield os.stat(path)


def _open_files(pid: int) -> Iterator[tuple[int, int]]:
    """By device and inode."""
    with contextlib.suppress(OSError):
        for fd in os.listdir(folder := f"{kernel.PROC}/{pid}/fd"):
            with contextlib.suppress(OSError):
                found = os.stat(f"{folder}/{fd}")
                yield found.st_dev, found.st_ino
