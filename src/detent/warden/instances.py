"""The instances of nodes on this host, and the proof that one of them is over.

Each instance holds a flock on a file of its own, together with its warden: the kernel frees it when the
last of them is gone, however they ended.  A instance whose file can be locked by another is dead.  What
its commands left behind is swept before its claims are taken over.  What even a sweep cannot find, as
it gave up everything by which it could be known, still holds its lane by a lock that it inherited.
"""

from __future__ import annotations

import fcntl
import functools
import os
from collections.abc import Iterable
from contextlib import suppress

from detent.errors import UsageError
from detent.text import percent_encoded
from detent.warden.program import kernel
from detent.warden.program.host_locks import create_lane

SUFFIX = ".lock"
LANES = "lanes"  # shared by all instances; a instance has a dot in its name
FROZEN_LOOKS = 4
_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


class Instance:
    """This process' instance: its name, its lock, and its folder for the output of what runs."""

    def __init__(self, directory: str | os.PathLike[str], node_id: str) -> None:
        self.directory = os.fspath(directory)
        self.name = instance_name(node_id)
        self.outputs, self.lanes = f"{self.directory}/{self.name}", f"{self.directory}/{LANES}"
        self._lock = self.outputs + SUFFIX
        self.lock_fd = -1

    def begin(self) -> None:
        """The file gets its name only when it is locked: nobody can take it for a dead one's."""
        try:
            _make_directory(self.directory)
            _make_directory(self.lanes)
            os.mkdir(self.outputs, 0o700)
            fresh = self.outputs + ".new"
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self.lock_fd = os.open(fresh, flags, 0o600)
            fcntl.flock(self.lock_fd, fcntl.LOCK_EX)
            os.rename(fresh, self._lock)
        except OSError as error:
            raise UsageError(f"cannot write to {self.directory}: {error.strerror}") from error

    def record_warden(self, warden: int) -> None:
        """Who holds the lock: for others to see whether they are stopped, and both at that."""
        os.ftruncate(self.lock_fd, 0)
        os.pwrite(self.lock_fd, f"{os.getpid()} {warden}".encode(), 0)

    def end(self) -> None:
        """All is settled: nobody needs a proof."""
        _remove(self.outputs)
        _unlink(self._lock)
        os.close(self.lock_fd)


def instance_name(node_id: str, kind: str = "") -> str:
    """A new name for a process that claims: `host.1a2b3c4d`, or `host.lock-1a2b3c4d` for one of a kind."""
    return f"{_plain(node_id)[:60]}.{kind and kind + '-'}{os.urandom(4).hex()}"


def _plain(node_id: str) -> str:
    """Returns it with a hyphen in place of each character that a path or a shell could interpret."""
    kept = "".join(letter if letter in _LETTERS else " " for letter in node_id)
    while "  " in kept:
        kept = kept.replace("  ", " ")
    return kept.replace(" ", "-")


class DeadInstances:
    """Finds the dead instances of a directory, and keeps their locks until they are buried."""

    def __init__(self, directory: str | os.PathLike[str], own: str) -> None:
        self._directory, self._own = os.fspath(directory), own
        self._dead: dict[str, int] = {}  # instance -> the descriptor by which we hold its lock
        self._frozen: dict[str, int] = {}  # instance -> how many looks in a row found it so

    def find(self) -> list[str]:
        """Lives whose lock is free, and that were not found before."""
        known = {self._own, *self._dead}
        return [instance for instance in self._instances() if instance not in known and self._take(instance)]

    def find_frozen(self) -> list[str]:
        """Lives whose warden is stopped and whose node is stopped or gone: nobody ends their work in
        time.  Only those that were found so a few times: one may be stopped for a moment."""
        instances = [instance for instance in self._instances() if instance not in self._dead]
        frozen = [instance for instance in instances if _is_frozen(self._lock_of(instance))]
        self._frozen = {instance: self._frozen.get(instance, 0) + 1 for instance in frozen}
        return [instance for instance, times in self._frozen.items() if times >= FROZEN_LOOKS]

    def remove(self, instance: str) -> None:
        """Its claims are over, its processes gone."""
        _remove(f"{self._directory}/{instance}")
        _unlink(self._lock_of(instance))
        os.close(self._dead.pop(instance))

    def close(self) -> None:
        """Those not yet buried are left to somebody else."""
        for fd in self._dead.values():
            os.close(fd)
        self._dead.clear()

    def _instances(self) -> list[str]:
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return []
        return [name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)]

    def _lock_of(self, instance: str) -> str:
        return f"{self._directory}/{instance}{SUFFIX}"

    def _take(self, instance: str) -> bool:
        try:
            fd = os.open(self._lock_of(instance), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # its own node, or another, has removed it
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return False
        self._dead[instance] = fd
        return True


def is_dead(outputs: str | os.PathLike[str]) -> bool:
    """Whether the instance with this folder is surely dead: its lock is free.  A lock that is not there
    proves nothing: the folder may be on another machine's disk."""
    try:
        fd = os.open(os.fspath(outputs) + SUFFIX, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _make_directory(path: str) -> None:
    if not os.path.isdir(path):
        os.makedirs(path, mode=0o700, exist_ok=True)


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _remove(outputs: str) -> None:
    try:
        os.rmdir(outputs)
    except OSError:  # there is something in it
        import shutil

        shutil.rmtree(outputs, ignore_errors=True)


def _is_frozen(lock: str) -> bool:
    try:
        node, warden = (kernel.stat(int(pid)) for pid in kernel.read(lock).split())
    except (OSError, ValueError):
        return False
    return warden is not None and warden.state in "Tt" and (node is None or node.state in "TtZ")


def lane_path(lanes: str, lane: str) -> str:
    """Where the locks of a lane are, but for their numbers; "": there is no lane."""
    return f"{lanes}/{_name_of(lane)}" if lane else ""


@functools.lru_cache(maxsize=20_000)
def _name_of(lane: str) -> str:
    return percent_encoded(lane)


def make_lanes(lanes: str, names: Iterable[str]) -> None:
    """For fires that are planned: a file is slow to make, and they may all be due at one instant."""
    for lane in names:
        create_lane(lane_path(lanes, lane))


def output_path(outputs: str, run_id: str, attempt: int) -> str:
    """Where the output of a running attempt can be read; `.1` behind it is what came before."""
    return f"{outputs}/{run_id}.{attempt}.log"


def forget_output(path: str) -> None:
    """The tail is in the store, or on its way there."""
    _unlink(path)
    _unlink(path + ".1")
