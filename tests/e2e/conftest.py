"""Fixtures of the tests with real processes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.equipment.fleet import Fleet
from tests.equipment.receiver import Receiver
from tests.equipment.wall_clock import WallClock, build_skew

from detent.warden.program.cgroups import find_cgroup, mounted_at


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


@pytest.fixture(scope="session")
def skew_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_skew(tmp_path_factory.mktemp("skew"))


@pytest.fixture
def wall_clock(skew_library: Path, tmp_path: Path) -> WallClock:
    return WallClock(skew_library, tmp_path / "skew")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()
