"""A cgroup (v2) of its own for each fire: no process that a command starts can leave it unnoticed.

Layout: BASE/detent-INSTANCE/ID.  No controller is enabled there, so BASE may contain processes itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

from . import kernel

KEPT_MAX = 64  # empty cgroups that are kept for the next fires


def instance_directory(base: str, instance: str) -> str:
    """Return where the cgroups of one instance are."""
    return f"{base.rstrip('/')}/detent-{instance.replace('/', '%2F')}"


class Home:
    """The cgroup and the working directory of the warden itself, by descriptors."""

    def __init__(self, cgroup: str) -> None:
        self._processes = os.open(f"{cgroup}/cgroup.procs", os.O_WRONLY)
        self._directory = os.open(".", os.O_RDONLY)
        self.is_left = False

    def return_to_cgroup(self) -> None:
        if self.is_left:
            os.write(self._processes, b"0")
            self.is_left = False

    def return_to_directory(self) -> None:
        os.fchdir(self._directory)


class SpawnTarget:
    """The cgroup in which a process is to start.  The warden enters it, starts the process and returns: at
    once or, with `stays`, after further starts, as each move is slow."""

    def __init__(self, cgroup: Cgroup, home: Home, *, stays: bool = False) -> None:
        self._cgroup, self._home, self._stays = cgroup, home, stays

    def enter(self) -> None:
        self._home.is_left = True
        self._cgroup.enter()

    def leave(self, *, directory: bool) -> None:
        if not self._stays:
            self._home.return_to_cgroup()
        if directory:
            self._home.return_to_directory()


class Cgroup:
    """All processes of one fire, or of one instance."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.main = 0  # a process that was just started here and may not have joined yet

    def create(self) -> None:
        try:
            os.mkdir(self.path)
        except FileExistsError:
            return
        except FileNotFoundError:
            os.makedirs(self.path, exist_ok=True)

    def enter(self) -> None:
        """Move this process into it."""
        _write(f"{self.path}/cgroup.procs", b"0")

    @property
    def above(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def parent(self) -> str:
        """The name of the cgroup that it is in."""
        return self.above.rpartition("/")[2]

    def signal(self, signum: int) -> None:
        kernel.signal_all(self.members, signum, self.main)
        if signum == signal.SIGKILL:
            with contextlib.suppress(OSError):  # kernels before 5.14 do not have it
                _write(f"{self.path}/cgroup.kill", b"1")  # all at once, faster than any process can fork

    def is_empty(self) -> bool:
        try:
            return b"populated 0" in self._read_events() or not self.members()
        except OSError:
            return True

    def _read_events(self) -> bytes:
        return kernel.read(f"{self.path}/cgroup.events")

    def members(self) -> set[int]:
        """Return its processes, and those of cgroups that the work created below it."""
        late = {self.main} & kernel.children(os.getpid()) if self.main else set()
        return late.union(*map(_processes, self._paths()))

    def has_others_than(self, pid: int) -> bool:
        with contextlib.suppress(OSError):
            own = kernel.read(f"{self.path}/cgroup.procs").split()
            if all(int(other) == pid for other in own):
                return not self.is_leaf() and bool(self.members() - {pid})
        return True

    def is_leaf(self) -> bool:
        with contextlib.suppress(OSError):
            return os.stat(self.path).st_nlink == 2  # a folder without folders in it
        return False

    def remove(self) -> bool:
        """True: it no longer exists."""
        try:
            os.rmdir(self.path)
        except FileNotFoundError:
            return True
        except OSError:  # the work may have created some below it
            for path in self._paths():
                with contextlib.suppress(OSError):
                    os.rmdir(path)
        return not os.access(self.path, os.F_OK)

    def _paths(self) -> Iterator[str]:
        """Yield the paths of those below it, and its own path last."""
        return (path for path, _, _ in os.walk(self.path, topdown=False))


class ReusableCgroup(Cgroup):
    """A cgroup that serves one fire after the other.  It keeps open the files that each fire needs."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._processes = self._events = -1  # descriptors

    @property
    def is_open(self) -> bool:
        return self._processes >= 0

    def create(self) -> None:
        super().create()
        self._processes = os.open(f"{self.path}/cgroup.procs", os.O_WRONLY)
        self._events = os.open(f"{self.path}/cgroup.events", os.O_RDONLY)

    def enter(self) -> None:
        os.write(self._processes, b"0")

    def _read_events(self) -> bytes:
        return os.pread(self._events, kernel.READ_MAX, 0) if self._events >= 0 else super()._read_events()

    def remove(self) -> bool:
        for fd in {self._processes, self._events} - {-1}:
            os.close(fd)
        self._processes = self._events = -1
        return super().remove()


class CgroupPool:
    """Empty cgroups of one instance: creating and removing one takes as long as starting a process."""

    def __init__(self, directory: str) -> None:
        self._directory, self._created = directory, 0
        self._free: list[ReusableCgroup] = []

    def take(self) -> ReusableCgroup | None:
        """None: none can be created."""
        if self._free:
            return self._free.pop()
        self._created += 1
        cgroup = ReusableCgroup(f"{self._directory}/fire-{self._created}")
        try:
            cgroup.create()
        except OSError:
            cgroup.remove()
            return None
        return cgroup

    def put(self, cgroup: ReusableCgroup) -> bool:
        """True: it is free again, or removed."""
        cgroup.main = 0
        can_keep = cgroup.is_open and len(self._free) < KEPT_MAX
        is_free = can_keep and cgroup.is_leaf() and cgroup.is_empty()
        if is_free:
            self._free.append(cgroup)
        return is_free or cgroup.remove()


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def _processes(path: str) -> list[int]:
    try:
        return [pid for pid in map(int, kernel.read(f"{path}/cgroup.procs").split()) if pid]
    except OSError:
        return []


def mounted_at() -> str:
    """Return where cgroup v2 is mounted, alone or beside version 1; "": nowhere."""
    try:
        lines = _lines(f"{kernel.PROC}/self/mountinfo")
    except OSError:
        return ""
    for line in lines:
        fields, _, filesystem = line.partition(" - ")
        if filesystem.startswith("cgroup2 "):
            return fields.split()[4]
    return ""


def _lines(path: str) -> list[str]:
    return kernel.read(path).decode("utf-8", "surrogateescape").splitlines()


def find_cgroup() -> str:
    """Return the cgroup of this process, if it may create others below it and move processes there; "": it
    may not, or there is none.  Access rights alone do not tell, so this process moves to a new one and
    back."""
    mount = mounted_at()
    lines = _lines(f"{kernel.PROC}/self/cgroup") if mount else []
    path = next((line[3:] for line in lines if line.startswith("0::")), "")
    if not path:
        return ""
    own = Cgroup(f"{mount}/{path.strip('/')}".rstrip("/"))
    probe = Cgroup(f"{own.path}/detent-probe-{os.getpid()}")
    try:
        probe.create()
        probe.enter()
        own.enter()
    except OSError:
        return ""
    finally:
        probe.remove()
    return own.path


def cgroups_of(instance: str) -> list[Cgroup]:
    """Return the cgroups of an instance, wherever on this host it had them."""
    mount = mounted_at()
    if not mount:
        return []
    name = instance_directory("", instance).lstrip("/")
    return [Cgroup(f"{path}/{name}") for path, below, _ in os.walk(mount) if name in below]
