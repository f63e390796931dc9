"""The world of the dashboard's tests, on SQLite."""

from pathlib import Path

import pytest
from tests.dashboard.world import World, sqlite_url


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(sqlite_url(tmp_path))
