"""Worlds for a warden: with a cgroup for each fire, and without."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.warden.warden_world import World

from detent.warden.program.cgroups import find_cgroup, instance_directory


@pytest.fixture
def world_type() -> type[World]:
    """Another one, where a file's tests need more of it."""
    return World


@pytest.fixture(params=["cgroup", "descent"])
def world(request: pytest.FixtureRequest) -> World:
    world: World = request.getfixturevalue("cgroup_world" if request.param == "cgroup" else "bare_world")
    return world


@pytest.fixture
def cgroup_world(tmp_path: Path, world_type: type[World]) -> Iterator[World]:
    cgroup = find_cgroup()
    if not cgroup:
        pytest.skip("needs a kernel with a cgroup (v2) that this user may write to")
    world = world_type(tmp_path, cgroup)
    yield world
    world.clear_up()
    assert not Path(instance_directory(cgroup, world.instance)).exists()


@pytest.fixture
def bare_world(tmp_path: Path, world_type: type[World]) -> Iterator[World]:
    world = world_type(tmp_path, "")
    yield world
    world.clear_up()
