"""Checks for `detent doctor` whether the disk of a SQLite store keeps what was acknowledged.

Only the file system can differ between stores, because every connection sets the write-ahead log and
`synchronous=FULL`.  So nothing is opened, and the check also works before the store exists.
"""

from __future__ import annotations

import os
from pathlib import Path

from detent.stores.base import Diagnosis
from detent.stores.sqlite.file import NETWORK_DISKS, disk_kind, named

IN_MEMORY = frozenset(("ramfs", "tmpfs"))
OF_A_CONTAINER = frozenset(("aufs", "fuse.fuse-overlayfs", "overlay"))
AGAIN = "all records are lost, and a fire may be launched again"


def promise(path: str | os.PathLike[str], mounts: str | None = None) -> tuple[Diagnosis, ...]:
    """Whether acknowledged writes survive a crash.  `mounts` is the text of mountinfo."""
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
    """Whether the file itself will stay."""
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
