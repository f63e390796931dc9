"""Disk space that is kept for a full disk: `prune` needs some before it can give any back.

SQLite writes what it deletes to its log first.  The rows that are deleted leave room in the file, and none on
the disk; so the space stays with the store, for its log, until the disk has room for another reserve.
"""

from __future__ import annotations

import os
from contextlib import suppress

RESERVE = "-reserve"  # what its name ends with
RESERVE_BYTES = 8 << 20  # the log is written back at 4 MiB, and the file may have to grow by as much for it
ROOM_BYTES = 4 * RESERVE_BYTES  # only a disk with so much room gets a reserve


def keep_reserve(store: str) -> None:
    """Make the reserve, unless it is there or the disk has little room."""
    path = store + RESERVE
    if os.path.lexists(path) or free_bytes(store) < ROOM_BYTES or not hasattr(os, "posix_fallocate"):
        return
    with suppress(OSError):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, RESERVE_BYTES)
        except OSError:  # a disk that cannot, or that is full by now
            os.unlink(path)
        finally:
            os.close(fd)


def release_reserve(store: str) -> bool:
    """Give it to the store, where the disk is full.  False: the disk is not full, or there is no reserve."""
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
