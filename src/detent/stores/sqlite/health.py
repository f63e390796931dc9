"""What `detent doctor` tells of a SQLite store: whether its disk keeps what was acknowledged.

- Nothing is opened, written or created: every connection sets the write-ahead log and `synchronous=FULL`
  itself (`sqlite_file`), so that the disk is all that can differ.
- A store that nobody has used yet is judged by where it will be.
"""

from __future__ import annotations

import os
from pathlib import Path

from detent.stores.base import Diagnosis
from detent.stores.sqlite.file import NETWORK_DISKS, disk_kind, named

IN_MEMORY = frozenset(("ramfs", "tmpfs"))
OF_A_CONTAINER = frozenset(("aufs", "fuse.fuse-overlayfs", "overlay"))
AGAIN = "a fire may be launched again, and what was due meanwhile is not known"


def promise(path: str | os.PathLike[str], mounts: str | None = None) -> tuple[Diagnosis, ...]:
    """Does an answer of this store outlive a crash?  `mounts` are the lines of mountinfo."""
    file = Path(path).absolute()
    kind = _kind(file.parent, mounts)
    if kind in NETWORK_DISKS:
        found = f"{named(file)} is on a network disk ({kind})"
        consequence = "it is refused: two hosts could not see each other's locks"
        return (Diagnosis("durability", "bad", found, consequence, "use a local disk for the store"),)
    if kind in IN_MEMORY:
        found, consequence = f"{named(file)} is in memory ({kind})", f"it is gone after a reboot: {AGAIN}"
        return (Diagnosis("durability", "weak", found, consequence, "name a path on a disk"),)
    found = f"write-ahead log, every commit is synced ({kind or 'a local disk'})"
    return (Diagnosis("durability", "ok", found),)


def upkeep(path: str | os.PathLike[str], mounts: str | None = None) -> tuple[Diagnosis, ...]:
    """Will the store still be there tomorrow?"""
    file = Path(path).absolute()
    kind = _kind(file.parent, mounts)
    if kind not in OF_A_CONTAINER:
        return ()
    found = f"{named(file)} is in a container's own layer ({kind})"
    consequence = f"it is gone when the container is removed: {AGAIN}"
    return (Diagnosis("disk", "weak", found, consequence, "mount a volume, and keep the store there"),)


def _kind(directory: Path, mounts: str | None) -> str:
    try:
        return disk_kind(directory, mounts or Path("/proc/self/mountinfo").read_text(errors="replace"))
    except OSError:  # not Linux
        return ""
