"""What the tests with real processes start from."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fleet import Fleet

from detent.node.wardenry.cgroups import find_cgroup, mounted_at

SKEW = Path(__file__).with_name("skew.c")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Where a test starts its nodes; with cgroups if there are any."""
    yield from _watched(Fleet(tmp_path))


@pytest.fixture(params=["with cgroups", "without cgroups"])
def either_fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    """Nodes that have cgroups for their work, and nodes that have none."""
    has = bool(find_cgroup())
    if request.param == "with cgroups":
        if not has:
            pytest.skip("needs a cgroup (v2) that this user may write to")
        yield from _watched(Fleet(tmp_path))
    else:
        yield from _watched(Fleet(tmp_path, _out_of_sight() if has else ()))


def _out_of_sight() -> list[str]:
    """Words before a command that take cgroups (v2) away from it, as most users have none to write to."""
    if os.geteuid() or not shutil.which("unshare"):
        pytest.skip("needs root and unshare to hide the cgroups")
    return ["unshare", "--mount", "sh", "-c", f'umount "{mounted_at()}" && exec "$@"', "sh"]


def _watched(fleet: Fleet) -> Iterator[Fleet]:
    try:
        yield fleet
    finally:
        fleet.clear_up()
    fleet.assert_quiet()


class WallClock:
    """The wall clock of a node, to be set at will; what it measures by is not touched."""

    def __init__(self, library: Path, file: Path) -> None:
        self.env = {"LD_PRELOAD": str(library), "SKEW_FILE": str(file)}
        self._file = file
        self.set(0.0)

    def set(self, ahead_s: float) -> None:
        """Let it be so far ahead of ours from now on."""
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("<q", round(ahead_s * 1e9)))
        self.ahead_s = ahead_s


@pytest.fixture(scope="session")
def skew_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler, for a wall clock that a test can set")
    library = tmp_path_factory.mktemp("skew") / "skew.so"
    built = subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, SKEW], capture_output=True)
    if built.returncode:
        pytest.skip(f"the C compiler cannot build a shared library: {built.stderr.decode()[-200:]}")
    return library


@pytest.fixture
def wall_clock(skew_library: Path, tmp_path: Path) -> WallClock:
    return WallClock(skew_library, tmp_path / "skew")
