"""Fixtures of the trigger tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.equipment.fleet import Witness
from tests.equipment.redis_server import RedisServer
from tests.equipment.wall_clock import WallClock, build_skew
from tests.trigger.trigger_world import Host, this_minute


@pytest.fixture(autouse=True)
def a_minute_of_its_own() -> None:
    this_minute.cache_clear()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path / "host")
    try:
        yield host
    finally:
        host.clear_up()


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    return Witness(tmp_path / "witness")


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.end()


@pytest.fixture(scope="session")
def skew_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_skew(tmp_path_factory.mktemp("skew"))


@pytest.fixture
def wall_clock(skew_library: Path, tmp_path: Path) -> WallClock:
    return WallClock(skew_library, tmp_path / "skew")
