"""A cgroup (v2) of its own for each fire: nothing that a command starts can get out of it.

Layout: BASE/detent-LIFE/ID.  We enable no controller there, so BASE may hold processes itself.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from . import kernel

SPARES_MAX = 64


def life_directory(base: str | Path, life: str) -> Path:
    """Where the cgroups of one life of a node are."""
    return Path(base) / f"detent-{quote(life, safe='')}"


class Home(NamedTuple):
    """Where the warden itself is, by descriptors: its cgroup's list of processes, and its directory."""

    processes: int
    directory: int


class Place:
    """Where the processes of a fire belong.  Who starts them goes there and comes back."""

    def __init__(self, path: Path, home: Home) -> None:
        self._path, self._home = f"{path}/cgroup.procs", home

    def enter(self) -> None:
        fd = os.open(self._path, os.O_WRONLY)
        try:
            os.write(fd, b"0")
        finally:
            os.close(fd)

    def leave(self) -> None:
        os.write(self._home.processes, b"0")
        os.fchdir(self._home.directory)


class Cgroup:
    """All processes of one fire, or of one life of a node, by their cgroup."""

    def __init__(self, path: Path) -> None:
        self.path, self._name = path, str(path)
        self.main = 0  # a process that belongs here but, just started, may not have joined yet

    def create(self) -> None:
        try:
            self.path.mkdir()
        except FileExistsError:
            return
        except FileNotFoundError:
            self.path.mkdir(parents=True, exist_ok=True)

    def signal(self, signum: int) -> None:
        kernel.signal_all(self.members, signum, self.main)
        if signum == signal.SIGKILL:
            self._kill()

    def is_empty(self) -> bool:
        try:
            return b"populated 0" in kernel.read(f"{self._name}/cgroup.events") or not self.members()
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
            return self.path.stat().st_nlink == 2  # as a folder without folders has it
        return False

    def remove(self) -> bool:
        """True: it is not there any more."""
        try:
            self.path.rmdir()
        except FileNotFoundError:
            return True
        except OSError:  # the work may have made some below it
            for path in self._paths():
                with contextlib.suppress(OSError):
                    path.rmdir()
        return not self.path.exists()

    def _kill(self) -> None:
        """All at once, faster than anything can fork.  Not there in kernels before 5.14."""
        with contextlib.suppress(OSError):
            (self.path / "cgroup.kill").write_bytes(b"1")

    def _paths(self) -> Iterator[Path]:
        """This one last."""
        return (Path(path) for path, _, _ in os.walk(self.path, topdown=False))


class Spares:
    """Empty cgroups of one life that are used again: to make and to remove one costs as much as a spawn."""

    def __init__(self, life: Path) -> None:
        self._life, self._made = life, 0
        self._free: list[Path] = []

    def take(self) -> Cgroup | None:
        """None: there is none to be had."""
        if self._free:
            return Cgroup(self._free.pop())
        self._made += 1
        cgroup = Cgroup(self._life / f"fire-{self._made}")
        try:
            cgroup.create()
        except OSError:
            return None
        return cgroup

    def give_back(self, cgroup: Cgroup) -> bool:
        """True: it is free, or not there any more."""
        is_free = len(self._free) < SPARES_MAX and cgroup.is_leaf() and cgroup.is_empty()
        if is_free:
            self._free.append(cgroup.path)
        return is_free or cgroup.remove()


def _processes(path: Path) -> list[int]:
    try:
        return [pid for pid in map(int, (path / "cgroup.procs").read_bytes().split()) if pid]
    except OSError:
        return []


def mounted_at() -> Path | None:
    """Where cgroup v2 is mounted: by itself, or beside version 1."""
    try:
        lines = (kernel.PROC / "self/mountinfo").read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return None
    for line in lines:
        fields, _, filesystem = line.partition(" - ")
        if filesystem.startswith("cgroup2 "):
            return Path(fields.split()[4])
    return None


def find_cgroup() -> str:
    """A directory below which this process may make cgroups and move processes into them; "": none."""
    base = _own_place()
    return str(base) if base and _takes_processes(base) else ""


def _own_place() -> Path | None:
    """Where this process is among the cgroups."""
    mount = mounted_at()
    if mount is None:
        return None
    own = (kernel.PROC / "self/cgroup").read_text("utf-8", "surrogateescape").splitlines()
    path = next((line[3:] for line in own if line.startswith("0::")), "")
    return mount / path.lstrip("/") if path else None


def _takes_processes(base: Path) -> bool:
    """The rights say too little (a delegated subtree, a threaded one): try it."""
    import subprocess  # late: a trigger does without

    probe = Cgroup(base / f"detent-probe-{os.getpid()}")
    try:
        probe.create()
        with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as cat:
            try:
                (probe.path / "cgroup.procs").write_text(str(cat.pid))
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
    return str(base) if base and _takes_us(base) else ""


def _takes_us(base: Path) -> bool:
    probe = Cgroup(base / f"detent-probe-{os.getpid()}")
    try:
        probe.create()
        (probe.path / "cgroup.procs").write_bytes(b"0")
        (base / "cgroup.procs").write_bytes(b"0")
    except OSError:
        return False
    finally:
        probe.remove()
    return True


def directories_of(life: str) -> list[Cgroup]:
    """The cgroups of a life of a node, wherever on this host it had them."""
    mount = mounted_at()
    if mount is None:
        return []
    name = life_directory(mount, life).name
    return [Cgroup(Path(path) / name) for path, below, _ in os.walk(mount) if name in below]
