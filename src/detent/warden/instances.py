"""The instances of nodes and triggers on this host, and the proof that one of them is dead.

Each instance holds an flock on a file of its own, together with its warden.  The kernel releases it when
both are gone, however they ended: an instance whose lock can be taken is dead.  Processes that it left are
killed before its claims are taken over.  A process that cannot be found any more still holds its lane by a
lock that it inherited.
"""

from __future__ import annotations

import fcntl
import functools
import os
import re
from collections.abc import Iterable
from contextlib import suppress

from detent.errors import UsageError
from detent.text import percent_encoded
from detent.warden.program import kernel
from detent.warden.program.host_locks import create_lane

SUFFIX = ".lock"
LANES = "lanes"  # shared by all instances; the name of an instance has a dot in it
FROZEN_LOOKS = 4


class Instance:
    """This process: its name, its lock, and its folder for the output of running tasks."""

    def __init__(self, directory: str | os.PathLike[str], node_id: str) -> None:
        self.directory = os.fspath(directory)
        self.name = instance_name(node_id)
        self.outputs, self.lanes = f"{self.directory}/{self.name}", f"{self.directory}/{LANES}"
        self._lock = self.outputs + SUFFIX
        self.lock_fd = -1

    def begin(self) -> None:
        """Create the folders and the lock.  The lock file gets its name when it is locked: before that,
        another process would take the instance for dead."""
        try:
            for path in (self.directory, self.lanes):
                os.makedirs(path, mode=0o700, exist_ok=True)
            os.mkdir(self.outputs, 0o700)
            fresh = self.outputs + ".new"
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self.lock_fd = os.open(fresh, flags, 0o600)
            fcntl.flock(self.lock_fd, fcntl.LOCK_EX)
            os.rename(fresh, self._lock)
        except OSError as error:
            raise UsageError(f"cannot write to {self.directory}: {error.strerror}") from error

    def record_warden(self, pid: int) -> None:
        """Write the holders of the lock into it, so that others can see whether both are stopped."""
        os.ftruncate(self.lock_fd, 0)
        os.pwrite(self.lock_fd, f"{os.getpid()} {pid}".encode(), 0)

    def end(self) -> None:
        """Everything is settled: remove the lock and the folder."""
        _remove_folder(self.outputs)
        _unlink(self._lock)
        os.close(self.lock_fd)


def instance_name(node_id: str, kind: str = "") -> str:
    """Return a new name for a process that claims: `host.1a2b3c4d`, or `host.lock-1a2b3c4d` with a kind."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", node_id)  # safe in a path and for a shell
    return f"{plain[:60]}.{kind and kind + '-'}{os.urandom(4).hex()}"


class DeadInstances:
    """Finds the dead instances of a directory, and holds their locks until they are removed."""

    def __init__(self, directory: str | os.PathLike[str], own: str) -> None:
        self._directory, self._own = os.fspath(directory), own
        self._dead: dict[str, int] = {}  # instance -> our descriptor of its lock
        self._frozen: dict[str, int] = {}  # instance -> in how many successive looks it was frozen

    def find(self) -> list[str]:
        """Return the dead instances that were not found before."""
        known = {self._own, *self._dead}
        return [name for name in self._instances() if name not in known and self._take(name)]

    def find_frozen(self) -> list[str]:
        """Return the instances whose warden is stopped and whose node is stopped or gone: nothing ends
        their work in time.  Only after a few looks, as a process may be stopped for a moment."""
        names = [name for name in self._instances() if name not in self._dead]
        frozen = [name for name in names if _is_frozen(self._lock_of(name))]
        self._frozen = {name: self._frozen.get(name, 0) + 1 for name in frozen}
        return [name for name, looks in self._frozen.items() if looks >= FROZEN_LOOKS]

    def remove(self, name: str) -> None:
        """Its claims are released and its processes dead: remove its lock and its folder."""
        _remove_folder(f"{self._directory}/{name}")
        _unlink(self._lock_of(name))
        os.close(self._dead.pop(name))

    def close(self) -> None:
        """Leave those that were not removed to another process."""
        for fd in self._dead.values():
            os.close(fd)
        self._dead.clear()

    def _instances(self) -> list[str]:
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return []
        return [name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)]

    def _lock_of(self, name: str) -> str:
        return f"{self._directory}/{name}{SUFFIX}"

    def _take(self, name: str) -> bool:
        fd = _try_lock(self._lock_of(name), os.O_RDWR, fcntl.LOCK_EX)
        if fd is not None:
            self._dead[name] = fd
        return fd is not None


def is_dead(outputs: str | os.PathLike[str]) -> bool:
    """Whether the instance with this folder is certainly dead, as its lock is free.  A missing lock proves
    nothing: the folder may be on another machine."""
    fd = _try_lock(os.fspath(outputs) + SUFFIX, os.O_RDONLY, fcntl.LOCK_SH)
    if fd is not None:
        os.close(fd)
    return fd is not None


def _try_lock(path: str, access: int, kind: int) -> int | None:
    """Return a descriptor that holds the lock; None: it is held by others, or its node has removed it."""
    try:
        fd = os.open(path, access | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _remove_folder(path: str) -> None:
    try:
        os.rmdir(path)
    except OSError:  # it is not empty
        import shutil  # late: a trigger rarely needs it

        shutil.rmtree(path, ignore_errors=True)


def _is_frozen(lock: str) -> bool:
    try:
        node, warden = (kernel.stat(int(pid)) for pid in kernel.read(lock).split())
    except (OSError, ValueError):
        return False
    return warden is not None and warden.state in "Tt" and (node is None or node.state in "TtZ")


@functools.lru_cache(maxsize=20_000)
def lane_path(lanes: str, lane: str) -> str:
    """Return the path of the locks of a lane, without the number; "": there is no lane."""
    return f"{lanes}/{percent_encoded(lane)}" if lane else ""


def make_lanes(lanes: str, names: Iterable[str]) -> None:
    """Create the locks of planned fires: creating a file is slow, and many fires may be due at one
    instant."""
    for lane in names:
        create_lane(lane_path(lanes, lane))


def output_path(outputs: str, run_id: str, attempt: int) -> str:
    """Return where the output of a running attempt is; with `.1` appended, the earlier part of it."""
    return f"{outputs}/{run_id}.{attempt}.log"


def forget_output(path: str) -> None:
    """Remove the files: the store has the tail, or is about to get it."""
    _unlink(path)
    _unlink(path + ".1")
