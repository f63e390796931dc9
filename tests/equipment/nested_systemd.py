"""Runs a whole systemd for a test, in namespaces: its own units, network, /run, /tmp, /dev and /var/lib.

- What the test has in its folder is at `/run/world` inside.  So is `detent`, with what it needs of folders
  that systemd has of its own: units of detent see no other /tmp than theirs.
- It must not reach the machine: its network is another one, /sys and /proc/sys cannot be written, /dev has
  the plain devices only, and whatever would start early (udev, sysctl, the journal) is masked.
"""

from __future__ import annotations

import os
import shutil
import signal
import site
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WORLD = Path("/run/world")
OWN = ("/run", "/tmp", "/var/lib", "/var/log")  # folders of which systemd sees others than the machine has
SOURCES = str(Path(__file__).parents[2] / "src")
NEEDED = (sys.prefix, sys.base_prefix, SOURCES)
DETENT = f"{WORLD}/detent"
SYSTEMD = "/lib/systemd/systemd"
VENDOR_UNITS = Path("/lib/systemd/system")
EARLY = ("sysinit.target.wants", "sockets.target.wants", "timers.target.wants", "local-fs.target.wants")
LATE = ("systemd-remount-fs.service", "systemd-fsck-root.service")  # named by no such folder
START_MAX_S = 60.0
UNSHARED = "--mount --pid --net --cgroup --uts --ipc --fork --kill-child --mount-proc --propagation private"
INSIDE = f"""
set -e
echo $$ > "$1"/cgroup.procs
shift
exec unshare {UNSHARED} sh -ec '
world=$1
shift
for path; do mkdir -p "$world/needed$path"; mount --rbind "$path" "$world/needed$path"; done
mount -t tmpfs tmpfs /run
mkdir {WORLD} /run/dev
mount --rbind "$world" {WORLD}
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /var/lib
mount -t tmpfs tmpfs /var/log
mount --bind {WORLD}/units /etc/systemd/system
mount -t tmpfs tmpfs /run/dev
for node in null zero full random urandom tty; do
    touch /run/dev/$node
    mount --bind /dev/$node /run/dev/$node
done
ln -s /proc/self/fd /run/dev/fd
mkdir /run/dev/shm /run/dev/pts
mount -t devpts -o newinstance,ptmxmode=0666 devpts /run/dev/pts
ln -s pts/ptmx /run/dev/ptmx
mount --rbind /run/dev /dev
mount -t sysfs -o ro sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
container=test exec {SYSTEMD} --system --unit=basic.target --log-target=null --show-status=no
' sh "$@"
"""


def unified() -> Path | None:
    """Where cgroup v2 is mounted, and can be written."""
    for path in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")):
        if (path / "cgroup.procs").exists() and os.access(path, os.W_OK):
            return path
    return None


def lacks_nesting() -> str:
    """Return why systemd cannot be started here, or ""."""
    if os.geteuid() != 0:
        return "a nested systemd needs root"
    if not Path(SYSTEMD).exists() or not Path("/etc/systemd/system").is_dir():
        return "systemd is not installed here"
    if unified() is None or shutil.which("nsenter") is None:
        return "a nested systemd needs cgroup v2 and nsenter"
    return ""


class Nested:
    """A running systemd."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """A command inside."""
        inside = ["nsenter", "-t", str(self._pid), "-m", "-p", "-n", "-C", "-u", "-i", *words]
        plain = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "HOME": "/root", **env}
        return subprocess.run(inside, capture_output=True, text=True, env=plain, timeout=START_MAX_S, cwd="/")


@contextmanager
def nested_systemd(folder: Path) -> Iterator[Nested | None]:
    """Return None if it does not start: some machines forbid a part of it."""
    _mask_early_units(folder / "units")
    root = unified()
    assert root is not None
    cgroup = root / f"detent-test-{os.getpid()}"
    cgroup.mkdir()
    needed = [path for path in NEEDED if _inside(path) != path]
    _write_detent(folder / "detent")
    words = ["sh", "-c", INSIDE, "sh", str(cgroup), str(folder), *needed]
    process = subprocess.Popen(words, start_new_session=True)
    try:
        yield _started(process)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        _remove(cgroup)


def _inside(path: str) -> str:
    """Where a path of the machine is for the nested systemd."""
    return f"{WORLD}/needed{path}" if path.startswith(tuple(f"{own}/" for own in OWN)) else path


def _write_detent(file: Path) -> None:
    paths = [_inside(path) for path in (SOURCES, *site.getsitepackages())]
    python = _inside(os.path.realpath(sys.executable))
    lines = [f"#!{python}", "import sys", f"sys.path[:0] = {paths}"]
    lines += ["from detent.__main__ import main", "sys.exit(main())", ""]
    file.write_text("\n".join(lines))
    file.chmod(0o755)


def _mask_early_units(units: Path) -> None:
    units.mkdir()
    for name in {*LATE, *(unit.name for wants in EARLY for unit in (VENDOR_UNITS / wants).glob("*"))}:
        (units / name).symlink_to("/dev/null")


def _started(process: subprocess.Popen[bytes]) -> Nested | None:
    deadline = time.monotonic() + START_MAX_S
    while time.monotonic() < deadline and process.poll() is None:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if children:
            nested = Nested(int(children[0]))
            if nested.run("systemctl", "is-active", "basic.target").stdout.strip() == "active":
                return nested
        time.sleep(0.1)
    return None


def _remove(cgroup: Path) -> None:
    """Empty once its processes are gone, which may take a moment."""
    (cgroup / "cgroup.kill").write_text("1")
    deadline = time.monotonic() + START_MAX_S
    while "populated 1" in (cgroup / "cgroup.events").read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    for path in sorted(cgroup.rglob("*/"), reverse=True):
        path.rmdir()
    cgroup.rmdir()
