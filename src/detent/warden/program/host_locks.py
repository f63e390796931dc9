"""A lane on this host, as locks of the kernel: one file with an flock for each place of the lane.

The work inherits the descriptor.  The place stays taken until the last process that has it is gone, whatever
happened to its node and its warden.

Each place has a file of its own, although creating one can take 0.8 ms (so it is created when a fire is
planned).  With locks on byte ranges of one shared file, any job could lock the ranges of all other jobs.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterable, Iterator

from . import kernel

NO_LANE = -1
FORKED_S, POLL_S = 0.02, 0.002
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
LANE_FD = 99  # the descriptor in the work: so high that no script uses it by chance


def take_lane(lane: str, places: int) -> int | None:
    """Return a descriptor that holds one of the lane's places; None: all are taken.  It tries again for a
    moment, as a process that was just forked has all our descriptors until it executes its program."""
    give_up_at = kernel.boottime() + FORKED_S
    while (fd := _try(lane, places)) is None and kernel.boottime() < give_up_at:
        time.sleep(POLL_S)
    return fd


def create_lane(lane: str) -> None:
    """Create the file of the first place before it is needed."""
    path = f"{lane}.0"
    with contextlib.suppress(OSError):  # `take_lane` reports it
        if not os.access(path, os.F_OK):
            os.close(os.open(path, _FLAGS, 0o600))


def _try(lane: str, places: int) -> int | None:
    for place in range(places):
        fd = os.open(f"{lane}.{place}", _FLAGS, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
        else:
            return fd
    return None


def release_lane(fd: int) -> None:
    """Close our descriptor.  Processes that still have it keep the place."""
    if fd != NO_LANE:
        os.close(fd)


def holders(lane: str, places: int) -> list[int]:
    """Return the processes that hold a place of the lane, as far as we may see them."""
    return who_has_open([f"{lane}.{place}" for place in range(places)])


def who_has_open(paths: Iterable[str]) -> list[int]:
    """Return the processes that have one of these files open, as far as we may see them."""
    files = set()
    for path in paths:
        with contextlib.suppress(OSError):
            found = os.stat(path)
            files.add((found.st_dev, found.st_ino))
    return sorted(pid for pid in kernel.processes() if files & set(_open_files(pid))) if files else []


def _open_files(pid: int) -> Iterator[tuple[int, int]]:
    with contextlib.suppress(OSError):
        for fd in os.listdir(folder := f"{kernel.PROC}/{pid}/fd"):
            with contextlib.suppress(OSError):
                found = os.stat(f"{folder}/{fd}")
                yield found.st_dev, found.st_ino
