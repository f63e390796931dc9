"""A lane on this host, kept by the kernel: a lock for each of its places.

The work inherits the descriptor, so that the place stays taken until the last process that has it is
gone, whatever became of those who started it, and however far it got away from them.

A lane is named by a path; its locks are bytes of one file in that folder, `LOCKS`, told by a hash of its
name.  They are locks of an open file (`F_OFD_SETLK`), inherited and freed as a flock is; but a flock would
take a file for each job, and to make a file takes twenty times as long as to open one.
Where the kernel has none of these (macOS), no lane is kept here.
"""

import contextlib
import fcntl
import hashlib
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from . import kernel

NO_LANE = -1
LANE_FD = 99  # where the work finds it: no script uses so high a number by chance
LOCKS = "locks"
FORKED_S, LOOK_S = 0.02, 0.002
_PLACES_MAX_BITS = 14  # of a position: a manifest allows 10,000 places
_SET_LOCK = getattr(fcntl, "F_OFD_SETLK", None)


def take(lane: str, places: int) -> int | None:
    """A descriptor that holds one of the lane's places; None: all of them are taken.  A process that was
    just forked has all our descriptors until it executes its own program: that is not taken."""
    if _SET_LOCK is None:
        return NO_LANE
    give_up_at = kernel.boottime() + FORKED_S
    fd = os.open(_file(lane), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    while not (is_taken := _try(fd, lane, places)) and kernel.boottime() < give_up_at:
        time.sleep(LOOK_S)
    if is_taken:
        return fd
    os.close(fd)
    return None


def _try(fd: int, lane: str, places: int) -> bool:
    first = _position(lane)
    for position in range(first, first + places):
        with contextlib.suppress(BlockingIOError):
            lock = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, position, 1, 0)
            fcntl.fcntl(fd, _SET_LOCK, lock)  # type: ignore[arg-type]
            return True
    return False


def let_go(fd: int) -> None:
    """Our hold on it; what still has the descriptor keeps the place."""
    if fd != NO_LANE:
        os.close(fd)


def holders(lane: str, places: int) -> list[int]:
    """Processes that hold a place of the lane, as far as we may look."""
    first, file = _position(lane), Path(_file(lane)).stat()
    held = range(first, first + places)
    return sorted(pid for pid in kernel.processes() if any(at in held for at in _locks(pid, file)))


def _file(lane: str) -> str:
    return f"{lane.rpartition('/')[0]}/{LOCKS}"


def _position(lane: str) -> int:
    name = hashlib.blake2b(lane.rpartition("/")[2].encode("utf-8", "surrogateescape"), digest_size=6)
    return int.from_bytes(name.digest(), "big") << _PLACES_MAX_BITS


def _locks(pid: int, file: os.stat_result) -> Iterator[int]:
    """The positions that a process has locked in the file."""
    with contextlib.suppress(OSError):
        for fd in (kernel.PROC / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                if os.path.samestat(fd.stat(), file):
                    told = kernel.read(f"{kernel.PROC}/{pid}/fdinfo/{fd.name}").splitlines()
                    yield from (int(line.split()[-2]) for line in told if line.startswith(b"lock:"))
