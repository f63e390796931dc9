"""What `detent doctor` tells of files and disks: room, and who else may touch what."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from detent.stores.base import Diagnosis
from detent.text import quote

ROOM_LOW, ROOM_ADVISED = 64 << 20, 1 << 30  # bytes
FULL = "on a full disk nothing is claimed: nothing is launched"
ANYBODY, GROUP, READABLE = 0o002, 0o020, 0o044


def room(what: str, directory: Path) -> Diagnosis:
    """How much the disk of a directory, or of what exists of it, still takes."""
    place = _existing(directory)
    free, disk = shutil.disk_usage(place).free, os.statvfs(place)
    has_inodes = not disk.f_files or disk.f_favail > 0
    found = f"{size(free)} free" if has_inodes else "no inodes free: there is no room for another file"
    advice = f"free some on the disk of {quote(str(place))}, or keep less: node.keep_days, node.keep_fires"
    if free < ROOM_LOW or not has_inodes:
        return Diagnosis(what, "bad", found, FULL, advice)
    if free < ROOM_ADVISED:
        return Diagnosis(what, "weak", found, FULL, advice)
    return Diagnosis(what, "ok", found)


def same_disk(one: Path, other: Path) -> bool:
    return _existing(one).stat().st_dev == _existing(other).stat().st_dev


def _existing(directory: Path) -> Path:
    whole = directory.absolute()
    return next(one for one in (whole, *whole.parents) if one.exists())


def size(count: int) -> str:
    return f"{count / (1 << 30):,.0f} GiB" if count >= 10 << 30 else f"{count / (1 << 20):,.0f} MiB"


# Modes.


def store_modes(file: Path) -> Iterator[Diagnosis]:
    """Of a store's file and its directory; nothing of one that is not there yet."""
    if file.exists():
        yield _store_mode(file)
    if file.parent.exists():
        yield directory_mode("store directory", file.absolute().parent)


def _store_mode(file: Path) -> Diagnosis:
    mode, found = file.stat().st_mode, _shown(file)
    if mode & ANYBODY:
        consequence = "every user of this host can change what ran, and what is to run"
        return Diagnosis("store file", "bad", found, consequence, f"chmod 600 {file}")
    if mode & READABLE:
        return Diagnosis("store file", "weak", found, "others can read what jobs wrote", f"chmod 600 {file}")
    return Diagnosis("store file", "ok", found)


def directory_mode(what: str, directory: Path) -> Diagnosis:
    """Who else can replace the files in it."""
    about, found = directory.stat(), _shown(directory)
    mode, owner = about.st_mode, _user(about.st_uid)
    if mode & ANYBODY and not mode & stat.S_ISVTX:
        consequence = "every user of this host can put other files in the place of yours"
        return Diagnosis(what, "bad", found, consequence, f"chmod o-w {directory}")
    if about.st_uid not in (0, os.geteuid()):
        consequence = f"{owner} can put other files in the place of yours"
        advice = f"make it yours with chown, use another directory, or run as {owner}"
        return Diagnosis(what, "bad", found, consequence, advice)
    return Diagnosis(what, "ok", found)


def manifest_modes(what: str, file: Path, *, has_secrets: bool) -> Iterator[Diagnosis]:
    """Who can change a manifest, or read secrets in it."""
    directory = directory_mode(what, file.absolute().parent)
    yield directory if directory.state != "ok" else _manifest_mode(what, file, has_secrets)


def _manifest_mode(what: str, file: Path, has_secrets: bool) -> Diagnosis:
    about, found = file.stat(), _shown(file)
    if about.st_mode & ANYBODY:
        consequence = "every user of this host can run commands as you"
        return Diagnosis(what, "bad", found, consequence, f"chmod o-w {file}")
    if about.st_uid not in (0, os.geteuid()):
        owner = _user(about.st_uid)
        advice = f"make it yours with chown, or run the node as {owner}"
        return Diagnosis(what, "bad", found, f"{owner} can run commands as you", advice)
    if about.st_mode & GROUP and about.st_gid != _own_group(about.st_uid):
        consequence = "its group can run commands as you"
        return Diagnosis(what, "weak", found, consequence, f"chmod g-w {file}")
    if has_secrets and about.st_mode & READABLE:
        consequence = "others can read the secrets in it"
        return Diagnosis(what, "weak", found, consequence, f"chmod 600 {file}, or use env: and file:")
    return Diagnosis(what, "ok", found)


def _shown(path: Path) -> str:
    about = path.stat()
    return f"{path} has mode {stat.S_IMODE(about.st_mode):04o}, owner {_user(about.st_uid)}"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _own_group(uid: int) -> int:
    """Where every user has a group of their own, files are group-writable, and nobody minds."""
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return -1
