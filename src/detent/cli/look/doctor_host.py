"""The rows of `detent doctor` about this host: its clock, processes, versions, disks and file permissions."""

import ctypes
import os
import platform
import pwd
import shutil
import sqlite3
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from detent import __version__
from detent.stores.base import Diagnosis
from detent.text import quote
from detent.warden.program import kernel
from detent.warden.program.cgroups import find_cgroup

OFFSET_MAX_S = 1.0
FREE_LOW, FREE_ADVISED = 64 << 20, 1 << 30  # bytes
FULL = "on a full disk no fire can be claimed, so nothing runs"
OTHERS_WRITE, GROUP_WRITES, OTHERS_READ = 0o002, 0o020, 0o044
_TIME_ERROR = 5  # the answer of adjtimex if the clock is not synchronised
_TIMEX_BYTES = 512  # larger than the kernel's struct; all zero reads without a change


def host_rows() -> Iterator[Diagnosis]:
    yield _synchronised(clock_is_synchronised())
    yield _cgroup(find_cgroup())
    yield _orphans(sys.platform == "linux" and kernel.HAS_PROC)
    found = f"detent {__version__}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    yield Diagnosis("versions", "ok", found)


def clock_offset(offset_s: float) -> Diagnosis:
    if abs(offset_s) < OFFSET_MAX_S:
        return Diagnosis("clock offset", "ok", f"less than {OFFSET_MAX_S:g} s from the store's clock")
    found = f"{abs(offset_s):.1f} s {'ahead of' if offset_s > 0 else 'behind'} the store's clock"
    consequence = "jobs follow the store's clock, but the times in logs and signatures are wrong"
    return Diagnosis("clock offset", "weak", found, consequence, "set the clock, and run an NTP client")


def clock_is_synchronised() -> bool | None:
    """Whether the kernel reports a synchronised clock; None: it does not report."""
    if sys.platform != "linux":
        return None
    answer = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    return None if answer < 0 else answer != _TIME_ERROR


def _synchronised(is_synchronised: bool | None) -> Diagnosis:
    if is_synchronised:
        return Diagnosis("clock", "ok", "the kernel's clock is synchronised")
    unknown = "this kernel does not report whether the clock is synchronised"
    found = unknown if is_synchronised is None else "the clock is not synchronised"
    consequence = "a clock that drifts runs jobs at the wrong time, though never twice"
    return Diagnosis("clock", "weak", found, consequence, "run chrony or another NTP client")


def _cgroup(cgroup: str) -> Diagnosis:
    if cgroup:
        return Diagnosis(
            "cgroup", "ok", f"every fire runs in its own cgroup below {cgroup}, and is killed with it"
        )
    consequence = "processes are found by their parents: a daemon that hides can outlive its fire"
    advice = "with systemd, set Delegate=yes in the unit; in a container, mount cgroup v2 writable"
    return Diagnosis("cgroup", "weak", "there is no writable cgroup v2", consequence, advice)


def _orphans(has_linux: bool) -> Diagnosis:
    if has_linux:
        return Diagnosis(
            "orphans", "ok", "processes of a dead node are killed (subreaper, parent-death signal)"
        )
    found = "this system has no subreaper and no parent-death signal"
    consequence = "if a node and its warden are killed together, their work runs on until the next start"
    return Diagnosis("orphans", "weak", found, consequence, "run important nodes on Linux")


def disk_space(what: str, directory: Path) -> Diagnosis:
    place = _existing(directory)
    free, disk = shutil.disk_usage(place).free, os.statvfs(place)
    has_inodes = not disk.f_files or disk.f_favail > 0
    found = f"{size(free)} free" if has_inodes else "no inodes free: no file can be created"
    advice = f"free space on the disk of {quote(str(place))}, or lower node.keep_days or node.keep_fires"
    if free < FREE_LOW or not has_inodes:
        return Diagnosis(what, "bad", found, FULL, advice)
    return (
        Diagnosis(what, "weak", found, FULL, advice) if free < FREE_ADVISED else Diagnosis(what, "ok", found)
    )


def is_same_disk(one: Path, other: Path) -> bool:
    return _existing(one).stat().st_dev == _existing(other).stat().st_dev


def _existing(directory: Path) -> Path:
    whole = directory.absolute()
    return next(one for one in (whole, *whole.parents) if one.exists())


def size(count: int) -> str:
    return f"{count / (1 << 30):,.0f} GiB" if count >= 10 << 30 else f"{count / (1 << 20):,.0f} MiB"


def store_modes(file: Path) -> Iterator[Diagnosis]:
    if file.exists():
        mode, found, advice = file.stat().st_mode, _shown(file), f"chmod 600 {file}"
        if mode & OTHERS_WRITE:
            consequence = "every user of this host can change what ran and what will run"
            yield Diagnosis("store file", "bad", found, consequence, advice)
        elif mode & OTHERS_READ:
            yield Diagnosis("store file", "weak", found, "others can read job output", advice)
        else:
            yield Diagnosis("store file", "ok", found)
    if file.parent.exists():
        yield directory_mode("store directory", file.absolute().parent)


def directory_mode(what: str, directory: Path) -> Diagnosis:
    """Check whether other users can replace files in the directory."""
    about, found = directory.stat(), _shown(directory)
    mode, owner = about.st_mode, _user(about.st_uid)
    if mode & OTHERS_WRITE and not mode & stat.S_ISVTX:
        consequence = "every user of this host can replace your files"
        return Diagnosis(what, "bad", found, consequence, f"chmod o-w {directory}")
    if about.st_uid not in (0, os.geteuid()):
        advice = f"chown it to you, use another directory, or run as {owner}"
        return Diagnosis(what, "bad", found, f"{owner} can replace your files", advice)
    return Diagnosis(what, "ok", found)


def manifest_mode(what: str, file: Path, *, has_secrets: bool) -> Diagnosis:
    """Check who else can change a manifest, or read secrets in it."""
    directory = directory_mode(what, file.absolute().parent)
    if directory.state != "ok":
        return directory
    about, found = file.stat(), _shown(file)
    if about.st_mode & OTHERS_WRITE:
        consequence = "every user of this host can run commands as you"
        return Diagnosis(what, "bad", found, consequence, f"chmod o-w {file}")
    if about.st_uid not in (0, os.geteuid()):
        owner = _user(about.st_uid)
        advice = f"chown it to you, or run the node as {owner}"
        return Diagnosis(what, "bad", found, f"{owner} can run commands as you", advice)
    if about.st_mode & GROUP_WRITES and about.st_gid != _own_group(about.st_uid):
        consequence = "its group can run commands as you"
        return Diagnosis(what, "weak", found, consequence, f"chmod g-w {file}")
    if has_secrets and about.st_mode & OTHERS_READ:
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
    """The user's private group, if there is one: its write permission is harmless."""
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return -1
