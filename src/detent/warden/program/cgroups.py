"""A cgroup (v2) of its own for each fire: nothing that a command starts can get out of it.

Layout: BASE/detent-LIFE/ID.  We enable no controller there, so BASE may hold processes itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

from . import kernel

SPARES_MAX = 64


def instance_directory(base: str, instance: str) -> str:
    """Where the cgroups of one instance of a node are."""
    return f"{base.rstrip('/')}/detent-{instance.replace('/', '%2F')}"


class Home:
    """Where the warden itself belongs, by descriptors: its cgroup's list of processes, and its directory."""

    def __init__(self, processes: int, directory: int) -> None:
        self._processes, self._directory = processes, directory
        self.is_left = False

    def come_back(self) -> None:
        if self.is_left:
            os.write(self._processes, b"0")
            self.is_left = False

    def enter_directory(self) -> None:
        os.fchdir(self._directory)


def home_in(cgroup: str) -> Home:
    """In this cgroup, and in the directory where we are."""
    return Home(os.open(f"{cgroup}/cgroup.procs", os.O_WRONLY), os.open(".", os.O_RDONLY))


class Place:
    """Where the processes of a fire belong.  Who starts them goes there and comes back: at once or, where it
    says so, when it has been to other places, as each way costs much."""

    def __init__(self, path: str, home: Home, fd: int = -1, *, lingers: bool = False) -> None:
        self._path, self._home, self._fd, self._lingers = path, home, fd, lingers

    def enter(self) -> None:
        self._home.is_left = True
        if self._fd >= 0:
            os.write(self._fd, b"0")
        else:
            _write(f"{self._path}/cgroup.procs", b"0")

    def leave(self, *, directory: bool) -> None:
        if not self._lingers:
            self._home.come_back()
        if directory:
            self._home.enter_directory()


class Cgroup:
    """All processes of one fire, or of one instance of a node, by their cgroup."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.main = 0  # a process that belongs here but, just started, may not have joined yet

    def create(self) -> None:
        try:
            os.mkdir(self.path)
        except FileExistsError:
            return
        except FileNotFoundError:
            os.makedirs(self.path, exist_ok=True)

    @property
    def above(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def parent(self) -> str:
        """The name of the one that it is in."""
        return self.above.rpartition("/")[2]

    def signal(self, signum: int) -> None:
        kernel.signal_all(self.members, signum, self.main)
        if signum == signal.SIGKILL:
            self._kill()

    def is_empty(self) -> bool:
        try:
            return b"populated 0" in kernel.read(f"{self.path}/cgroup.events") or not self.members()
        except OSError:
            return True

    def members(self) -> set[int]:
        """Of this cgroup and of those that the work made below it."""
        late = {self.main} & kernel.children(os.getpid()) if self.main else set()
        return late.union(*map(_processes, self._paths()))

    def has_others_than(self, pid: int) -> bool:
        """Is there any member besides this one?"""
        with contextlib.suppress(OSError):
            own = kernel.read(f"{self.path}/cgroup.procs").split()
            if all(int(other) == pid for other in own):
                return not self.is_leaf() and bool(self.members() - {pid})
        return True

    def is_leaf(self) -> bool:
        with contextlib.suppress(OSError):
            return os.stat(self.path).st_nlink == 2  # as a folder without folders has it
        return False

    def remove(self) -> bool:
        """True: it is not there any more."""
        try:
            os.rmdir(self.path)
        except FileNotFoundError:
            return True
        except OSError:  # the work may have made some below it
            for path in self._paths():
                with contextlib.suppress(OSError):
                    os.rmdir(path)
        return not os.access(self.path, os.F_OK)

    def _kill(self) -> None:
        """All at once, faster than anything can fork.  Not there in kernels before 5.14."""
        with contextlib.suppress(OSError):
            _write(f"{self.path}/cgroup.kill", b"1")

    def _paths(self) -> Iterator[str]:
        """This one last."""
        return (path for path, _, _ in os.walk(self.path, topdown=False))


class Spare(Cgroup):
    """One that is used again and again: what is asked of it for every fire, is asked by descriptors."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.processes = self._events = -1  # descriptors

    def create(self) -> None:
        super().create()
        self.processes = os.open(f"{self.path}/cgroup.procs", os.O_WRONLY)
        self._events = os.open(f"{self.path}/cgroup.events", os.O_RDONLY)

    def is_empty(self) -> bool:
        if self._events < 0:
            return super().is_empty()
        try:
            return b"populated 0" in os.pread(self._events, kernel.READ_MAX, 0) or not self.members()
        except OSError:
            return True

    def remove(self) -> bool:
        for fd in {self.processes, self._events} - {-1}:
            os.close(fd)
        self.processes = self._events = -1
        return super().remove()


class Spares:
    """Reusable empty cgroups of one instance: making and removing one costs as much as a spawn."""

    def __init__(self, instance: str) -> None:
        self._instance, self._made = instance, 0
        self._free: list[Spare] = []

    def take(self) -> Spare | None:
        """None: there is none to be had."""
        if self._free:
            return self._free.pop()
        self._made += 1
        cgroup = Spare(f"{self._instance}/fire-{self._made}")
        try:
            cgroup.create()
        except OSError:
            cgroup.remove()
            return None
        return cgroup

    def give_back(self, cgroup: Spare) -> bool:
        """True: it is free, or not there any more."""
        cgroup.main = 0
        is_whole = cgroup.processes >= 0 and len(self._free) < SPARES_MAX
        is_free = is_whole and cgroup.is_leaf() and cgroup.is_empty()
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
    """Where cgroup v2 is mounted: by itself, or beside version 1; "": nowhere."""
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
    """A directory below which this process may make cgroups and move processes into them; "": none."""
    base = _own_place()
    return base if base and _takes_processes(base) else ""


def _own_place() -> str:
    """Where this process is among the cgroups; "": nowhere."""
    mount = mounted_at()
    if not mount:
        return ""
    own = _lines(f"{kernel.PROC}/self/cgroup")
    path = next((line[3:] for line in own if line.startswith("0::")), "")
    return f"{mount}/{path.strip('/')}".rstrip("/") if path else ""


def _takes_processes(base: str) -> bool:
    """The rights say too little (a delegated subtree, a threaded one): try it."""
    import subprocess  # late: a trigger does without

    probe = Cgroup(f"{base}/detent-probe-{os.getpid()}")
    try:
        probe.create()
        with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as cat:
            try:
                _write(f"{probe.path}/cgroup.procs", str(cat.pid).encode())
            finally:
                cat.kill()
    except OSError:
        return False
    finally:
        probe.remove()
    return True


def own_cgroup() -> str:
    """As `find_cgroup`, for a process that may go there itself: it goes, and comes back."""
    base = _own_place()
    return base if base and _takes_us(base) else ""


def _takes_us(base: str) -> bool:
    probe = Cgroup(f"{base}/detent-probe-{os.getpid()}")
    try:
        probe.create()
        _write(f"{probe.path}/cgroup.procs", b"0")
        _write(f"{base}/cgroup.procs", b"0")
    except OSError:
        return False
    finally:
        probe.remove()
    return True


def directories_of(instance: str) -> list[Cgroup]:
    """The cgroups of a instance of a node, wherever on this host it had them."""
    mount = mounted_at()
    if not mount:
        return []
    name = instance_directory("", instance).lstrip("/")
    return [Cgroup(f"{path}/{name}") for path, below, _ in os.walk(mount) if name in below]
