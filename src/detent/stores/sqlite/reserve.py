"""Reserves disk space, so that `prune` works on a full disk.

SQLite writes to its log before it deletes.  Deleted rows leave space in the file, not on the disk, so the
store keeps the released space for its log until the disk has room for another reserve.
"""

from __future__ import annotations

import os
from contextlib import suppress

RESERVE = "-reserve"  # the ending of its name
RESERVE_BYTES = 8 << 20  # the log is written back at 4 MiB, and the file may grow by as much
ROOM_BYTES = 4 * RESERVE_BYTES  # free space that a disk needs before it gets a reserve


def keep_reserve(store: str) -> None:
    """Create the reserve, unless it exists or the disk has little space."""
    path = store + RESERVE
    if os.path.lexists(path) or free_bytes(store) < ROOM_BYTES or not hasattr(os, "posix_fallocate"):
        return
    with suppress(OSError):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, RESERVE_BYTES)
        except OSError:  # a file system without fallocate, or a disk that is full by now
            os.unlink(path)
        finally:
            os.close(fd)


def release_reserve(store: str) -> bool:
    """Delete the reserve if the disk is full.  False: the disk is not full, or there is no reserve."""
    if free_bytes(store) >= RESERVE_BYTES:
        return False
    try:
        os.unlink(store + RESERVE)
    except OSError:
        return False
    return True


def free_bytes(store: str) -> int:
    found = os.statvfs(os.path.dirname(store))
    return found.f_bavail * found.f_frsize
